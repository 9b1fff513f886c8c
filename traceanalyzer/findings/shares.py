"""Shares of a step, and the ranks that spend most of it."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import Result, is_true
from traceanalyzer.analyses.blame.rank_sets import Places
from traceanalyzer.analyses.blame.step_budget import StepNeeds
from traceanalyzer.analyses.blame.stragglers import Stragglers
from traceanalyzer.analyses.communication.collectives import Nccl
from traceanalyzer.analyses.host.cpu_time import likely_idle
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.integrity.integrity import LEFT_OUT, MISSING_RANKS, UNKNOWN_KERNELS, Integrity
from traceanalyzer.analyses.kernels.kernel_names import MATRIX_CATEGORIES
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.efficiency import Mfu
from traceanalyzer.analyses.operators.operators import Categories
from traceanalyzer.analyses.overview import OverRanks, TimeParts
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.basis import LEAST_GAIN_PCT, Basis, Won, count_of_steps, mean_steps, per_step, plain
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.statistics import also_on, with_others
from traceanalyzer.findings.vendor_terms import tools_of
from traceanalyzer.meaning.columns import Unit, digits, per_cent, text, time_text
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.vocabulary import GRAVE, numbered, rate
from traceanalyzer.model.tables import rows_where

# What part of a step hosts spend in something, and who spends enough of it to be told.


_IN_LOOPS = 0.8
"""Of all times: what the loops gain with one turn is then what is said."""


class HostShares(Struct, frozen=True):
    """What part of a mean step hosts spend in something, told of the one whose GPU idles longest for it.

    Attributes:
        pct: its share.
        ranks: all that spend as much as is worth a finding.
        every: those of which it is known, and the rest of the job.
    """

    pct: float
    ranks: tuple[int, ...]
    every: tuple[int, ...]

    def also(self, places: Places) -> str:
        """Who else, behind the sentence about that one."""
        return also_on(self.ranks, self.every, places)

    def most_gained_ns(self, spent_ns: float, replay: Replay) -> int | None:
        """The most that the time of that one gains: no more than if these hosts took none; `None` for hardly any.

        So it is where another rank is later.
        """
        return most_gained_ns(spent_ns, gain_of(replay, Change("host", 0.0, frozenset(self.ranks))))

    def named(self, rank: int) -> tuple[int, ...]:
        """Those that the sentence and `also` name; it is of this one."""
        return with_others(rank, self.ranks, self.every)


def host_shares(spent_ns: pd.Series, rank: int, basis: Basis, least_pct: float) -> HostShares | None:
    """Of what each host spends, by rank, in a mean step; `None` where this one's is less than `least_pct` of it."""
    shares = basis.shares_pct(spent_ns)
    if not shares.get(rank, 0.0) >= least_pct:
        return None
    ranks = sorted(int(one) for one in shares.index[shares >= least_pct])
    return HostShares(float(shares[rank]), tuple(ranks), tuple(int(one) for one in shares.index))


def most_gained_ns(spent_ns: float, gain: Gain | None) -> int | None:
    """The most that hosts' time in something gains: no more than if they took none (`gain`); `None` for hardly any."""
    if gain is None:
        return round(spent_ns)
    most_ns = min(spent_ns, gain.gain_ns + gain.error_ns)
    return round(most_ns) if 100 * most_ns >= LEAST_GAIN_PCT * gain.before_ns else None


def won_by_one_turn(loops: pd.DataFrame, replay: Replay, shares: HostShares, times: float, most_ns: int) -> Won:
    """What it gains by the replay if each run of these loops (of `launch_loops`) is one turn, else at most `most_ns`.

    It is done so many `times`, most of them in the loops: fewer are not what is told.
    """
    if loops.empty or loops.groupby("rank")["turns"].sum().max() < _IN_LOOPS * times:
        return Won(most_ns, is_bound=True)
    ranks = frozenset(shares.ranks)
    gain = gain_of(replay, *(Change("loop", 0.0, ranks, name=str(name)) for name in loops["loop"].unique()))
    return Won.of(gain) if gain is not None and gain.gain_ns else Won(most_ns, is_bound=True)


