"""Communication that could be hidden, faster, or fewer."""

from dataclasses import replace

import pandas as pd

from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.collectives import Collectives, transfer_kinds
from traceanalyzer.analyses.communication.exposed_comm import ExposedComm
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.phases.call_phases import CallPhases
from traceanalyzer.analyses.phases.exposed_calls import ExposedCalls
from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.replay.transfer_lengths import are_small
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, LEAST_GAIN_PCT, MOSTLY, Basis, severity
from traceanalyzer.findings.communication.exposed_collective import EXPOSED, exposed_transfers
from traceanalyzer.findings.communication.own_kernels import is_of_own_kernels
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.link_rates import LOW_PEAK_PCT, SLOW_LINKS, healthy_rate
from traceanalyzer.findings.tools import tools_of
from traceanalyzer.findings.unprofiled import HOSTS, who_decides
from traceanalyzer.findings.won import Won
from traceanalyzer.meaning.names import collectives_words
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.sentences import first_upper, with_article
from traceanalyzer.meaning.wholes import step_or_capture
from traceanalyzer.model.tables import rows_where

LEAST_TRANSFER_PCT = 5.0
"""Exposed transfer below this share of a step is not worth hiding."""

LITTLE_OVERLAP_PCT = 10.0

_SEVERAL = 2
"""Of so many one can be made."""

_OF_GRADIENTS = ("backward", "optimizer")
"""Phases whose small collectives can be joined: nothing in them needs the result of one before the next is made."""

_FREE = Change("comm", 0.0)


def little_overlap(
    headline: Headline, steps: Steps, exposed_comm: ExposedComm, exposed_calls: ExposedCalls, call_waits: CallWaits,
    replay: Replay, collectives: Collectives, ranks: Ranks, kernels: Kernels, iterations: Iterations,
    operators: Operators,
    *, unhidden_transfer_pct: float = LEAST_TRANSFER_PCT, little_overlap_pct: float = LITTLE_OVERLAP_PCT,
    low_peak_pct: float = LOW_PEAK_PCT,
) -> list[Finding]:  # fmt: skip
    """Data moves in over 5 % of a step while no compute runs, and no rank overlaps a tenth of its communication.

    The gain is at most that of the replay in which transfers take no time (hosts that bind leave little of it), and no
    step is shorter than what it moves. What it would gain of a job whose hosts take no time is said then, where that is
    a part of a step worth saying. Where a slow collective would gain most of it at a healthy rate, it is part of that.
    """
    rows = [row for row in headline.rows() if row["overlap_pct"] is not None]
    overlap = max((row["overlap_pct"] for row in rows), default=None)
    if overlap is None or overlap >= little_overlap_pct:
        return []
    basis, worst = Basis.of(headline, steps), _per_step(exposed_comm)
    if worst is None or worst["pct"] < unhidden_transfer_pct:
        return []
    gain = _no_shorter_than(worst["ns"], gain_of(replay, _FREE))
    won, before_ns = _won_of(gain, worst)
    share = 100 * won / before_ns
    behind = "" if share >= LEAST_GAIN_PCT else _behind_hosts(replay, worst["ns"], unhidden_transfer_pct)
    if share < LEAST_GAIN_PCT and not behind:
        return []
    tools = tools_of(ranks, kernels, iterations, operators=operators)
    advice = tools.hide_own_comm if is_of_own_kernels(kernels) else tools.start_early
    return [
        Finding(
            severity=severity(share),
            title=f"Next to nothing overlaps: rank {worst['rank']:.0f} moves data for {time_text(worst['ns'])} of "
            f"{with_article(time_text(worst['window_ns']))} {'capture' if basis.steps is None else 'step'} "
            f"while no compute runs{_open(worst)}{_mostly(exposed_calls, call_waits, worst, basis)} "
            f"({overlap:.0f} % of communication is hidden).{_hidden(gain, basis)}{behind}",
            evidence=tuple(rows),
            recommendation=_once_hosts_launch(advice, behind),
            caveat="Time that ranks spend waiting for each other is not in this figure; overlap does not remove it.",
            gain_ns=gain.gain_ns if gain else round(worst["ns"]),
            gain_error_ns=gain.error_ns if gain else None,
            unprofiled_gain_ns=gain.unprofiled_gain_ns if gain else None,
            named=(int(worst["rank"]),),
            is_of_ideal=True,
            about=EXPOSED,
            part_of=_slow_link(collectives, replay, won, low_peak_pct),
        )
    ]


