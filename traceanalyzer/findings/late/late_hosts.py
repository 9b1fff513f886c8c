"""What to do about a late host, by what the table of operators says of it: more calls, or the same ones slower."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.host.host_names import AUTOGRAD_NODE, is_autograd_node, is_framework_range
from traceanalyzer.analyses.host.host_work import OPERATOR, HostWork
from traceanalyzer.analyses.host.thread_roles import COLLECTIVES, MAIN
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.findings.late.beside import MoreCalls, more_calls, slow_host
from traceanalyzer.findings.late.late_advice import ADVICE, CPU, OF_HOST
from traceanalyzer.findings.late.late_words import COMPUTED, who
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import digits
from traceanalyzer.meaning.sentences import first_upper
from traceanalyzer.meaning.vocabulary import HOST
from traceanalyzer.model.tables import rows_where

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