def once(how: str, won: Won, basis: Basis) -> tuple[str | Won, ...]:
    """Parts of a title: what is gained if it is done once, where the replay says it."""
    return () if won.is_bound else (f" {how}, with nothing between, {basis.whole} would be ", won, ".")


def in_a_step(of_hosts: Result) -> pd.DataFrame:
    """The rows with `host_a_step_ns` and `idle_a_step_ns`: of a mean step, or of the whole capture."""
    table = of_hosts.table
    per = table["steps"].astype("Int64").fillna(1).astype("int64")
    host_ns = table["host_ns"].astype("float64") / per
    # What lies outside the window of a whole capture is no part of it.
    idle_ns = likely_idle(host_ns, table).where(table["steps"].notna(), table["idle_ns"])
    idle_ns = idle_ns.astype("Float64").fillna(0.0).astype("float64")
    return table.assign(per=per, host_a_step_ns=host_ns, idle_a_step_ns=idle_ns)


# Which of a host's calls were recorded, and what to record where nothing says which launched the GPU's work.


_WITH_CALLS = {
    "kineto": "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
    "nsys": "nsys profile --trace=cuda,nvtx",
    "rocprofv3": "rocprofv3 --hip-trace beside --kernel-trace",
    "xplane": "jax.profiler.start_trace with host_tracer_level=2",
}
"""How the calls are recorded, by format."""

_RECORDED_WHOLE = (
    "Let hosts wait for their GPUs before recording begins (torch.cuda.synchronize()), so that nothing queued before "
    "runs in it, or record more steps. Give the trace with its events' arguments: an operation's number (correlation) "
    "is that of its call."
)
"""What to do where calls were recorded."""


def calls_of(ranks: Ranks, rank: int) -> tuple[str, str]:
    """Why nothing says when the rank's work was launched, by what was recorded of its host; and what to do."""
    own = ranks.table[ranks.table["rank"] == rank].iloc[0]
    if own["api_calls"]:
        return "most of its work is of no call that was recorded", _RECORDED_WHOLE
    with_calls = _WITH_CALLS.get(str(own["format"]), "the host's calls")
    what = "the calls of the GPU's runtime, too" if own["host_operators"] else "the host too"
    return "which calls launched its work was not recorded", f"Record {what}: {with_calls}."


# The rank that idles most for a reason, and what its host did then.


_LARGE = 0.5
"""Of the step with most; of all that few steps hold."""

_MOST = 0.6


def worst_rank(
    headline: Headline, steps: Steps, idle: Idle, column: str, least_pct: float
) -> tuple[int, float, float, Basis] | None:
    """The rank with most of `column` in a mean step: rank, time, share; `None` when it is below `least_pct`."""
    if not len(headline) or not len(idle):
        return None
    basis = Basis.of(headline, steps)
    mean = mean_steps(idle, basis, [column, "window_ns"])
    if mean.empty:
        return None
    rank = int(mean[column].idxmax())
    cost_ns = float(mean.loc[rank, column])
    share = 100.0 * cost_ns / mean.loc[rank, "window_ns"] if cost_ns else 0.0
    return (rank, cost_ns, float(share), basis) if share >= least_pct else None


def as_idle(mean: pd.DataFrame, column: str, least_pct: float) -> pd.Series:
    """Of ranks' mean steps (`mean_steps`, with `window_ns`) those with as much of `column`."""
    return (100.0 * mean[column] >= least_pct * mean["window_ns"]).astype(bool)


OF_ALL_STEPS = "of the time in all steps"
"""Whose share `Few.share_pct` is."""


