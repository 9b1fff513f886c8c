"""What is said of a straggler: who, when, by what, and what to do about it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.slow_transfers import WITH_ALL, WITH_MOST
from traceanalyzer.analyses.blame.step_budget import COMPILING, MEMORY_CALLS, OTHER_PROCESS, with_shapes
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host.activity import COLLECTIVES, MAIN, NOTHING
from traceanalyzer.analyses.host.cpu_time import BESIDE, OPERATOR, HostWork
from traceanalyzer.analyses.host.host_names import AUTOGRAD_NODE, is_autograd_node, is_framework_range
from traceanalyzer.analyses.host.host_silences import DYNAMO, XLA
from traceanalyzer.analyses.operators.efficiency import Efficiency
from traceanalyzer.analyses.operators.operators import Operators, same_calls
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.findings.basis import MOSTLY, Title, Won
from traceanalyzer.findings.statistics import of_the_others
from traceanalyzer.meaning.columns import digits, numbers, time_text
from traceanalyzer.meaning.names import collective_words, short_name
from traceanalyzer.meaning.vocabulary import (
    BETWEEN_KERNELS,
    DATA,
    HOST,
    LAUNCH,
    SYNC,
    UNKNOWN,
    first_upper,
    numbered,
    rate,
    whole,
)
from traceanalyzer.model.tables import rows_where

# A rank beside others, by operators: work of its own, the same calls that take its host longer, more calls.


SLOWER = 1.2
"""A host that takes this much longer for the same calls is slow."""

MORE = 1.15
"""A host that makes this many times as many calls is busy."""

_AS_MANY = 0.02
"""Of a rank's calls: who differs by less makes as many."""

_A_QUARTER = 0.25

_COVERED = 0.9
"""Of a host's time in operators, the part that must be in calls that all ranks make."""

_MOST_ROWS = 5
_SHOWN: list[str] = ["rank", "operator", "shapes", "calls", "gpu_ns", "tflops_per_s"]


def of_as_many_steps(operators: Operators, by_step: pd.DataFrame) -> Operators:
    """The operators of the ranks of which as many steps were recorded as of most: others' counts are of more or less.

    `by_step` has `rank` and `step` of each step that was recorded, complete or not.
    """
    if not len(by_step):
        return operators
    ranks, steps = np.unique(Groups.of(by_step, ["rank", "step"]).keys["rank"], return_counts=True)
    numbers, times = np.unique(steps, return_counts=True)
    if len(numbers) < 2:
        return operators
    kept = ranks[steps == numbers[times == times.max()].max()]
    return replace(operators, table=rows_where(operators.table, operators.table["rank"].isin(kept)))


def own_work(efficiency: Efficiency, rank: int, others: Collection[int]) -> pd.DataFrame:
    """Rows of the rank whose operator and shapes none of the others runs, longest first; without communication."""
    table = efficiency.to_frame()
    table = table[(table["family"] != "communication") & table["shapes"].notna()]
    keys = pd.MultiIndex.from_frame(table[["operator", "shapes"]].astype("object"))
    is_own = (table["rank"] == rank) & ~keys.isin(keys[table["rank"].isin(others)])
    return table.loc[is_own, _SHOWN].sort_values("gpu_ns", ascending=False, kind="stable")


def named(row: pd.Series) -> str:
    """`aten::mm of [8192, 8192] × [8192, 8192]`."""
    return with_shapes(str(row["operator"]), row["shapes"])


class SlowHost(Struct, frozen=True):
    """How much longer a rank's host takes for the calls that every rank makes as often.

    Attributes:
        calls: of operators.
        times: its host time in them / the others' median.
        more_ns: the same, less the median.
        most: operators that take at least a quarter of that more, with how much.
        rows: the operators with most beyond the others' median: `operator`, `calls`, `host_self_ns`,
            `others_host_self_ns`.
    """

    calls: int
    times: float
    more_ns: float
    most: dict[str, float]
    rows: pd.DataFrame


def slow_host(
    operators: Operators, rank: int, least_times: float, among: Collection[int] | None = None
) -> SlowHost | None:
    """`None` unless nearly all of the rank's host time is in operators that all ranks call as often, and is longer.

    All ranks are those `among`, if given.
    """
    same = same_calls(operators.to_frame(), rank, among)
    pace = None if same is None else same.pace
    if same is None or pace is None or same.covered < _COVERED or pace < least_times:
        return None
    own, others = same.own_ns, same.others_ns
    rows = pd.DataFrame(
        {
            "calls": same.calls[own.index],
            "host_self_ns": own,
            "others_host_self_ns": others.median(axis=1).round(),
        }
    )
    beyond = (rows["host_self_ns"] - rows["others_host_self_ns"]).sort_values(ascending=False, kind="stable")
    more_ns = float(own.sum()) - same.others_sum_ns
    most = {str(name): float(ns) for name, ns in beyond[beyond >= _A_QUARTER * more_ns].items()}
    shown = rows.loc[beyond.index[:_MOST_ROWS]].reset_index()
    return SlowHost(int(same.calls.sum()), pace, more_ns, most, shown)


