"""Where a hung job's ranks stand, by the flight recorder: who never came, who called something else."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from traceanalyzer.doctor.case import Diagnosis, operation_words
from traceanalyzer.doctor.flight_recorder import EVENTS, FlightRecorder, Group
from traceanalyzer.meaning.vocabulary import first_upper, numbered

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
        since_ns: when the first rank called it.
        last: of each missing rank, what it did last in the group: rows of the recorder's entries.
        frames: of the first rank that came, where in Python it called it.
        missing_frames: of the first missing rank, where its last call in the group was.
        timeout_ms: the group's limit.
    """

    group: Group
    call: Any
    came: tuple[int, ...]
    missing: tuple[int, ...]
    undumped: tuple[int, ...]
    since_ns: int | None
    last: tuple[Any, ...]
    frames: tuple[str, ...]
    missing_frames: tuple[str, ...]
    timeout_ms: int | None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A collective that ranks of a group called differently.

    Attributes:
        group: the process group.
        seq: number of the collective.
        what: `operation`, `sizes` or `dtypes`.
        usual: what most ranks have.
        others: rank → what it has instead.
        agreeing: ranks that have the usual.
        frames: rank that differs → where in Python it called it.
    """

    group: Group
    seq: int
    what: str
    usual: str
    others: dict[int, str]
    agreeing: int
    frames: dict[int, tuple[str, ...]]


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
    calls = recorder.entries[~recorder.entries["is_p2p"] & (recorder.entries["state"] != "completed")]
    calls = calls.sort_values("created_ns", na_position="last", kind="stable")
    found = []
    for key, own in last.groupby("group", sort=False, observed=True):
        group = recorder.groups[str(key)]
        seq_of = dict(zip(own["rank"], own["seq"], strict=True))
        expected = set(seq_of if group.ranks is None else group.ranks)
        undumped = tuple(sorted(expected - set(recorder.dumps)))
        for seq, at in calls[calls["group"] == key].groupby("seq"):
            missing = tuple(sorted(rank for rank in expected & set(recorder.dumps) if seq_of.get(rank, -1) < seq))
            if missing or undumped:
                call = next(at.itertuples())
                behind = tuple(own[own["rank"].isin(missing)].itertuples())
                found.append(
                    Absence(
                        group,
                        call,
                        came=tuple(sorted(at["rank"].unique().tolist())),
                        missing=missing,
                        undumped=undumped,
                        since_ns=None if pd.isna(call.created_ns) else int(call.created_ns),
                        last=behind,
                        frames=recorder.frames_of(call.rank, call.entry),
                        missing_frames=recorder.frames_of(behind[0].rank, behind[0].entry) if behind else (),
                        timeout_ms=None if at["timeout_ms"].isna().all() else int(at["timeout_ms"].max()),
                    )
                )
                break
    return sorted(found, key=lambda one: (not one.missing, one.since_ns is None, one.since_ns or 0))


def mismatches(recorder: FlightRecorder) -> Iterator[Mismatch]:
    """Collectives whose operation, sizes or dtypes differ between ranks; of each group the first of each kind."""
    calls = recorder.entries[~recorder.entries["is_p2p"] & (recorder.entries["seq"] >= 0)]
    calls = calls[~calls.duplicated(["group", "seq", "rank"], keep=False)]  # coalesced operations share a number
    kinds = calls.groupby(["group", "seq"], observed=True)["operation"].transform("nunique")
    is_uneven = calls["operation"].astype(str).str.lower().str.startswith(_UNEVEN)
    # Another operation has other sizes: that is one mismatch, not two.
    compared = {"operation": calls, "sizes": calls[(kinds == 1) & ~is_uneven], "dtypes": calls[kinds == 1]}
    for what, table in compared.items():
        differ = table.groupby(["group", "seq"], sort=False, observed=True)[what].nunique()
        for group, seq in differ[differ > 1].reset_index().sort_values("seq").drop_duplicates("group")[
            ["group", "seq"]
        ].itertuples(index=False):  # fmt: skip
            own = table[(table["group"] == group) & (table["seq"] == seq)]
            counts = own[what].astype(str).value_counts()
            others = own[own[what] != counts.index[0]].sort_values("rank")
            yield Mismatch(
                group=recorder.groups[str(group)],
                seq=int(seq),
                what=what,
                usual=str(counts.index[0]),
                others=dict(zip(others["rank"].tolist(), others[what].astype(str), strict=True)),
                agreeing=int(counts.iloc[0]),
                frames={row.rank: recorder.frames_of(row.rank, row.entry) for row in others.head(8).itertuples()},
            )


def rank_never_came(standing: Standing) -> Iterator[Diagnosis]:
    """Of each process group the first collective that some ranks never called."""
    yield from (_never_came(one) for one in standing.absences if one.missing)


def _never_came(one: Absence) -> Diagnosis:
    who, waiting = numbered("rank", one.missing), numbered("rank", one.came)
    called = f"{operation_words(one.call.operation)} number {one.call.seq}"
    silent = sorted({*one.missing} - {row.rank for row in one.last})
    last = [f"rank {row.rank} last called {operation_words(row.operation)} number {row.seq} ({row.state})"
            for row in one.last[:4]]  # fmt: skip
    last += [f"{numbered('rank', silent)} recorded no collective in this group"] if silent else []
    size = " ".join(text.split(" → ", maxsplit=1)[0] for text in (one.call.sizes, one.call.dtypes))
    limit = f" (limit {one.timeout_ms / 1000:g} s)" if one.timeout_ms is not None else ""
    where = f" The call is at {_user_frame(one.frames)}." if one.frames else ""
    there = f" The last call of rank {one.missing[0]} in the group was at {_user_frame(one.missing_frames)}."
    return Diagnosis(
        diagnosis=f"{first_upper(who)} never called {called} of {one.group.label}{_since(one.since_ns)}: {waiting} "
        f"{'waits' if len(one.came) == 1 else 'wait'} there.{where}",
        signal=f"{called} of {size.rstrip()} is not complete on {waiting}{limit}; {'; '.join(last)}."
        f"{there if one.missing_frames else ''}",
        recommendation=f"Look at what {who} did after that call: an exception, an early end of its data, a branch that "
        "skips the collective, a slow save or load. py-spy dump on that process shows it while it hangs.",
        ranks=one.missing,
    )


def mismatched_calls(standing: Standing) -> Iterator[Diagnosis]:
    """Ranks that called another operation, size or dtype under one number."""
    for one in standing.mismatches:
        values = {rank: _value_text(one.what, value) for rank, value in one.others.items()}
        shown = "; ".join(f"rank {rank}: {value}" for rank, value in list(values.items())[:6])
        calls = (f" Rank {rank} calls it at {_user_frame(frames)}." for rank, frames in one.frames.items() if frames)
        usual = f"{one.agreeing} {'rank has' if one.agreeing == 1 else 'ranks have'} {_value_text(one.what, one.usual)}"
        is_even = one.agreeing == max(list(one.others.values()).count(value) for value in one.others.values())
        what = {"operation": "another operation", "sizes": "other sizes", "dtypes": "other dtypes"}[one.what]
        yield Diagnosis(
            diagnosis=f"{first_upper(numbered('rank', one.others))} called collective number {one.seq} of "
            f"{one.group.label} with {what} than the others: {shown}, where {usual}.{next(calls, '')}",
            signal=f"Under number {one.seq} the dumps have {usual}; {shown}.",
            caveat=("As many ranks have the one as the other: which is right is unknown."
                    if is_even else "The majority is taken to be right.")
            + " Numbers count calls of each rank: after one call too many or too few all later ones differ.",
            ranks=tuple(one.others),
        )  # fmt: skip


def no_entries(recorder: FlightRecorder) -> Iterator[Diagnosis]:
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
    dumps = "dumps hold no entries ({})".format(numbered("rank", recorder.ranks))
    yield Diagnosis(
        severity="high" if behind else "medium",
        diagnosis=(f"{first_upper(numbered('rank', behind))} launched fewer collectives than the others; the {dumps}"
                   if behind else f"The flight recorder's {dumps}")
        + (f"; {len(recorder.notes)} more could not be read." if recorder.notes else "."),
        signal=(f"{first_upper('; '.join(numbers))}. " if numbers else "")
        + "The recorder was off (TORCH_FR_BUFFER_SIZE=0), or no collective ran before the dump. "
        "A truncated file is of a process that ended while it wrote.",
        ranks=tuple(sorted(behind)),
    )  # fmt: skip


_CALL = re.compile(r"(send|recv) (\d{1,9})(?:->|<-)(\d{1,9})")


def open_send_recv(recorder: FlightRecorder) -> Iterator[Diagnosis]:
    """A send or receive that waits for an end that was never called, or that both ends called in vain."""
    stuck = recorder.entries[recorder.entries["is_p2p"] & (recorder.entries["state"] != "completed")]
    calls = [
        (row, *_ends(recorder.groups[str(row.group)], call))
        for row in stuck.itertuples()
        if (call := _CALL.match(str(row.operation))) is not None
    ]
    halves = {(row.group, is_send, own, peer) for row, is_send, own, peer in calls}
    firsts = {(row.group, row.rank): (row, is_send, own, peer) for row, is_send, own, peer in calls[::-1]}
    early = sorted(firsts.values(), key=lambda one: (pd.isna(one[0].created_ns), one[0].created_ns, one[0].Index))
    ordered = sorted(early, key=lambda one: (one[0].group, not one[1], one[3], one[2]) in halves)
    for row, is_send, own, peer in ordered[:1]:
        kind, other = ("send to", "receive") if is_send else ("receive from", "send")
        if peer not in recorder.dumps:
            why = f"rank {peer} left no dump"
        elif (row.group, not is_send, peer, own) in halves:
            why = f"rank {peer} has called its half too, and neither completes"
        else:
            why = f"rank {peer} has no open {other} for it: it never called it, or has completed it"
        frames = recorder.frames_of(row.rank, row.entry)
        where = f" The call is at {_user_frame(frames)}." if frames else ""
        yield Diagnosis(
            diagnosis=f"Rank {row.rank} waits in a {kind} rank {peer} of {recorder.groups[str(row.group)].label}"
            f"{_since(row.created_ns)}: {why}.{where}",
            signal=f"Sends or receives that are not complete on {numbered('rank', [one[0].rank for one in ordered])}; "
            "of each rank the first: "
            + "; ".join(f"rank {one[0].rank} {'to' if one[1] else 'from'} {one[3]}" for one in ordered[:8])
            + ".",
            recommendation=f"Look at rank {peer} first: what it does instead, and whether both sides agree on "
            "the order of sends and receives (a schedule's microbatches, a send that needs its receive posted).",
            ranks=(row.rank, peer),
        )


def _ends(group: Group, call: re.Match[str]) -> tuple[bool, int, int]:
    """Whether it sends, and the global ranks of caller and other end; `send 0->1` counts ranks in the group."""
    known = group.ranks or ()
    own, peer = (known[end] if end < len(known) else end for end in (int(call[2]), int(call[3])))
    return call[1] == "send", own, peer


def ranks_without_dump(standing: Standing) -> Iterator[Diagnosis]:
    """Ranks of a process group that left no dump."""
    recorder = standing.recorder
    expected = {rank for group in recorder.groups.values() for rank in group.ranks or ()}
    absent = tuple(sorted(expected - set(recorder.dumps)))
    waited = [one for one in standing.absences if one.undumped]
    first = "".join(
        f" {operation_words(one.call.operation).capitalize()} number {one.call.seq} of {one.group.label} is the first "
        "not complete."
        for one in waited[:1]
    )
    if absent:
        who = numbered("rank", absent)
        yield Diagnosis(
            severity="high" if waited and not any(one.missing for one in waited) else "medium",
            diagnosis=f"{first_upper(who)} left no dump: {'it' if len(absent) == 1 else 'they'} may have died before "
            f"the others hung.{first}",
            signal=f"{len(recorder.dumps)} dumps for {len(expected)} ranks of the process groups.",
            recommendation=f"Look at the output of {who}: a crash, an out-of-memory kill, a lost node.",
            ranks=absent,
        )


def open_everywhere(standing: Standing) -> Iterator[Diagnosis]:
    """A collective that all ranks called alike, and that did not complete."""
    calls = standing.recorder.entries
    stuck = calls[(calls["state"] != "completed") & ~calls["is_p2p"]]
    if stuck.empty or standing.absences or standing.mismatches:
        return
    first = stuck.sort_values("created_ns", na_position="last", kind="stable").iloc[0]
    own = stuck[(stuck["group"] == first["group"]) & (stuck["seq"] == first["seq"])]
    states = ", ".join(f"{count} × {state}" for state, count in own["state"].value_counts().items())
    yield Diagnosis(
        diagnosis=f"All ranks called {operation_words(first['operation'])} number {first['seq']} of "
        f"{standing.recorder.groups[str(first['group'])].label} alike, and on {numbered('rank', own['rank'].tolist())} "
        "it is not complete: the program is in step, the transfer is not.",
        signal=f"Every rank of the group has the call; states: {states}.",
    )


def recorder_in_words(recorder: FlightRecorder) -> Iterator[Diagnosis]:
    """A flight recorder in which everything is complete."""
    if not recorder.entries.empty and (recorder.entries["state"] == "completed").all():
        yield Diagnosis(
            diagnosis=f"The flight recorder of {len(recorder.dumps)} ranks has {len(recorder.entries):,} calls, and "
            "all are complete: nothing hung when it was written.",
        )


def _value_text(what: str, value: str) -> str:
    return operation_words(value) if what == "operation" else value


_TORCH = ("torch/", "distributed_c10d.py", "c10d_logger.py", "_functional_collectives.py")


def _user_frame(frames: tuple[str, ...]) -> str:
    """The innermost frame that is not PyTorch's own."""
    own = (frame for frame in frames if not any(part in frame for part in _TORCH))
    return next(own, frames[0])


def _since(ns: object) -> str:
    """` since 2026-01-02 03:04:05 UTC`, or nothing where the time is not known."""
    return "" if ns is None or pd.isna(ns) else f" since {datetime.fromtimestamp(ns / 1e9, UTC):%Y-%m-%d %H:%M:%S UTC}"  # type: ignore[operator]
