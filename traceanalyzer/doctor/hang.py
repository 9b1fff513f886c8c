"""Where a hung job's ranks stand, by the flight recorder: who never came, who called something else."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from traceanalyzer.doctor.case import Facts, operation_words
from traceanalyzer.doctor.flight_recorder import EVENTS, FlightRecorder, Group

_UNEVEN = ("all_to_all", "alltoall", "scatter", "gather", "all_gather_v", "reduce_scatter_v", "barrier")
"""Operations whose ranks may rightly differ in sizes."""


@dataclass(frozen=True, slots=True)
class Absence:
    """A collective that some ranks of a group never called.

    Attributes:
        group: the process group.
        call: the first such call, a row of the recorder's entries.
        came: ranks that called it and did not complete it.
        missing: ranks with a dump that did not call it.
        undumped: ranks of the group that left no dump.
        last: of each missing rank, what it did last in the group: rows of the recorder's entries.
        timeout_ms: the group's limit; `None` where no dump has it.
    """

    group: Group
    call: Any
    came: tuple[int, ...]
    missing: tuple[int, ...]
    undumped: tuple[int, ...]
    last: tuple[Any, ...]
    timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A collective that ranks of a group called differently.

    Attributes:
        group: the process group.
        seq: number of the collective.
        what: `operation`, `sizes` or `dtypes`.
        usual: what most ranks have.
        agreeing: how many.
        is_even: as many have something else, alike.
        others: rank → what it has instead.
        calls: of these ranks the first calls, rows of the recorder's entries.
    """

    group: Group
    seq: int
    what: str
    usual: str
    agreeing: int
    is_even: bool
    others: dict[int, str]
    calls: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where all ranks stand by a recorder: `absences`, `mismatches` and, of each group and rank, the `last` call."""

    recorder: FlightRecorder
    last: pd.DataFrame
    absences: tuple[Absence, ...]
    mismatches: tuple[Mismatch, ...]


def standing(recorder: FlightRecorder) -> Standing:
    """All that the dumps show of a hang."""
    calls = recorder.entries[~recorder.entries["is_p2p"]]
    last = calls.sort_values(["group", "rank", "seq", "entry"], kind="stable")
    last = last.groupby(["group", "rank"], observed=True).tail(1).reset_index(drop=True)
    return Standing(recorder, last, tuple(absences(recorder, last)), tuple(mismatches(recorder)))


def absences(recorder: FlightRecorder, last: pd.DataFrame) -> list[Absence]:
    """Of each group the first collective that is not complete and that not all of its ranks called."""
    calls = recorder.open_collectives
    dumped = set(recorder.dumps)
    found = []
    for key, own in last.groupby("group", sort=False, observed=True):
        group = recorder.groups[str(key)]
        seq_of = dict(zip(own["rank"], own["seq"], strict=True))
        expected = set(group.ranks or seq_of)
        undumped = tuple(sorted(expected - dumped))
        for seq, at in calls[calls["group"] == key].groupby("seq"):
            missing = tuple(sorted(rank for rank in expected & dumped if seq_of.get(rank, -1) < seq))
            if missing or undumped:
                came = tuple(sorted(at["rank"].unique().tolist()))
                behind = tuple(own[own["rank"].isin(missing)].itertuples())
                limit = None if at["timeout_ms"].isna().all() else int(at["timeout_ms"].max())
                found.append(Absence(group, next(at.itertuples()), came, missing, undumped, behind, limit))
                break
    return sorted(found, key=lambda one: (not one.missing, *_time(one.call)))


def _time(call: Any) -> tuple[bool, int]:
    """Orders calls by time, those of an unknown time last."""
    return (True, 0) if pd.isna(call.created_ns) else (False, call.created_ns)


def mismatches(recorder: FlightRecorder) -> Iterator[Mismatch]:
    """Collectives whose operation, sizes or dtypes differ between ranks; of each group the first of each kind."""
    calls = recorder.entries[~recorder.entries["is_p2p"] & (recorder.entries["seq"] >= 0)]
    calls = calls[~calls.duplicated(["group", "seq", "rank"], keep=False)]  # coalesced operations share a number
    kinds = calls.groupby(["group", "seq"], observed=True)["operation"].transform("nunique")
    is_uneven = calls["operation"].astype(str).str.lower().str.startswith(_UNEVEN)
    # Another operation has other sizes: that is one mismatch, not two.
    compared = {"operation": calls, "sizes": calls[(kinds == 1) & ~is_uneven], "dtypes": calls[kinds == 1]}
    for what, table in compared.items():
        counts = table.groupby(["group", "seq"], sort=False, observed=True)[what].nunique()
        differ = counts[counts > 1].reset_index().sort_values("seq").drop_duplicates("group")
        for group, seq in zip(differ["group"], differ["seq"], strict=True):
            own = table[(table["group"] == group) & (table["seq"] == seq)]
            values = own[what].astype(str)
            counts = values.value_counts()
            others = own.assign(value=values)[values != counts.index[0]].sort_values("rank")
            words = operation_words if what == "operation" else str
            yield Mismatch(
                group=recorder.groups[str(group)],
                seq=int(seq),
                what=what,
                usual=words(counts.index[0]),
                agreeing=int(counts.iloc[0]),
                is_even=counts.iloc[0] == counts.iloc[1],
                others=dict(zip(others["rank"].tolist(), map(words, others["value"]), strict=True)),
                calls=tuple(others.head(8).itertuples()),
            )


def rank_never_came(standing: Standing) -> Iterator[Facts]:
    """Of each process group the first collective that some ranks never called."""
    for one in standing.absences:
        if one.missing:
            silent = sorted({*one.missing} - {row.rank for row in one.last})
            at = standing.recorder.where(one.call)
            last_at = standing.recorder.where(one.last[0]) if one.last else ""
            yield {"one": one, "silent": silent, "at": at, "last_at": last_at, "ranks": one.missing}


def mismatched_calls(standing: Standing) -> Iterator[Facts]:
    """Ranks that called another operation, size or dtype under one number."""
    for one in standing.mismatches:
        shown = [f"rank {rank}: {value}" for rank, value in one.others.items()]
        places = ((call.rank, place) for call in one.calls if (place := standing.recorder.where(call)))
        yield {"one": one, "shown": shown[:6], "at": next(places, None), "ranks": tuple(one.others)}


def no_entries(recorder: FlightRecorder) -> Iterator[Facts]:
    """Dumps without any call."""
    if not recorder.entries.empty:
        return
    numbers: list[str] = []
    behind: set[int] = set()
    for name, ranks in recorder.last.items():
        enqueued = {rank: own[0] for rank, own in ranks.items() if own[0] is not None}
        behind |= {rank for rank, number in enqueued.items() if number < max(enqueued.values())}
        numbers += [
            f"rank {rank} of group {name} last " + ", ".join(map("{} {}".format, EVENTS, own))
            for rank, own in list(ranks.items())[:16]
        ]
    yield {"numbers": numbers, "ranks": sorted(behind)}


_CALL = re.compile(r"(send|recv) (\d{1,9})(?:->|<-)(\d{1,9})")


def open_send_recv(recorder: FlightRecorder) -> Iterator[Facts]:
    """A send or receive that waits for an end that was never called, or that both ends called in vain."""
    stuck = recorder.entries[recorder.entries["is_p2p"] & (recorder.entries["state"] != "completed")]
    calls = [
        (row, *_ends(recorder.groups[str(row.group)], call))
        for row in stuck.itertuples()
        if (call := _CALL.match(str(row.operation))) is not None
    ]
    halves = {(row.group, is_send, own, peer) for row, is_send, own, peer in calls}
    firsts = {(row.group, row.rank): (row, is_send, own, peer) for row, is_send, own, peer in calls[::-1]}
    early = sorted(firsts.values(), key=lambda one: (*_time(one[0]), one[0].Index))
    ordered = sorted(early, key=lambda one: (one[0].group, not one[1], one[3], one[2]) in halves)
    for row, is_send, own, peer in ordered[:1]:
        has_half = (row.group, not is_send, peer, own) in halves
        yield {"row": row, "is_send": is_send, "peer": peer, "has_half": has_half, "all": ordered,
               "at": recorder.where(row), "ranks": (row.rank, peer)}  # fmt: skip


def _ends(group: Group, call: re.Match[str]) -> tuple[bool, int, int]:
    """Whether it sends, and the global ranks of caller and other end; `send 0->1` counts ranks in the group."""
    known = group.ranks or ()
    own, peer = (known[end] if end < len(known) else end for end in (int(call[2]), int(call[3])))
    return call[1] == "send", own, peer


def ranks_without_dump(standing: Standing) -> Iterator[Facts]:
    """Ranks of a process group that left no dump."""
    recorder = standing.recorder
    expected = {rank for group in recorder.groups.values() for rank in group.ranks or ()}
    if absent := sorted(expected - set(recorder.dumps)):
        waited = [one for one in standing.absences if one.undumped]
        yield {"waited": waited, "expected": len(expected), "ranks": absent}


def open_everywhere(standing: Standing) -> Iterator[Facts]:
    """A collective that all ranks called alike, and that did not complete."""
    stuck = standing.recorder.open_collectives
    if not (stuck.empty or standing.absences or standing.mismatches):
        first = next(stuck.itertuples())
        yield {"first": first, "own": stuck[(stuck["group"] == first.group) & (stuck["seq"] == first.seq)]}


def recorder_in_words(recorder: FlightRecorder) -> Iterator[Facts]:
    """A flight recorder in which everything is complete."""
    if not recorder.entries.empty and (recorder.entries["state"] == "completed").all():
        yield {}