class MoreCalls(Struct, frozen=True):
    """How many more operator calls some ranks' hosts make than the others'.

    Attributes:
        ranks: they; each makes about as many.
        calls: of the one of them that makes most.
        others_calls: the others' median.
        only_other: the other one's rank, where there is one alone.
        name: the operator with most of the host time in calls beyond the others'; absent where none has a quarter.
        rows: the operators with most: `operator`, `calls`, `others_calls`, `more_ns` (of host time).
    """

    ranks: tuple[int, ...]
    calls: int
    others_calls: int
    only_other: tuple[int, ...]
    name: str | None
    rows: pd.DataFrame

    @property
    def times(self) -> float:
        """The ranks' calls over the others'."""
        return self.calls / self.others_calls

    @property
    def others(self) -> str:
        """Whose the others' calls are, in words."""
        return of_the_others(self.only_other)


def more_calls(operators: Operators, rank: int, least_times: float) -> MoreCalls | None:
    """`None` unless the rank, and those that make as many calls (within 2 %), make so many times the others' median."""
    table = operators.to_frame()
    table = rows_where(table, table["calls"].notna() & table["host_self_ns"].notna()).astype(
        {"operator": "object", "calls": "int64", "host_self_ns": "int64"}
    )
    wide = table.groupby(["operator", "rank"])[["calls", "host_self_ns"]].sum().unstack("rank", fill_value=0)  # noqa: PD010
    if wide.empty or rank not in wide["calls"]:
        return None
    calls, ns = wide["calls"], wide["host_self_ns"]
    sums = calls.sum()
    is_alike = (sums - sums[rank]).abs() <= _AS_MANY * sums[rank]
    others = calls.loc[:, ~is_alike]
    if others.empty:
        return None
    total, typical = int(sums[is_alike].max()), int(others.sum().median())
    if not typical or total < least_times * typical:
        return None
    beyond = (calls[rank] - others.median(axis=1)).clip(lower=0)
    each = ns[rank] / calls[rank].where(calls[rank] > 0)
    more = (beyond * each).fillna(0).sort_values(ascending=False, kind="stable")
    rows = pd.DataFrame({"calls": calls[rank], "others_calls": others.median(axis=1), "more_ns": more.round()})
    name = str(more.index[0]) if more.iloc[0] >= _A_QUARTER * more.sum() else None
    only_other = tuple(map(int, others.columns)) if others.shape[1] == 1 else ()
    ranks = tuple(int(other) for other in sums.index[is_alike])
    return MoreCalls(ranks, total, typical, only_other, name, rows.loc[more.index[:_MOST_ROWS]].reset_index())


# In which of the recorded steps a rank is late, in words.


_MOST_LISTED = 8


@dataclass(frozen=True, slots=True)
class Recorded:
    """The job's steps.

    Attributes:
        complete: the numbers of those that are complete on all ranks: gains are of these.
        last: the number of the last one.
    """

    complete: tuple[int, ...]
    last: int | None

    @property
    def steps(self) -> int | None:
        """How many steps are complete on all ranks; `None` without any."""
        return len(self.complete) or None


def when(row: Mapping[str, Any], recorded: Recorded) -> str:
    """In which steps, unless in all alike; which few of them hold most of it, and which are in no mean step.

    Of one that is in no complete step at all, whether that is the capture's last.
    """
    steps = numbers(row["numbers"])
    if row["is_in_every_step"] or not steps:
        return ""
    if len(steps) > _MOST_LISTED:
        return f"in {len(steps)} of {row['steps']} steps (first in step {steps[0]}) "
    if steps == (recorded.last,):
        return f"in {numbered('step', steps)}, the capture's last, "
    return f"in {numbered('step', steps)} {_left_out(steps, row, recorded)}"


def _left_out(steps: tuple[int, ...], row: Mapping[str, Any], recorded: Recorded) -> str:
    """Which of its steps are in no mean step, where others are and what mending it gains is said."""
    open_steps = [step for step in steps if step not in recorded.complete]
    if not open_steps or len(open_steps) == len(steps) or row.get("gain_ns") is None:
        return ""
    are = "is" if len(open_steps) == 1 else "are"
    return f"({numbered('step', open_steps)} {are} not complete on all ranks, and in no mean) "


# What is said of an episode of lateness: who, when, by what, who waits, and what mending it gains.


_UNRECORDED = "Python or other code that no range, operator or call of the trace covers"

_IN_TURN = " in turn, each in other steps"

_TIMES = 2.0
"""From so many times as long on a per cent is no measure."""

COMPUTED = "computed_by_host"
"""What is added to an episode whose late host computes what the others' do not: operators, and their times a step."""


def title(row: Mapping[str, Any], recorded: Recorded) -> Title:
    """One sentence on the lateness, and one on what mending it gains."""
    return Title(f"{first_upper(late(row, recorded))} {waited(row)}.", *_gains(row, recorded))


