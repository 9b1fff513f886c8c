"""Where a hung job's ranks stand, by the flight recorder: who never came, who called something else."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pandas as pd

from traceanalyzer.doctor.case import Diagnosis
from traceanalyzer.doctor.flight_recorder import EVENTS, FlightRecorder, Group
from traceanalyzer.meaning.vocabulary import first_upper, numbered

_UNEVEN = ("all_to_all", "alltoall", "scatter", "gather", "all_gather_v", "reduce_scatter_v", "barrier")
"""Operations whose ranks may rightly differ in sizes."""


@dataclass(frozen=True, slots=True)
class Absence:
    """A collective that some ranks of a group never called.

    Attributes:
        group: the process group.
        seq: number of the collective.
        operation: what those that came called.
        sizes: its sizes there.
        dtypes: its dtypes there.
        came: ranks that called it and did not complete it.
        missing: ranks with a dump that did not call it.
        undumped: ranks of the group that left no dump.
        since_ns: when the first rank called it.
        last: of each missing rank, what it did last in the group: its collective's number, operation and state.
        frames: of the first rank that came, where in Python it called it.
        missing_frames: of the first missing rank, where its last call in the group was.
        timeout_ms: the group's limit.
    """

    group: Group
    seq: int
    operation: str
    sizes: str
    dtypes: str
    came: tuple[int, ...]
    missing: tuple[int, ...]
    undumped: tuple[int, ...]
    since_ns: int | None
    last: dict[int, tuple[int, str, str]]
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
        is_even: whether no majority tells which of the two is right.
        frames: rank that differs → where in Python it called it.
    """

    group: Group
    seq: int
    what: str
    usual: str
    others: dict[int, str]
    agreeing: int
    is_even: bool
    frames: dict[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where all ranks stand by a recorder: `absences`, `mismatches` and, of each group and rank, the `last` call."""

    recorder: FlightRecorder
    last: pd.DataFrame
    absences: tuple[Absence, ...]
    mismatches: tuple[Mismatch, ...]


def standing(recorder: FlightRecorder) -> Standing:
    """All that the dumps tell of a hang."""
    return Standing(recorder, last_calls(recorder), tuple(absences(recorder)), tuple(mismatches(recorder)))


def last_calls(recorder: FlightRecorder) -> pd.DataFrame:
    """The last collective of each rank in each group: `group`, `rank`, `seq`, `operation`, `state`, `sizes`."""
    calls = recorder.entries[~recorder.entries["is_p2p"]]
    last = (
        calls.sort_values(["group", "rank", "seq", "entry"], kind="stable")
        .groupby(["group", "rank"], observed=True)
        .tail(1)
    )
    return last.reset_index(drop=True)


def absences(recorder: FlightRecorder) -> list[Absence]:
    """Of each group the first collective that is not complete and that not all of its ranks called."""
    last = last_calls(recorder)
    calls = recorder.entries[~recorder.entries["is_p2p"]]
    found = []
    for key, own in last.groupby("group", sort=False, observed=True):
        group = recorder.groups[str(key)]
        open_calls = calls[(calls["group"] == key) & (calls["state"] != "completed")]
        if open_calls.empty:
            continue
        behind_of = own.set_index("rank")["seq"]
        expected = set(group.ranks) if group.ranks is not None else set(behind_of.index)
        dumped = set(recorder.dumps)
        seqs = sorted(open_calls["seq"].unique().tolist())
        for seq in seqs:
            came = behind_of.index[behind_of >= seq].tolist()
            missing = sorted((expected & dumped) - set(came))
            undumped = sorted(expected - dumped)
            if missing or undumped:
                at = open_calls[open_calls["seq"] == seq]
                found.append(_absence(recorder, group, at, own, missing, undumped))
                break
    return sorted(found, key=lambda one: (not one.missing, one.since_ns is None, one.since_ns or 0))


def _absence(
    recorder: FlightRecorder, group: Group, at: pd.DataFrame, last: pd.DataFrame, missing: list[int],
    undumped: list[int],
) -> Absence:  # fmt: skip
    first = at.sort_values("created_ns", na_position="last", kind="stable").iloc[0]
    rows = last[last["rank"].isin(missing)]
    standing = {
        int(rank): (int(seq), str(operation), str(state))
        for rank, seq, operation, state in zip(rows["rank"], rows["seq"], rows["operation"], rows["state"], strict=True)
    }
    behind = rows.iloc[0] if len(rows) else None
    created = at["created_ns"].dropna()
    limits = at["timeout_ms"].dropna()
    return Absence(
        group=group,
        seq=int(first["seq"]),
        operation=str(first["operation"]),
        sizes=str(first["sizes"]),
        dtypes=str(first["dtypes"]),
        came=tuple(sorted(at["rank"].unique().tolist())),
        missing=tuple(missing),
        undumped=tuple(undumped),
        since_ns=int(created.min()) if len(created) else None,
        last=standing,
        frames=tuple(recorder.frames_of(int(first["rank"]), int(first["entry"]))),
        missing_frames=() if behind is None else tuple(recorder.frames_of(int(behind["rank"]), int(behind["entry"]))),
        timeout_ms=int(limits.max()) if len(limits) else None,
    )


def mismatches(recorder: FlightRecorder) -> list[Mismatch]:
    """Collectives whose operation, sizes or dtypes differ between ranks; of each group the first of each kind."""
    calls = recorder.entries[~recorder.entries["is_p2p"] & (recorder.entries["seq"] >= 0)]
    coalesced = calls.duplicated(["group", "seq", "rank"], keep=False)  # several operations share a number
    calls = calls[~coalesced]
    found = []
    for what in ("operation", "sizes", "dtypes"):
        compared = calls
        if what == "sizes":
            compared = calls[~calls["operation"].isin(_uneven(calls["operation"].cat.categories))]
        if what != "operation":  # another operation has other sizes: said once
            kinds = compared.groupby(["group", "seq"], observed=True)["operation"].transform("nunique")
            compared = compared[kinds == 1]
        differ = compared.groupby(["group", "seq"], sort=False, observed=True)[what].nunique()
        bad = differ[differ > 1].reset_index().sort_values("seq").drop_duplicates("group")
        found += [
            _mismatch(recorder, str(group), int(seq), what, compared)
            for group, seq in zip(bad["group"], bad["seq"], strict=True)
        ]
    return found


def _uneven(operations: Iterable[str]) -> list[str]:
    return [name for name in operations if name.lower().startswith(_UNEVEN)]


def _mismatch(recorder: FlightRecorder, group: str, seq: int, what: str, calls: pd.DataFrame) -> Mismatch:
    own = calls[(calls["group"] == group) & (calls["seq"] == seq)]
    counts = own[what].astype(str).value_counts()
    usual = str(counts.index[0])
    others = own[own[what] != usual].sort_values("rank")
    return Mismatch(
        group=recorder.groups[group],
        seq=seq,
        what=what,
        usual=usual,
        others=dict(zip(others["rank"].tolist(), others[what].astype(str), strict=True)),
        agreeing=int(counts.iloc[0]),
        is_even=bool(counts.iloc[0] == counts.iloc[1]),
        frames={
            rank: tuple(recorder.frames_of(rank, entry))
            for rank, entry in zip(others["rank"].tolist()[:8], others["entry"].tolist()[:8], strict=True)
        },
    )


_CALL = re.compile(r"(send|recv) (\d{1,9})(?:->|<-)(\d{1,9})")


def _ends(group: Group, call: re.Match[str]) -> tuple[bool, int, int]:
    """Whether it sends, and the global ranks of caller and other end; `send 0->1` counts ranks in the group."""
    ends = [int(call[2]), int(call[3])]
    known = group.ranks
    own, peer = (known[end] if known is not None and end < len(known) else end for end in ends)
    return call[1] == "send", own, peer


_TORCH = ("torch/", "distributed_c10d.py", "c10d_logger.py", "_functional_collectives.py")


def rank_never_came(standing: Standing) -> Iterator[Diagnosis]:
    """Of each process group the first collective that some ranks never called."""
    yield from (_never_came(one) for one in standing.absences if one.missing)


def _never_came(one: Absence) -> Diagnosis:
    who = numbered("rank", one.missing)
    since = "" if one.since_ns is None else f" since {_time(one.since_ns)}"
    last = "; ".join(f"rank {rank} last called {_named(operation)} number {seq} ({state})"
                     for rank, (seq, operation, state) in list(one.last.items())[:4])  # fmt: skip
    silent = [rank for rank in one.missing if rank not in one.last]
    if silent:
        last = "; ".join(
            part for part in (last, f"{numbered('rank', silent)} recorded no collective in this group") if part
        )
    where = f" It is called at {_user_frame(one.frames)}." if one.frames else ""
    there = f" The last call of rank {one.missing[0]} in the group was at {_user_frame(one.missing_frames)}." * bool(
        one.missing_frames
    )
    size = f" of {one.sizes.split(' → ', maxsplit=1)[0]} {one.dtypes.split(' → ', maxsplit=1)[0]}".rstrip()
    limit = f" (limit {one.timeout_ms / 1000:g} s)" if one.timeout_ms is not None else ""
    waiting, verb = numbered("rank", one.came), "waits" if len(one.came) == 1 else "wait"
    called = f"{_named(one.operation)} number {one.seq}"
    return Diagnosis(
        diagnosis=f"{first_upper(who)} never called {called} of {one.group.label}{since}: {waiting} {verb} there."
        f"{where}",
        signal=f"{called}{size} is not complete on {waiting}{limit}; {last}.{there}",
        recommendation=f"Look at what {who} did after that call: an exception, an early end of its data, a branch that "
        "skips the collective, a slow save or load. py-spy dump on that process shows it while it hangs.",
        ranks=one.missing,
    )


def mismatched_calls(standing: Standing) -> Iterator[Diagnosis]:
    """Ranks that called another operation, size or dtype under one number."""
    yield from map(_called_differently, standing.mismatches)


def _called_differently(one: Mismatch) -> Diagnosis:
    ranks = tuple(one.others)
    shown = "; ".join(f"rank {rank}: {_value_text(one.what, value)}" for rank, value in list(one.others.items())[:6])
    frames = next(((rank, frames) for rank, frames in one.frames.items() if frames), None)
    where = f" Rank {frames[0]} calls it at {_user_frame(frames[1])}." if frames else ""
    usual = f"{one.agreeing} {'rank has' if one.agreeing == 1 else 'ranks have'} {_value_text(one.what, one.usual)}"
    caveat = (
        "As many ranks have the one as the other: which is right is unknown."
        if one.is_even
        else "The majority is taken to be right."
    )
    what = {"operation": "another operation", "sizes": "other sizes", "dtypes": "other dtypes"}[one.what]
    who = numbered("rank", ranks)
    return Diagnosis(
        diagnosis=f"{first_upper(who)} called collective number {one.seq} of {one.group.label} with {what} than the "
        f"others: {shown}, where {usual}.{where}",
        signal=f"Under number {one.seq} the dumps have {usual}; {shown}.",
        caveat=caveat + " Numbers count calls of each rank: after one call too many or too few all later ones differ.",
        ranks=ranks,
    )


def no_entries(recorder: FlightRecorder) -> Iterator[Diagnosis]:
    """Dumps without any call."""
    if not recorder.entries.empty:
        return
    bad = len(recorder.notes)
    told = []
    behind = set()
    for name, ranks in recorder.last.items():
        launched = {rank: numbers[0] for rank, numbers in ranks.items() if numbers[0] is not None}
        behind |= {rank for rank, number in launched.items() if number < max(launched.values())}
        told += [f"rank {rank} of group {name} last "
                 + ", ".join(f"{event} {number}" for event, number in zip(EVENTS, numbers, strict=True))
                 for rank, numbers in list(ranks.items())[:16]]  # fmt: skip
    yield Diagnosis(
            severity="high" if behind else "medium",
            diagnosis=(f"{first_upper(numbered('rank', behind))} launched fewer collectives than the others; the dumps"
                       if behind else "The flight recorder's dumps")
            + f" hold no entries ({numbered('rank', recorder.ranks)})"
            + (f"; {bad} more could not be read." if bad else "."),
            signal=(f"{first_upper('; '.join(told))}. " if told else "")
            + "The recorder was off (TORCH_FR_BUFFER_SIZE=0), or no collective ran before the dump. "
            "A truncated file is of a process that ended while it wrote.",

            ranks=tuple(sorted(behind)),
    )  # fmt: skip


def open_send_recv(recorder: FlightRecorder) -> Iterator[Diagnosis]:
    """A send or receive that waits for an end that was never called, or that both ends called in vain."""
    entries = recorder.entries
    stuck = entries[entries["is_p2p"] & (entries["state"] != "completed")]
    calls = [
        (str(row.group), row, *_ends(recorder.groups[str(row.group)], call))
        for row in stuck.itertuples()
        if (call := _CALL.match(str(row.operation))) is not None
    ]
    if not calls:
        return
    halves = {(group, is_send, own, peer) for group, _, is_send, own, peer in calls}
    firsts = {(group, row.rank): (group, row, is_send, own, peer) for group, row, is_send, own, peer in calls[::-1]}
    ordered = [firsts[key] for key in dict.fromkeys((group, row.rank) for group, row, *_ in calls)]
    ordered.sort(key=lambda one: ((one[0], not one[2], one[4], one[3]) in halves, _moment(one[1].created_ns)))
    group, row, is_send, own, peer = ordered[0]
    kind, other = ("send to", "receive") if is_send else ("receive from", "send")
    since = "" if pd.isna(row.created_ns) else f" since {_time(int(row.created_ns))}"
    if peer not in recorder.dumps:
        why = f"rank {peer} left no dump"
    elif (group, not is_send, peer, own) in halves:
        why = f"rank {peer} has called its half too, and neither completes"
    else:
        why = f"rank {peer} has no open {other} for it: it never called it, or has completed it"
    frames = tuple(recorder.frames_of(row.rank, row.entry))
    where = f" It is called at {_user_frame(frames)}." if frames else ""
    yield Diagnosis(
        diagnosis=f"Rank {row.rank} waits in a {kind} rank {peer} of {recorder.groups[group].label}{since}: "
        f"{why}.{where}",
        signal=f"Sends or receives that are not complete on {numbered('rank', [one[1].rank for one in ordered])}; of "
        "each rank the first: "
        + "; ".join(f"rank {one[1].rank} {'to' if one[2] else 'from'} {one[4]}" for one in ordered[:8])
        + ".",
        recommendation=f"Look at rank {peer} first: what it does instead, and whether both sides agree on "
        "the order of sends and receives (a schedule's microbatches, a send that needs its receive posted).",
        ranks=(row.rank, peer),
    )


def _moment(created_ns: int | None) -> tuple[bool, int]:
    """For sorting: what is not known comes last."""
    return (True, 0) if pd.isna(created_ns) else (False, int(created_ns or 0))


def ranks_without_dump(standing: Standing) -> Iterator[Diagnosis]:
    """Ranks of a process group that left no dump."""
    recorder = standing.recorder
    expected = {rank for group in recorder.groups.values() for rank in group.ranks or ()}
    absent = tuple(sorted(expected - set(recorder.dumps)))
    if not absent:
        return
    waited = [one for one in standing.absences if one.undumped]
    first = f" {_first_open(waited[0])}" if waited else ""
    who = numbered("rank", absent)
    they = "it" if len(absent) == 1 else "they"
    died = f"{first_upper(who)} left no dump: {they} may have died before the others hung."
    yield Diagnosis(
        severity="high" if waited and not any(one.missing for one in waited) else "medium",
        diagnosis=f"{died}{first}",
        signal=f"{len(recorder.dumps)} dumps for {len(expected)} ranks of the process groups.",
        recommendation=f"Look at the output of {who}: a crash, an out-of-memory kill, a lost node.",
        ranks=absent,
    )


def _first_open(one: Absence) -> str:
    return f"{_named(one.operation).capitalize()} number {one.seq} of {one.group.label} is the first not complete."


def open_everywhere(standing: Standing) -> Iterator[Diagnosis]:
    """A collective that all ranks called alike, and that did not complete."""
    calls = standing.recorder.entries
    stuck = calls[(calls["state"] != "completed") & ~calls["is_p2p"]]
    if stuck.empty or standing.absences or standing.mismatches:
        return
    first = stuck.sort_values("created_ns", na_position="last", kind="stable").iloc[0]
    group = standing.recorder.groups[str(first["group"])]
    own = stuck[(stuck["group"] == first["group"]) & (stuck["seq"] == first["seq"])]
    called = f"{_named(str(first['operation']))} number {first['seq']} of {group.label}"
    states = ", ".join(f"{count} × {state}" for state, count in own["state"].value_counts().items())
    yield Diagnosis(
        diagnosis=f"All ranks called {called} alike, and on {numbered('rank', own['rank'].tolist())} it is not "
        "complete: the program is in step, the transfer is not.",
        signal=f"Every rank of the group has the call; states: {states}.",
    )


def _named(operation: str) -> str:
    return operation.strip("_").replace("_", "-") or "a collective"


def _value_text(what: str, value: str) -> str:
    return _named(value) if what == "operation" else value


def _user_frame(frames: tuple[str, ...]) -> str:
    """The innermost frame that is not PyTorch's own."""
    own = (frame for frame in frames if not any(part in frame for part in _TORCH))
    return next(own, frames[0] if frames else "an unknown place")


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def recorder_in_words(recorder: FlightRecorder) -> Iterator[Diagnosis]:
    """A flight recorder in which everything is complete."""
    if recorder.entries.empty or (recorder.entries["state"] != "completed").any():
        return
    yield Diagnosis(
        diagnosis=f"The flight recorder of {len(recorder.dumps)} ranks has {len(recorder.entries):,} "
        f"calls, and "
        "all are complete: nothing hung when it was written.",
    )