def _once_hosts_launch(advice: str, behind: str) -> str:
    """What to do; first, where hosts decide a step's length, what of it comes before."""
    return f"Once hosts launch sooner, {advice[0].lower()}{advice[1:]}" if behind else advice


def _won_of(gain: Gain | None, worst: pd.Series) -> tuple[int, float]:
    """What hiding gains, with the profiler or without, and of what; all that is exposed where no replay tells."""
    if gain is None:
        return round(worst["ns"]), float(worst["window_ns"])
    return max(gain.gain_ns, gain.unprofiled_gain_ns or 0), gain.before_ns


def _slow_link(collectives: Collectives, replay: Replay, won_ns: int, low_peak_pct: float) -> str | None:
    """What is said of slow collectives, as findings call it, where one would gain most of this at a healthy rate."""
    names = transfer_kinds(collectives.table["collective"].dropna()).unique() if len(collectives) else ()
    for name in names:
        faster = healthy_rate(collectives, str(name), low_peak_pct)
        gain = gain_of(replay, faster) if faster else None
        if gain is not None and gain.gain_ns >= MOSTLY * won_ns > 0:
            return SLOW_LINKS
    return None


def _no_shorter_than(moved_ns: float, gain: Gain | None) -> Gain | None:
    """The gain where what moves data goes on beside the compute: a step is as long as that at least."""
    if gain is None:
        return None
    of_unprofiled = gain.unprofiled_ns and (gain.unprofiled_ns[0], max(gain.unprofiled_ns[1], round(moved_ns)))
    return replace(gain, after_ns=max(gain.after_ns, round(moved_ns)), unprofiled_ns=of_unprofiled)


def _open(worst: pd.Series) -> str:
    """What is not in the figure but in the gain: tokens to and from experts, collectives of one root."""
    if not worst["open_ns"] > worst["ns"]:
        return ""
    return f", and communicates for {time_text(worst['open_ns'])} more that may be data or waiting"


def _mostly(exposed_calls: ExposedCalls, call_waits: CallWaits, worst: pd.Series, basis: Basis) -> str:
    """Which collective most of it is, where one is."""
    if exposed_calls.table.empty:
        return ""
    held = exposed_transfers(exposed_calls, call_waits, basis)
    own = held[held["rank"] == worst["rank"]].groupby("collective", observed=True)["ns"].sum()
    is_one = len(own) and own.max() >= MOSTLY * own.sum() > 0
    return f", most of it in {collectives_words(str(own.idxmax()))}" if is_one else ""


def _behind_hosts(replay: Replay, moved_ns: float, least_pct: float) -> str:
    """What hiding gains where hosts take no time; empty where that is no part of such a step worth saying."""
    hosts = Change("host", 0.0)
    before, after = gain_of(replay, hosts), _no_shorter_than(moved_ns, gain_of(replay, hosts, _FREE))
    if before is None or after is None:
        return ""
    won = before.after_ns - after.after_ns
    if 100 * won < least_pct * before.after_ns:
        return ""
    who = who_decides(before, gain_of(replay, Change("data", 0.0)))
    decide, hosts_are = ("decide", "they") if who == HOSTS else ("decides", "hosts")
    length, one = f"{step_or_capture(before.steps)}'s length", "one of" if (before.steps or 0) > 1 else "its"
    return (
        f" {first_upper(who)} {decide} {length}: if {hosts_are} took no time, hiding it would make "
        f"{one} {time_text(before.after_ns)} {Won(won, is_bound=True)}."
    )


def _hidden(gain: Gain | None, basis: Basis) -> str:
    if gain is None:
        return ""
    return f" With all of it hidden {basis.whole} is {Won.of(gain, is_bound=True)}."