def in_short(row: Mapping[str, Any]) -> str:
    """The headline: who is a straggler, and by what."""
    ranks = numbers(row["ranks"])
    many = len(ranks) > 1
    steps = numbers(row["numbers"])
    once = "" if row["is_in_every_step"] or len(steps) != 1 else f" in step {steps[0]}"
    whom = f"{'Stragglers' if many else 'Straggler'}: {numbered('rank', ranks)}"
    more = f"{time_text(row['excess_ns'])}{'' if once else '/step'} longer than {'their' if many else 'its'} peers"
    if is_slow_gpu(row):
        return f"{whom} {'run' if many else 'runs'} the same kernels {row['same_work_ratio']:.2g}× slower{once}."
    verbs = {
        "compute": ("computes", "compute"),
        DATA.key: ("waits for data", "wait for data"),
        "copies": ("copies", "copy"),
        "transfer": ("moves data", "move data"),
    }
    if row["cause"] not in verbs:
        behind = f"{time_text(row['excess_ns'])}{'' if once else '/step'} behind {'their' if many else 'its'} peers"
        cpus = f"the CPUs of {numbered('rank', ranks)} are" if many else f"rank {ranks[0]}'s CPU is"
        return f"{whom.partition(':')[0]}: {cpus} {behind}{once}."
    verb = verbs[row["cause"]][many]
    ratio = row["own_ns"] / row["peers_ns"] if row["cause"] == "compute" and row["peers_ns"] else 0
    if ratio >= _TIMES:
        return f"{whom} {verb} {ratio:.2g}× as much as {'their' if many else 'its'} peers{once}."
    return f"{whom} {verb} {more}{once}."


_TIMES = 1.1
"""Ratios that are nearer to 1 are told as a difference."""


def beside_late(row: Mapping[str, Any]) -> tuple[int, ...]:
    """The rank that `title` names beside those that are late: the only one that waits."""
    return (row["most_waiting_rank"],) if row["waiting_ranks"] == 1 and not row["is_in_turn"] else ()


def peer(row: Mapping[str, Any]) -> tuple[int, ...]:
    """The rank that `late` names beside those that are late: the only other one."""
    is_named = _all(row) == 2 and not (_is_of_nothing(row) and not _are_needs_known(row))
    return (row["most_waiting_rank"],) if is_named else ()


def late(row: Mapping[str, Any], recorded: Recorded) -> str:
    """When, who and by what, up to the colon or semicolon before who waits."""
    if _is_of_nothing(row):
        return f"{when(row, recorded)}{_late_hosts(row)}"
    if is_slow_gpu(row):
        return f"{when(row, recorded)}{_slow_gpus(row)}"
    return f"{when(row, recorded)}{who(row)} {_needs(row).removeprefix(' ')}:"


def is_of_hosts(row: Mapping[str, Any]) -> bool:
    """Whether it is hosts that are late by what a profiler makes slower."""
    return row["cause"] in (HOST.key, SYNC.key, LAUNCH.key, BETWEEN_KERNELS.key)


def who(row: Mapping[str, Any]) -> str:
    """`rank 5`, `ranks 8 to 15 (host b07)`."""
    ranks = numbers(row["ranks"])
    of = f" ({row['place']})" if row["place"] else ""
    return f"{numbered('rank', ranks)}{of}"


def whose(row: Mapping[str, Any]) -> str:
    """`rank 5's loader`, `the compute of ranks 8 to 15 (host b07)`."""
    called = "loader" if row["cause"] == DATA.key else row["cause"]
    return f"{who(row)}'s {called}" if len(numbers(row["ranks"])) == 1 else f"the {called} of {who(row)}"


def name(row: Mapping[str, Any]) -> str:
    """The name of what is longer."""
    if row["name"] == NOTHING:
        return _UNRECORDED
    if str(row["name"]).startswith(BESIDE):
        return f"code that is not recorded, while another thread runs {beside(row)}"
    return short_name(row["name"]) if row["what"] in ("kernel", "copy") else str(row["name"])


def beside(row: Mapping[str, Any]) -> str:
    """What another thread runs meanwhile."""
    return str(row["name"]).removeprefix(BESIDE)