class Few(Struct, frozen=True):
    """Steps that hold most of something, and how much each of them does."""

    steps: tuple[int, ...]
    mean_ns: float
    whole_ns: float
    """Of the rank's time in all steps that were looked at, those among them."""

    @property
    def words(self) -> str:
        """`In step 5`, `In steps 1 and 4`."""
        return f"In {numbered('step', self.steps)}"

    @property
    def mostly(self) -> str:
        """`Mostly in step 5`: of what is said of a mean step."""
        return f"Mostly in {numbered('step', self.steps)}"

    @property
    def cost(self) -> str:
        """`25.1 ms a step`: in each of them; `25.1 ms` where it is one."""
        return f"{time_text(self.mean_ns)}{' a step' if len(self.steps) > 1 else ''}"

    @property
    def share_pct(self) -> float:
        """Of the rank's time in all compared steps."""
        return 100.0 * self.mean_ns * len(self.steps) / self.whole_ns


def few_steps(step_needs: StepNeeds, basis: Basis, rank: int, column: str) -> Few | None:
    """The steps, less than half of all, whose excess over the others is most of the rank's `column`; else none.

    Of `step_needs`: time in which the GPU has nothing to do belongs to the step that the host is in. The last complete
    step's window ends in the step after it.
    """
    if basis.steps is None or not len(step_needs):
        return None
    table = rows_where(
        step_needs.table, (step_needs.table["rank"] == rank) & ~step_needs.table["is_partial"].astype(bool)
    )
    held = table[table["step"].isin([*basis.numbers, max(basis.numbers) + 1])]
    own = held.set_index("step")[column].astype("float64")
    is_large = own >= _LARGE * own.max()
    large, rest = own[is_large], own[~is_large]
    if 2 * len(large) >= len(own) or (large - rest.median()).sum() < _MOST * own.sum():
        return None
    whole_ns = float((held["end_ns"] - held["begin_ns"]).sum())
    return Few(tuple(sorted(int(step) for step in large.index)), float(large.mean()), whole_ns)


def few_steps_of(step_needs: StepNeeds, basis: Basis, rank: int, column: str, cost_ns: float) -> Few | None:
    """The same where `cost_ns`, of a mean step, is at least half of what these steps hold."""
    few = few_steps(step_needs, basis, rank, column)
    if few is None or cost_ns < _LARGE * few.mean_ns * len(few.steps) / basis.per:
        return None
    return few


def by_activity(gaps: pd.DataFrame, basis: Basis, most: int = 5) -> tuple[dict[str, Any], ...]:
    """What the host did for longest in these gaps, in a mean step."""
    groups = gaps.groupby("doing")
    table = pd.DataFrame({"gaps": groups.size(), "length_ns": groups["length_ns"].sum()})
    top = table.sort_values("length_ns", ascending=False).head(most).reset_index()
    return plain(per_step(top, ["gaps", "length_ns"], basis.steps))


def longest(gaps: pd.DataFrame) -> tuple[int, int] | None:
    """Where the longest gap lies."""
    if gaps.empty:
        return None
    row = gaps.loc[gaps["length_ns"].astype("int64").idxmax()]
    return int(row["start_ns"]), int(row["end_ns"])


# Of the ranks that others wait for: who costs a notable part of a step, who is acquitted, and what is left.


LEAST_COST_PCT = 2.0
"""Of a step; stragglers that cost less are in their table alone."""


def costly(stragglers: Stragglers, least_pct: float = LEAST_COST_PCT) -> pd.DataFrame:
    """Stragglers for which a rank waits at least so long; without those that are acquitted."""
    frame = stragglers.to_frame()
    return frame[_costs(frame, least_pct) & ~_is_acquitted(frame)]


def acquitted(stragglers: Stragglers, least_pct: float = LEAST_COST_PCT) -> str:
    """A sentence about ranks that others wait for and whose hosts need what every host needs; empty without any."""
    frame = stragglers.to_frame()
    ranks = frame.loc[_costs(frame, least_pct) & _is_acquitted(frame), "rank"]
    if ranks.empty:
        return ""
    one = len(ranks) == 1
    who = numbered("rank", ranks)
    whose = "whose host needs" if one else "whose hosts need"
    return f"Others wait for {who}, {whose} no longer for a step than hosts do where nothing is wrong: nobody's fault."


