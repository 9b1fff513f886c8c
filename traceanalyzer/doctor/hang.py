"""Where a hung job's ranks stand: who never came to a collective, who came with another one."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.doctor.flight_recorder import FlightRecorder, Group

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
    """Where all ranks stand: `absences`, `mismatches` and, of each group and rank, the `last` collective."""

    last: pd.DataFrame
    absences: tuple[Absence, ...]
    mismatches: tuple[Mismatch, ...]


def standing(recorder: FlightRecorder) -> Standing:
    """All that the dumps tell of a hang."""
    return Standing(last_calls(recorder), tuple(absences(recorder)), tuple(mismatches(recorder)))


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