def _needs(row: Mapping[str, Any]) -> str:
    many = len(numbers(row["ranks"])) > 1
    own, peers, more = (time_text(row[column]) for column in ("own_ns", "peers_ns", "excess_ns"))
    each = each_of(row)
    is_said = row["name"] is None or row["name"].lower() == row["cause"]  # a range `data` around what is data
    called = "" if is_said else f", most of it {name(row)}"
    turn = f"{_IN_TURN}, " if row["is_in_turn"] else ""
    verb = _VERBS.get(row["cause"], _UNKNOWN)[many]
    if row["cause"] in ("compute", "copies") and many and not turn and row["peers_ns"]:
        times = row["own_ns"] / row["peers_ns"]
        is_alike = row["is_in_every_step"] and len(numbers(row["numbers"])) > 1
        always = " in every step" if is_alike else ""
        much = f"{times:.3g} times as long" if times >= _TIMES else f"{100 * (times - 1):.0f} % longer"
        longer = f"{verb.removesuffix(' for')} {much}{always}"
        return f"{longer} ({own}, {_peers(row)} {peers}{_worst(row)}){called}"
    if row["cause"] in ("compute", "copies"):
        same = (
            "" if row["same_work_ratio"] is None else f", the same kernels {row['same_work_ratio']:.3g} times as long"
        )
        return f"{turn}{verb} {own}{each}, {_peers(row)} {peers}{called}{same}"
    if row["cause"] == HOST.key and row["name"] is not None:
        return (
            f"{turn}{_KEEPS[many]} {more}{each} longer than {_peers(row)} before launching, most of it in {name(row)}"
        )
    of_part = (row["own_ns"] or 0) - (row["peers_ns"] or 0)
    if row["cause"] in _OF_PARTS and _OWN_SHARE * row["excess_ns"] > of_part:
        much = "most of it" if 2 * of_part >= row["excess_ns"] else "a part of it"
        part = f"{_OF_PARTS[row['cause']]}{f': {name(row)}' if row['name'] else ''}"
        return f"{turn}{'need' if many else 'needs'} {more}{each} longer than {_peers(row)}, {much} {part}"
    return f"{turn}{verb} {more}{each} longer than {_peers(row)}{called}"


def _worst(row: Mapping[str, Any]) -> str:
    """Of graded loads the rank that has most."""
    return "" if row["worst_rank"] is None else f"; rank {row['worst_rank']} most, {time_text(row['worst_ns'])}"


def is_slow_gpu(row: Mapping[str, Any]) -> bool:
    """The same kernels take longer on these ranks, and not on others in other steps: that is unequal work."""
    return row["same_work_ratio"] is not None and not row["is_in_turn"]


def _is_of_nothing(row: Mapping[str, Any]) -> bool:
    """Whether hosts are late by nothing that has a name."""
    return row["cause"] == HOST.key and row["name"] is None


def _are_needs_known(row: Mapping[str, Any]) -> bool:
    """Whether what late hosts need to launch a step is known, and more than the others'."""
    own, others = row["own_host_ns"], row["peers_host_ns"]
    return own is not None and others is not None and bool(own >= others)


def _slow_gpus(row: Mapping[str, Any]) -> str:
    """`rank 3's GPU is slower: the same kernels take 6.37 ms a step, on the others 4.9 ms (1.3 times as long);`."""
    many = len(numbers(row["ranks"])) > 1
    if row["name"] == OTHER_PROCESS:
        whose = f"the GPUs of {who(row)}" if many else _of(row, "GPU")
        compute = f"{time_text(row['own_ns'])} of compute{each_of(row)}, {time_text(row['peers_ns'])} on {_peers(row)}"
        return f"another process has {whose} at times, whichever kernel runs then ({compute});"
    in_part = "" if row["name"] is None else " in part"
    slow = f"the GPUs of {who(row)} are slower{in_part}" if many else f"{_of(row, 'GPU')} is slower{in_part}"
    times = f"{row['same_work_ratio']:.3g} times as long as on {_peers(row)}"
    # A stage computes something else than the others: beside it stands what it would take there.
    is_of_stage = row["peers_ns"] == round(row["own_ns"] / row["same_work_ratio"])
    there = " as fast as there" if is_of_stage else ""
    if in_part:
        times += f" in {name(row)}, and about as long in the rest"
    return (
        f"{slow}: the same kernels take {times} ({time_text(row['own_ns'])} of compute{each_of(row)}, "
        f"{time_text(row['peers_ns'])}{there});"
    )


def _of(row: Mapping[str, Any], what: str) -> str:
    """`rank 0's GPU`, `the GPU of rank 164 (host b20)`."""
    return f"the {what} of {who(row)}" if row["place"] else f"{who(row)}'s {what}"


def _late_hosts(row: Mapping[str, Any]) -> str:
    """`rank 0's host is late: it needs 67.1 ms to launch a step, rank 1's 42.4 ms;`."""
    many = len(numbers(row["ranks"])) > 1
    late = f"the hosts of {who(row)} are late" if many else f"{_of(row, 'host')} is late"
    late += _IN_TURN if row["is_in_turn"] else ""
    own, others = row["own_host_ns"], row["peers_host_ns"]
    if not _are_needs_known(row):
        return f"{late}, by {time_text(row['excess_ns'])}{each_of(row)}:"
    beside = f"{_peers(row)}'s" if _all(row) == 2 else "the others' at most"
    computed = [f"{operator} {time_text(time_ns)}" for operator, time_ns in row.get(COMPUTED, {}).items()]
    more = f", most of the difference in operators that its CPU alone runs ({', '.join(computed)})" if computed else ""
    return (
        f"{late}: {'they need' if many else 'it needs'} {time_text(own)} to launch a step, "
        f"{beside} {time_text(others)}{more};"
    )