def too_cheap(stragglers: Stragglers, least_pct: float = LEAST_COST_PCT) -> str:
    """A sentence about the rows that cost less than `costly` asks for; empty without any."""
    rest = int((~_costs(stragglers.to_frame(), least_pct)).sum())
    if not rest:
        return ""
    who = (
        "Where waits can be told from transfers, no rank makes another wait"
        if rest == len(stragglers)
        else f"The {rest} other ranks make nobody wait"
    )
    return f"{who} for {least_pct:.0f} % of a step; tables/stragglers.csv has all."


def _costs(frame: pd.DataFrame, least_pct: float) -> pd.Series:
    return is_true(frame["cost_pct"] >= least_pct)


def _is_acquitted(frame: pd.DataFrame) -> pd.Series:
    return is_true(frame["is_acquitted"])


# What the split of each rank's time says by itself, whatever its cause: for a verdict where rules say little.
#
# Each gives Findings of severity `info`, whose titles follow each other as sentences; none of them is a rule's.


def one_waits_while_another_idles(
    time_parts: TimeParts, over_ranks: OverRanks, nccl: Nccl, apart_pct: float = 20.0
) -> list[Finding]:
    """One rank is idle while another sits in a collective, both by so much more of the time than the other one.

    Whether the one waits for the other, rules say.
    """
    late, waiting = over_ranks.of("idle_pct")["most_rank"], over_ranks.of("exposed_comm_pct")["most_rank"]
    if late is None or waiting is None or late == waiting:
        return []
    table = time_parts.to_frame().set_index("rank")
    idle, comm = table["idle_pct"], table["exposed_comm_pct"]
    if not (idle[late] - idle[waiting] >= apart_pct and comm[waiting] - comm[late] >= apart_pct):
        return []
    unit = rate(count_of_steps(table))
    title = (
        f"Rank {late}'s GPU is idle for {text(table.loc[late, 'idle_ns'], Unit.NS)}{unit} "
        f"({per_cent(idle[late])} %) while rank {waiting} sits in {_collective(nccl, waiting)} for "
        f"{text(table.loc[waiting, 'exposed_comm_ns'], Unit.NS)}{unit} ({per_cent(comm[waiting])} %)."
    )
    return [Finding("info", title, ranks=(late, waiting))]


def _collective(nccl: Nccl, rank: int) -> str:
    """The collective of which most time is exposed on a rank."""
    own = nccl.to_frame()
    own = own[own["rank"] == rank]
    if own.empty:
        return "communication"
    return collective_words(own.loc[own["exposed_comm_ns"].idxmax(), "collective"])


def much_idle(over_ranks: OverRanks, notable_pct: float = 10.0, apart_pct: float = 20.0) -> list[Finding]:
    """The GPUs are idle for a part of the time that is worth a sentence."""
    return _notable("idle", over_ranks.of("idle_pct"), notable_pct, apart_pct)


def much_exposed(over_ranks: OverRanks, notable_pct: float = 10.0, apart_pct: float = 20.0) -> list[Finding]:
    """Communication, or copies, that nothing hides take a part of the time that is worth a sentence."""
    comm, copy = over_ranks.of("exposed_comm_pct"), over_ranks.of("exposed_copy_pct")
    return [
        *_notable("in communication that no compute hides", comm, notable_pct, apart_pct),
        *_notable("in copies that neither compute nor communication hides", copy, notable_pct, apart_pct),
    ]