def many_small_collectives(
    call_waits: CallWaits,
    headline: Headline,
    steps: Steps,
    replay: Replay,
    ranks: Ranks,
    kernels: Kernels,
    iterations: Iterations,
    operators: Operators,
    call_phases: CallPhases,
    *,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:
    """A step would be 3 % shorter and more if collectives of at most 1 MiB took no time: what they cost is latency.

    Told with the kind and rank of which it is most. Those that run beside compute, or for which hosts have no time,
    gain nothing, however many there are. Those of a model that trains are not gradients to be joined where neither its
    backward pass nor its optimizer calls them, and calls of these are known: what follows needs each result.
    """
    calls = call_waits.table
    gain = gain_of(replay, Change("small"))
    if calls.empty or not len(headline) or gain is None:
        return []
    share_pct = gain.gain_pct
    basis = Basis.of(headline, steps)
    small = rows_where(calls, are_small(calls))
    # A capture without complete steps is one whole, whatever else in it has the number of a step.
    step = pd.Series(0, small.index) if basis.steps is None else small["step"]
    if not step.notna().any() or share_pct < clear_gain_pct:
        return []
    duration = small["end_ns"] - small["start_ns"]
    shortest = duration.groupby(small["instance"]).transform("min")
    moved = small["transfer_ns"].fillna(shortest).fillna(duration)
    by_step = moved.groupby([small["collective"], small["rank"], step]).agg(["size", "sum"])
    if basis.steps is not None:
        by_step = by_step[by_step.index.get_level_values("step").isin(basis.numbers)]
    by_step["held"] = 1
    sums = by_step.groupby(["collective", "rank"]).sum()
    means = sums.assign(size=sums["size"] / sums["held"], sum=sums["sum"] / (basis.steps or sums["held"]))
    several = means[means["size"] >= _SEVERAL].reset_index().sort_values("sum", kind="stable")
    tools = tools_of(ranks, kernels, iterations, operators=operators)
    return [
        _many_small(row, gain, share_pct, basis, tools.speed_small if is_within else tools.join_small)
        for row in several.tail(1).to_dict("records")
        for is_within in [_are_within_passes(rows_where(small, small["collective"] == row["collective"]), call_phases)]
    ]


def _are_within_passes(small: pd.DataFrame, call_phases: CallPhases) -> bool:
    """Whether most are of no pass that makes or takes gradients, in a job that communicates in one that does."""
    phases = call_phases.table
    of_gradients = phases["phase"].isin(_OF_GRADIENTS)
    own = small[["rank", "call"]].merge(phases[of_gradients][["rank", "call"]], on=["rank", "call"])
    return bool(of_gradients.any()) and len(own) < MOSTLY * len(small)


def _many_small(row: dict[str, float], gain: Gain, share_pct: float, basis: Basis, advice: str) -> Finding:
    """Steps without any are told: the time is then of a mean step, the count of those that have some."""
    name = collectives_words(row["collective"])
    is_in_all = basis.steps is None or row["held"] >= basis.steps
    when = basis.a_step if is_in_all else f"in each of {row['held']:.0f} of {basis.steps} steps"
    mean = "altogether" if is_in_all else f"of {basis.whole}"
    return Finding(
        severity=severity(share_pct),
        title=f"Rank {row['rank']} runs {row['size']:.0f} {name} of at most 1 MiB {when}, "
        f"{time_text(round(row['sum']))} {mean}. If small collectives took no time, {basis.whole} would be "
        f"{Won.of(gain, is_bound=True)}.",
        evidence=(
            {"collective": row["collective"], "rank": int(row["rank"]), "calls_per_step": row["size"],
             "time_per_step_ns": round(row["sum"])},
        ),
        recommendation=advice,
        caveat="The gain is that of none at all: what fewer and larger ones, or faster ones, still take is not in it.",
        gain_ns=gain.gain_ns,
        gain_error_ns=gain.error_ns,
        unprofiled_gain_ns=gain.unprofiled_gain_ns,
        named=(int(row["rank"]),),
        part_of=EXPOSED,
        tells_why=True,
    )  # fmt: skip


def _per_step(exposed_comm: ExposedComm) -> pd.Series | None:
    """The rank with most exposed transfer a step: `rank`, `ns`, `window_ns`, `pct`; the capture's without steps.

    `open_ns` is exposed communication of which it cannot be told whether it is transfer.
    """
    table = exposed_comm.table
    if table.empty:
        return None
    complete = complete_steps(table)
    held = complete if len(complete) else table[table["step"].isna()]
    columns = {"exposed_transfer_ns": "ns", "exposed_unmatched_ns": "open_ns", "window_ns": "window_ns"}
    means = held.groupby("rank")[[*columns]].mean().reset_index().rename(columns=columns)
    means = means.assign(pct=100 * means["ns"] / means["window_ns"].where(means["window_ns"] > 0))
    return means.sort_values("ns").iloc[-1]