_VERBS: Mapping[str, Sequence[str]] = {
    "compute": ("computes", "compute"),
    "copies": ("copies for", "copy for"),
    "transfer": ("moves data for", "move data for"),
    DATA.key: ("waits for its data", "wait for their data"),
    HOST.key: ("launches", "launch"),
    SYNC.key: ("is held up in synchronising calls", "are held up in synchronising calls"),
    LAUNCH.key: ("waits for launched work to start", "wait for launched work to start"),
    BETWEEN_KERNELS.key: ("idles between short kernels", "idle between short kernels"),
}
_OF_PARTS: Mapping[str, str] = {
    DATA.key: "waiting for data",
    HOST.key: "launching",
    SYNC.key: "held up in synchronising calls",
    LAUNCH.key: "waiting for launched work to start",
    "transfer": "moving data",
}
"""The same of an episode that holds other parts of the time as well."""

_OWN_SHARE = 0.95
"""Of an episode's excess: what its own part is less than holds other parts, too, which are mended with it."""

_UNKNOWN = ("idles for a reason that its trace does not hold,", "idle for a reason that their traces do not hold,")
_KEEPS = ("stays on its host", "stay on their hosts")


def _all(row: Mapping[str, Any]) -> int:
    return len(numbers(row["ranks"])) + int(row["waiting_ranks"])


def each_of(row: Mapping[str, Any]) -> str:
    """A rate is of several steps."""
    return rate(len(numbers(row["numbers"])) or None)


def _peers(row: Mapping[str, Any]) -> str:
    return f"rank {row['most_waiting_rank']}" if _all(row) == 2 else "the others"


def waited(row: Mapping[str, Any]) -> str:
    """Who waits for it, for how long, and where."""
    where = f" inside {collective_words(row['collective'])}" if row["collective"] else ""
    it = "it" if len(numbers(row["ranks"])) == 1 else "them"
    cost = f"{time_text(row['cost_ns'])}{each_of(row)}"
    if row["is_in_turn"]:
        return f"the others wait {cost} for it{where}"
    if row["waiting_ranks"] == 1:
        return f"rank {row['most_waiting_rank']} waits {_waited_by_one(row, it, where)}"
    return f"{row['waiting_ranks']:,} ranks wait {cost} for {it}{where}"


def _waited_by_one(row: Mapping[str, Any], it: str, where: str) -> str:
    """`24.6 ms a step for it inside all-reduce`, or how much of all that it waits: the bar beside shows all."""
    cost_ns, all_ns, each = row["cost_ns"], row["wait_ns"], each_of(row)
    if all_ns is None or all_ns <= cost_ns * _CLEARLY_MORE:
        return f"{time_text(cost_ns if all_ns is None else min(cost_ns, all_ns))}{each} for {it}{where}"
    return f"{time_text(all_ns)}{each}{where}, {time_text(cost_ns)} of it for this difference"


_CLEARLY_MORE = 1.05
"""From so many times what a rank waits for the late one on its whole wait is said, too."""


def whole_of(row: Mapping[str, Any], steps: int | None) -> str:
    """Words for what is shorter by an episode's gain; `steps` are complete on all ranks."""
    return whole(_steps_of(row, steps))


def rate_of(row: Mapping[str, Any], steps: int | None) -> str:
    """Words behind such a gain."""
    return rate(_steps_of(row, steps))


def _steps_of(row: Mapping[str, Any], steps: int | None) -> int | None:
    """Of how many steps the gain is the mean; of a job beside others without any, of those that were compared."""
    return None if row["gain_is_of_capture"] else steps or int(row["steps"])


def whole_ns(row: Mapping[str, Any]) -> int:
    """How long that is: a mean step, or the steps of a capture without a complete one."""
    return int(row["step_ns"] * (row["steps"] if row["gain_is_of_capture"] else 1))


def won_of(row: Mapping[str, Any]) -> Won:
    """What mending an episode gains."""
    bound, error_ns = bool(row["gain_is_bound"]), row["gain_error_ns"] or 0
    return Won(row["gain_ns"], bound, row["unprofiled_gain_ns"], row["step_ns"], error_ns)


def _gains(row: Mapping[str, Any], recorded: Recorded) -> tuple[str | Won, ...]:
    if row["gain_ns"] is None:
        return ()
    won = won_of(row)
    if won.without and not won.is_bound and won.gain_ns <= won.error_ns:
        return f" Mended, {whole_of(row, recorded.steps)} as recorded is ", replace(won, gain_ns=0), "."
    return f" Mended, {whole_of(row, recorded.steps)} is ", won, "."


# What is to be done about an episode of lateness, and when that may not hold.


OF_HOST = "advice_of_host"
"""What is added to an episode whose late host operators tell about: what to do then."""

CPU = (
    "its cores' clock, other processes on them, other threads of the process (one at a time runs Python), binding to "
    "cores and to the GPU's NUMA node"
)