def _notable(name: str, share: Mapping[str, Any], notable_pct: float, apart_pct: float) -> list[Finding]:
    mean, least, most = share["mean_pct"], share["least_pct"], share["most_pct"]
    if mean is None or mean < notable_pct:
        return []
    if share["ranks"] == 1:
        title = f"For {per_cent(mean)} % of the time it is {name}."
    elif most - least < apart_pct:
        title = f"On average {per_cent(mean)} % of the time is spent {name}."
    else:
        title = (
            f"On average {per_cent(mean)} % of the time is spent {name}, unevenly: {per_cent(most)} % on rank "
            f"{share['most_rank']}, {per_cent(least)} % on rank {share['least_rank']}."
        )
    apart = most - least >= apart_pct
    named = (int(share["most_rank"]), int(share["least_rank"])) if apart else ()
    return [Finding("info", title, named=named)]


def unknown_kernels(integrity: Integrity) -> list[Finding]:
    """Kernels may communicate that no rule knows: nothing can be called well."""
    table = integrity.to_frame()
    if table.empty or not (table["check"].isin(UNKNOWN_KERNELS) & table["severity"].isin(GRAVE)).any():
        return []
    title = (
        "How much of it is communication cannot be told: kernels may communicate that no rule knows (see the notes)."
    )
    return [Finding("info", title)]


def nothing_without_others(integrity: Integrity, over_ranks: OverRanks) -> list[Finding]:
    """Ranks of the job are missing: one that waits for nobody may be the one that all others wait for."""
    table = integrity.to_frame()
    if table.empty or not table["check"].isin((MISSING_RANKS, LEFT_OUT)).any():
        return []
    share = over_ranks.of("not_computing_pct")
    one = share["ranks"] == 1
    here, it = (f"rank {share['most_rank']}'s", "it") if one else ("any of these ranks'", "them")
    own = (int(share["most_rank"]),) if one else ()
    what = "idle, exposed communication or exposed copies"
    itself = "itself" if one else "themselves"
    most = f"no more than {per_cent(share['most_pct'])} %"
    return [
        Finding("info", f"By {itself} nothing stands out: {most} of {here} time is {what}.", named=own),
        Finding("info", f"Whether the job's other ranks wait for {it} cannot be told without their traces."),
    ]


def nothing(over_ranks: OverRanks) -> list[Finding]:
    """No part but computing takes a notable share of any rank's time."""
    most = digits(over_ranks.of("not_computing_pct")["most_pct"])
    what = "idle, exposed communication or exposed copies"
    return [Finding("info", f"Nothing stands out: no more than {most} % of any rank's time is {what}.")]


def far_from_peak(mfu: Mfu, over_ranks: OverRanks) -> list[Finding]:
    """How near a run without faults is to what its GPUs can do."""
    mean = over_ranks.of("mfu_pct")["mean_pct"]
    if mean is None or mean > 100:  # the peak, the work or the times are wrong
        return []
    first = mfu.known().iloc[0]
    title = (
        f"What there is to gain lies in the kernels: model FLOPs are {per_cent(mean)} % of the peak of "
        f"{first['gpu']} in {first['element_type']} ({first['peak_tflops_per_s']:,.0f} TFLOP/s)."
    )
    return [Finding("info", title)]


def not_matrix_work(categories: Categories, kernels: Kernels, ranks: Ranks) -> list[Finding]:
    """How much of compute is kernels that move data and that fusing shortens, rather than matrix work."""
    compute = categories.of_compute()
    matrix = compute["category"].isin(MATRIX_CATEGORIES)
    if not compute["gpu_ns"].sum() or matrix.all():
        return []
    share = 100 * float(compute.loc[~matrix, "gpu_ns"].sum()) / float(compute["gpu_ns"].sum())
    rest = compute[~matrix].groupby("category", observed=True)["gpu_ns"].sum().sort_values(ascending=False)
    most = " and ".join(str(name) for name in rest.index[:2])
    said = (
        f"{per_cent(share)} % of compute kernel time in the capture is neither matrix work nor attention, {most} first"
    )
    return [Finding("info", f"{said}{tools_of(ranks, kernels).fusing}.")]
