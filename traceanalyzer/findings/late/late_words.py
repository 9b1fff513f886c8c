"""What is said of an episode of lateness: who, when, by what, who waits, and what mending it gains."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from traceanalyzer.analyses.blame.what_ran import OTHER_PROCESS
from traceanalyzer.analyses.host.host_activity import NOTHING
from traceanalyzer.analyses.host.other_threads import BESIDE
from traceanalyzer.findings.late.when import Recorded, when
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.names import collective_words, short_name
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.sentences import first_upper
from traceanalyzer.meaning.vocabulary import BETWEEN_KERNELS, DATA, HOST, LAUNCH, SYNC
from traceanalyzer.meaning.wholes import rate, whole

_UNRECORDED = "Python or other code that no range, operator or call of the trace covers"

_IN_TURN = " in turn, each in other steps"

_TIMES = 2.0
"""From so many times as long on a per cent is no measure."""

COMPUTED = "computed_by_host"
"""What is added to an episode whose late host computes what the others' do not: operators, and their times a step."""


def title(row: Mapping[str, Any], recorded: Recorded) -> Title:
    """One sentence on the lateness, and one on what mending it gains."""
    return Title(f"{first_upper(late(row, recorded))} {waited(row)}.", *_gains(row, recorded))


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
        is_alike = row["is_in_every_step"] and len(numbers(row["numbers"])) > 1 and not row["most_numbers"]
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