ADVICE = {
    "compute": "Give the ranks equal work: sequence lengths, experts, uneven last batches. If the work is equal, look "
    "at these GPUs' clocks and temperature.",
    "copies": "Pin the host memory and copy on a stream of its own, or move less.",
    "transfer": "Compare the links of these ranks with the others' (nvidia-smi topo -m, NCCL_DEBUG=INFO).",
    HOST.key: f"Compare what these hosts launch with the others (table operators). If that is the same, look at their "
    f"CPU: {CPU}.",
    DATA.key: "Load ahead on these ranks: more workers, prefetch, pinned memory; look for slow storage, long samples.",
    SYNC.key: "Remove what waits for the GPU on these ranks: .item(), .cpu(), printing tensors, blocking copies.",
    LAUNCH.key: "Look at what else runs on these GPUs, and at the order of their streams.",
    UNKNOWN.key: "Record these ranks' hosts, and what else runs on their GPUs: the traces do not say what they wait "
    "for.",
    BETWEEN_KERNELS.key: "Fuse small kernels (torch.compile) or replay them with CUDA graphs.",
}

_RANGES = (
    "put torch.profiler.record_function ranges around saving, logging, evaluation and data handling, or record "
    "with_stack=True."
)

_NOW_AND_THEN = "Find what runs there on {who} and not in other steps: " + _RANGES

PAGEABLE = "pageable"

WHY_COMPILED = {
    DYNAMO: "What compiles anew in a running job meets new shapes or new values: "
    'TORCH_LOGS="recompiles" says which. Pad to few lengths, or let them vary (dynamic=True, '
    "torch._dynamo.mark_dynamic); if it is the first time only, record later.",
    XLA: "jax.jit compiles anew for each new shape, type and static argument: jax.log_compiles() says "
    "for what. Pad to few lengths; keep compiled code from run to run (jax_compilation_cache_dir); if it is the first "
    "time only, record later.",
}
"""What to do, by what compiles."""

_NAMED_ADVICE = {
    **{COMPILING + compiler: why for compiler, why in WHY_COMPILED.items()},
    "compute": "Find what takes {who} longer in {name} (more calls, or more to do in each), or give the ranks equal "
    "work.",
    HOST.key: "Take {name} out of the step on {who}, do it less often, or on all ranks at once.",
    MEMORY_CALLS: "Let {who} keep the memory that its allocator holds: no torch.cuda.empty_cache() in the step, sizes "
    "that repeat, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where memory is nearly full.",
    NOTHING: "Find what runs there on {who}, in code between operators: " + _RANGES,
    BESIDE: "One thread at a time runs Python: move {beside} on {who} from its thread to a process of its own "
    "(DataLoader workers, multiprocessing), or let it release Python's lock.",
    DATA.key: "Load ahead on {who} ({name}): more workers, prefetch, pinned memory; look for slow storage or long "
    "samples.",
    WITH_ALL: "Look at what all data of {who} passes: network card, its cable and switch port, NVLinks, PCIe "
    "(nvidia-smi nvlink -s, nvidia-smi topo -m, ibstat); the links of other ranks are faster.",
    "copies": "Let {name} of {who} run on a stream of its own, beside compute, or move less.",
    PAGEABLE: "Pin the host memory of what {who} copies ({name}) and copy on a stream of its own, or move less.",
}

LOOK_AT_GPU = (
    "look at the GPU: clocks, power limit, temperature (nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE), and "
    "what else runs on it."
)
SLOW_GPU = f"The work is the same, so {LOOK_AT_GPU}"
SHARED_GPU = (
    "See what else runs on that GPU (nvidia-smi, nvidia-smi pmon): another job, a process that did not end, a "
    "notebook. Give this job the GPU alone; who must share it does so by MPS or MIG, not in time slices."
)
_SLOW_IN_PART = (
    "The work is the same, and only {name} slower: where that moves memory rather than multiplies, look at the clock "
    "and errors of these GPUs' memory (nvidia-smi -q -d CLOCK,ECC,ROW_REMAPPER,PERFORMANCE)."
)
_BY_NAME = (NOTHING, MEMORY_CALLS, *(COMPILING + compiler for compiler in WHY_COMPILED))

_UNSEEN_SIZES = "Sizes that a kernel's grid does not show may differ, such as lengths of sequences."

BY_SIGNS = "Told by kernels of many names that are longer by the same time: no trace records what another process does."

PROFILED = "Recorded under the profiler, which slows the host: time some steps without it before you spend effort."


def advice(row: Mapping[str, Any]) -> str:
    """What to do, by the name of what is longer where there is one."""
    if is_slow_gpu(row):
        return {None: SLOW_GPU, OTHER_PROCESS: SHARED_GPU}.get(row["name"], _SLOW_IN_PART.format(name=name(row)))
    if row.get(OF_HOST):
        return str(row[OF_HOST])
    if row["cause"] == HOST.key and row["name"] is None and not row["is_in_every_step"]:
        return _NOW_AND_THEN.format(who=who(row))  # a slow host is slow in every step
    key = row["name"] if row["name"] in _BY_NAME else row["cause"]
    key = BESIDE if str(row["name"]).startswith(BESIDE) else key
    key = WITH_ALL if str(row["name"]).endswith((WITH_ALL, WITH_MOST)) else key
    key = PAGEABLE if key == "copies" and PAGEABLE in (row["name"] or "").lower() else key
    if row["name"] is None or key not in _NAMED_ADVICE:
        return ADVICE.get(row["cause"], "")
    return first_upper(_NAMED_ADVICE[key].format(who=who(row), name=name(row), beside=beside(row)))


def caveat(row: Mapping[str, Any]) -> str | None:
    """When it may not hold."""
    said = []
    if row["gain_ns"] is None:
        said.append("No step that means are taken of has it, so that its gain is not known.")
    elif row["gain_is_bound"]:
        said.append("The gain is the most that can be won.")
    if is_slow_gpu(row):
        said.append(BY_SIGNS if row["name"] == OTHER_PROCESS else _UNSEEN_SIZES)
    if is_of_hosts(row):
        said.append(PROFILED)
    return " ".join(said) or None


# What to do about a late host, by what the table of operators says of it: more calls, or the same ones slower.


_HELD_UP = (
    "Look at what holds {who} up between autograd's nodes: hooks of gradients, Python in other threads of the process "
    f"(one at a time runs), else its CPU: {CPU}."
)
_LONGER = (
    "Find why {name}, which all ranks run, takes rank {rank} longer{more}. Give the ranks equal work there; else "
    f"look at its CPU: {CPU}."
)
_BUSY = "Find why {who} launch{es} more ({calls}): give the ranks equal work, or launch less there."
_SLOW = f"{{who}} make{{s}} the same calls as the others, so look at {{its}} CPU: {CPU}."

_ON_CPU = (
    "Let the GPU do what {who}'s CPU alone computes ({names}): move its tensors there, as on the other ranks; or take "
    "it out of the step."
)

_MOST_NAMED = 3

_WORTH_NAMING = 0.1
"""Of these operators' time: what takes less is not named."""

_MOST_OF_IT = 0.5
"""Of what a late host needs more: operators that take this part are why it is late."""

_AS_OFTEN = 0.8
"""Of a rank's calls: others that make so many run the same."""

_SHARED = 0.25
"""Of the late rank's time in a range: others that spend this part of it there run the same, and less of it."""


class Unlike(Struct, frozen=True):
    """From how many times the others' on a host's time for the same calls is slow, and its number of calls large."""

    slow_times: float
    busy_times: float


def with_advice(row: Mapping[str, Any], operators: Operators, host_work: HostWork, unlike: Unlike) -> Mapping[str, Any]:
    """An episode of late hosts, with what to do where what hosts did tells why they are late."""
    if row["cause"] != HOST.key:
        return row
    alone = computed(row, host_work)
    if alone:
        names = ", ".join(alone)
        return {**row, COMPUTED: alone, OF_HOST: _ON_CPU.format(who=who(row), names=names)}
    told = _told(row, operators, host_work, unlike)
    return row if told is None else {**row, OF_HOST: told}


def computed(row: Mapping[str, Any], host_work: HostWork) -> Mapping[str, int]:
    """Operators that start no GPU work and that only the one late rank runs: name and time in a mean step.

    None where they take less than half of what its host needs more, where one span of the host is named already, and
    of a host that is late in some steps: the times are of all.
    """
    late, own_ns, peers_ns = numbers(row["ranks"]), row.get("own_host_ns"), row.get("peers_host_ns")
    if row["name"] is not None or len(late) != 1 or not row["is_in_every_step"]:
        return {}
    if own_ns is None or peers_ns is None or not len(host_work):
        return {}
    table = host_work.to_frame()
    table = table[(table["what"] == OPERATOR) & (table["role"] != COLLECTIVES) & table["host_per_step_ns"].notna()]
    is_own = table["rank"] == late[0]
    others = table[~is_own].groupby("name")["host_per_step_ns"].max()
    times = table[is_own & (table["launches"] == 0)].set_index("name")["host_per_step_ns"].astype("int64")
    alone = times[times * _SHARED > others.reindex(times.index, fill_value=0)].nlargest(_MOST_NAMED)
    if alone.sum() < _MOST_OF_IT * (own_ns - peers_ns):
        return {}
    told = alone[alone >= _WORTH_NAMING * alone.sum()].items()
    return {short_name(str(name).removeprefix(f"{AUTOGRAD_NODE}: ")): int(time_ns) for name, time_ns in told}


def _told(row: Mapping[str, Any], operators: Operators, host_work: HostWork, unlike: Unlike) -> str | None:
    """A range that only the late rank is in can be taken out of the step; not one that all are in, nor PyTorch's."""
    late, name = numbers(row["ranks"]), row["name"]
    if name is not None and is_autograd_node(name):
        return _HELD_UP.format(who=who(row))
    if name is not None and not is_framework_range(name):
        return _of_name(name, late[0], operators, host_work, unlike) if len(late) == 1 else None
    busy, one = more_calls(operators, late[0], unlike.busy_times), len(late) == 1
    if busy is not None and {*late} <= {*busy.ranks}:
        return _BUSY.format(who=who(row), es="es" if one else "", calls=_most(busy))
    others = [rank for rank in operators.to_frame()["rank"].unique() if rank not in late]
    if others and all(slow_host(operators, rank, unlike.slow_times, (rank, *others)) is not None for rank in late):
        return first_upper(_SLOW.format(who=who(row), s="s" if one else "", its="its" if one else "their"))
    return ADVICE[HOST.key] if name is not None else None


def _of_name(name: str, rank: int, operators: Operators, host_work: HostWork, unlike: Unlike) -> str | None:
    """Of a span that only this host is in nothing; of an operator that others run on the GPU, and of what all run."""
    if _is_on_cpu_alone(operators, name, rank):
        return _ON_CPU.format(who=f"rank {rank}", names=short_name(name))
    if _all_are_in(host_work, name, rank) or _all_call(operators, name, rank):
        return _LONGER.format(name=name, rank=rank, more=_more(more_calls(operators, rank, unlike.busy_times)))
    return None


def _all_are_in(host_work: HostWork, name: str, rank: int) -> bool:
    """Whether the others spend a good part of the rank's time in a range of that name, too."""
    table = host_work.table
    if table.empty:
        return False
    times = rows_where(table, (table["role"] == MAIN) & (table["name"] == name)).groupby("rank")["host_ns"].sum()
    others = times.reindex([other for other in table["rank"].unique() if other != rank], fill_value=0)
    return rank in times and len(others) > 0 and bool(others.median() >= _SHARED * times[rank])


def _is_on_cpu_alone(operators: Operators, name: str, rank: int) -> bool:
    """Whether an operator starts no GPU work on this rank, and no other rank runs it so."""
    own = _of_operator(operators, name)
    return rank in own.index and own["gpu_ops"][rank] == 0 and bool((own["gpu_ops"].drop(rank) > 0).all())


def _all_call(operators: Operators, name: str, rank: int) -> bool:
    """Whether all ranks call an operator about as often as this one."""
    calls = _of_operator(operators, name)["calls"]
    every = operators.to_frame()["rank"].unique()
    return (
        rank in calls.index
        and len(every) > 1
        and bool((calls.reindex(every, fill_value=0) >= _AS_OFTEN * calls[rank]).all())
    )


def _of_operator(operators: Operators, name: str) -> pd.DataFrame:
    """Its calls and GPU operations by rank."""
    table = operators.to_frame()
    return rows_where(table, table["operator"] == name).groupby("rank")[["calls", "gpu_ops"]].sum()


def _more(busy: MoreCalls | None) -> str:
    return "" if busy is None else f" (it makes {digits(busy.times)} times as many operator calls as {busy.others})"


def _most(busy: MoreCalls) -> str:
    """`most of it aten::mm: 960 calls in the capture, rank 0's 480`."""
    first = busy.rows.iloc[0]
    calls = f"{first['calls']:,.0f} calls in the capture, {busy.others} {first['others_calls']:,.0f}"
    return f"most of it {short_name(str(first['operator']))}: {calls}"


# Stages of a pipeline that have more to do than the others: what they do less of, another stage does more of.


UNEVEN_STAGES = 1.1
"""Compute of the largest stage of a pipeline over the mean; its host's need over the others'."""


def pipeline_name(number: int) -> str:
    """How findings about a pipeline call it."""
    return f"pipeline {number}"


def heavy_stage(rank: int, pipeline: Pipeline, uneven_times: float) -> str | None:
    """The pipeline whose largest stage the rank is, where it computes so many times the mean; else `None`."""
    table = pipeline.table
    own = table[table["rank"] == rank] if len(table) else table
    if own.empty:
        return None
    number = int(own["pipeline"].iloc[0])
    compute = table.loc[table["pipeline"] == number].set_index("rank")["compute_ns"].astype("float64")
    is_heavy = compute.idxmax() == rank and compute[rank] >= uneven_times * compute.mean()
    return pipeline_name(number) if is_heavy else None


def even_changes(stages: pd.DataFrame) -> list[Change]:
    """What makes each stage of these pipelines, its host's work with it, as long as the mean stage of its own."""
    compute = stages["compute_ns"].astype("int64")
    mean = compute.groupby(stages["pipeline"]).transform("mean")
    return [
        Change("rank", float(of / ns), frozenset({int(rank)}))
        for rank, of, ns in zip(stages["rank"], mean, compute, strict=True)
        if ns
    ]


def even_gain(
    row: Mapping[str, Any],
    pipeline: Pipeline,
    operators: Operators,
    replay: Replay,
    *,
    uneven_times: float,
    busy_times: float,
) -> Gain | None:
    """Of a late host what even stages gain, where its stage's size explains why it is late; else `None`.

    So it is where its rank computes longest of its pipeline, and its host makes as many more calls as it needs longer.
    """
    late, own_ns, peers_ns = numbers(row["ranks"]), row["own_host_ns"], row["peers_host_ns"]
    if row["cause"] != HOST.key or not own_ns or not peers_ns:
        return None
    if heavy_stage(late[0], pipeline, uneven_times) is None:
        return None
    busy = more_calls(operators, late[0], busy_times)
    if busy is None or not {*late} <= {*busy.ranks} or busy.times - 1 < MOSTLY * (own_ns / peers_ns - 1):
        return None
    table = pipeline.table
    number = table.loc[table["rank"] == late[0], "pipeline"].iloc[0]
    return gain_of(replay, *even_changes(rows_where(table, table["pipeline"] == number)))
