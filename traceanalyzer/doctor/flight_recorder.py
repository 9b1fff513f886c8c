"""PyTorch's flight recorder: each rank's collectives as one table, who never came, and who called something else."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from traceanalyzer.discovery import all_below
from traceanalyzer.doctor.knowledge import Facts, operation_words
from traceanalyzer.errors import InputError
from traceanalyzer.files import safe_pickle
from traceanalyzer.files.bounds import TOO_LARGE, memory_for
from traceanalyzer.model.schema import printable

_RANK = re.compile(r"(\d{1,9})(?:\.(?:json|pkl|pickle|txt|bin))?(?:\.gz)?$")
_GLOO_AND_THE_LIKE = re.compile(r"^\w+:")

_TORCH = ("torch/", "distributed_c10d.py", "c10d_logger.py", "_functional_collectives.py")

EVENTS = ("enqueued", "started", "completed")


@dataclass(frozen=True)  # no slots: what is looked up often is kept
class FlightRecorder:
    """The dumps of a job.

    Attributes:
        entries: one row for each call that a rank recorded: `rank`, `group` (key of `groups`), `seq`, `is_p2p`,
            `operation`, `state`, `sizes` and `dtypes` (input → output), `created_ns`, `timeout_ms`, `entry`
            (position in the rank's dump).
        groups: key → its name, description and ranks.
        dumps: rank → the dump's file.
        library_versions: rank → the version of NCCL that its dump names; absent where it names none.
        frames: (rank, entry) → Python frames of the call, innermost first; read when asked for.
        numbers: group's name → rank → numbers of its last enqueued, started and completed collective (`pg_status`).
        notes: files that could not be read, and why.
    """

    entries: pd.DataFrame
    groups: Mapping[str, "Group"]
    dumps: Mapping[int, str]
    library_versions: Mapping[int, str]
    frames: Mapping[int, Sequence[Sequence[Mapping[str, Any]]]]
    numbers: Mapping[str, Mapping[int, Sequence[int | None]]]
    notes: tuple[str, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that left a dump."""
        return tuple(sorted(self.dumps))

    @cached_property
    def open_collectives(self) -> pd.DataFrame:
        """Entries of collectives that are not complete, by the time of the call."""
        entries = self.entries[~self.entries["is_p2p"] & (self.entries["state"] != "completed")]
        return entries.sort_values("created_ns", na_position="last", kind="stable")

    @cached_property
    def last(self) -> pd.DataFrame:
        """The last collective of each group and rank."""
        calls = self.entries[~self.entries["is_p2p"]]
        last = calls.sort_values(["group", "rank", "seq", "entry"], kind="stable")
        return last.groupby(["group", "rank"], observed=True).tail(1).reset_index(drop=True)

    @cached_property
    def absences(self) -> "list[Absence]":
        """Of each group the first collective that is not complete and that not all of its ranks called."""
        return _absences(self)

    @cached_property
    def mismatches(self) -> "list[Mismatch]":
        """Collectives that ranks called differently; of each group the first in operation, sizes and dtypes."""
        return list(_mismatches(self))

    def where(self, call: Any) -> str:
        """`file:line in function` of a call (a row of `entries`): the innermost frame that is not PyTorch's own."""
        frames = [
            f"{frame.get('filename', '?')}:{frame.get('line', '?')} in {frame.get('name', '?')}"
            for frame in self.frames.get(call.rank, {call.entry: ()})[call.entry]
            if isinstance(frame, Mapping)
        ]
        return next((one for one in frames if not any(part in one for part in _TORCH)), *frames[:1] or [""])


@dataclass(frozen=True, slots=True)
class Group:
    """A process group.

    Attributes:
        name: as PyTorch numbers it.
        description: such as `default_pg`, `mesh_dp`.
        ranks: its global ranks; `None` when no dump tells them.
    """

    name: str
    description: str
    ranks: tuple[int, ...] | None

    @property
    def label(self) -> str:
        """What to call it."""
        own = f"{self.description} ({self.name})" if self.description not in {"", "undefined"} else self.name
        return f"process group {own}"


def read_flight_recorder(folder: Path, *, follows_links: bool = False) -> FlightRecorder:
    """Read a folder of dumps (`TORCH_FR_DUMP_TEMP_FILE` + rank), or one dump; pickles through a restricted reader.

    Raises:
        InputError: nothing in it is a dump.
    """
    found: dict[int, tuple[str, dict[str, Any]]] = {}
    notes = []
    with safe_pickle.without_collection():
        for path in all_below(folder, follows_links=follows_links) if folder.is_dir() else [folder]:
            try:
                with memory_for(path.stat().st_size):
                    dump = _dump(path)
            except (OSError, MemoryError) as error:
                notes.append(f"{path}: cannot be read ({getattr(error, 'strerror', TOO_LARGE)})")
                continue
            except InputError as error:
                notes.append(str(error))
                continue
            if dump is None:
                continue
            rank = _rank(path)
            if rank in found:
                notes.append(f"{path}: rank {rank} has a dump already ({found[rank][0]}); this one is not read.")
            else:
                found[rank] = (str(path), dump)
        if not found:
            why = f": {notes[0]}" if notes else ""
            raise InputError(f"{folder}: no dump of PyTorch's flight recorder in it{why}")
        return _recorder(found, tuple(notes))


def _dump(path: Path) -> dict[str, Any] | None:
    """The content of a file; `None` for files that are no dumps, such as logs."""
    with path.open("rb") as file:
        head = file.read(16)
    if head.lstrip()[:1] in {b"{", b"["}:
        try:
            content = msgspec.json.decode(path.read_bytes())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"{path}: not JSON that can be read ({error})") from error
    elif safe_pickle.is_pickle(head):
        content = safe_pickle.read(path)
    elif _RANK.search(path.name) is None or path.suffix in {".log", ".txt", ".csv", ".html"}:
        return None
    else:
        raise InputError(f"{path}: neither a pickle nor JSON")
    if isinstance(content, list):  # PyTorch 2.2 dumped the entries alone
        content = {"entries": content, "version": "1"}
    if not isinstance(content, dict) or not isinstance(content.get("entries", []), list):
        raise InputError(f"{path}: no dump of the flight recorder: it has no list of entries")
    if not {"entries", "pg_config", "pg_status"} & content.keys():
        raise InputError(f"{path}: no dump of the flight recorder: it has no entries")
    _rank(path)
    return content


def _rank(path: Path) -> int:
    found = _RANK.search(path.name)
    if found is None:
        raise InputError(f"{path}: its name does not end in the rank")
    return int(found[1])


def _recorder(found: Mapping[int, tuple[str, dict[str, Any]]], notes: tuple[str, ...]) -> FlightRecorder:
    groups: dict[str, Group] = {}
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    frames, libraries = {}, {}
    numbers: dict[str, dict[int, list[int | None]]] = {}
    for rank, (_, dump) in sorted(found.items()):
        entries = [entry for entry in dump.get("entries", ()) if isinstance(entry, dict)]
        frames[rank] = [own if isinstance(own := entry.get("frames"), list | tuple) else () for entry in entries]
        for name, values in _entries(rank, entries, _groups(dump, rank, groups), groups).items():
            columns[name].extend(values)
        if library := dump.get("comm_lib_version") or dump.get("nccl_version"):
            libraries[rank] = str(library)
        for name, status in _mappings(dump.get("pg_status")):
            numbers.setdefault(name, {})[rank] = [_whole(status.get(f"last_{event}_collective")) for event in EVENTS]
    table = pd.DataFrame({name: pd.Series(columns[name], dtype=kind) for name, kind in _COLUMNS.items()})
    files = {rank: path for rank, (path, _) in found.items()}
    return FlightRecorder(table, groups, files, libraries, frames, numbers, notes)


def _mappings(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Names and contents, of those that are mappings."""
    for name, content in value.items() if isinstance(value, Mapping) else ():
        if isinstance(content, Mapping):
            yield _text(name), content


_COLUMNS = {
    "rank": "int64", "group": "category", "seq": "int64", "is_p2p": "bool", "operation": "category",
    "state": "category", "sizes": "category", "dtypes": "category", "created_ns": "Int64", "timeout_ms": "Int64",
    "entry": "int64",
}  # fmt: skip


def _groups(dump: Mapping[str, Any], rank: int, groups: dict[str, Group]) -> dict[str, str]:
    """Adds the groups of a rank's dump; gives the key of each by its name.

    A key is new when the group is new: one name may stand for several groups, each on other ranks.
    """
    keys = {}
    for name, config in _mappings(dump.get("pg_config")):
        ranks = _ranks(config.get("ranks"))
        if ranks is None or rank in ranks:
            group = Group(name, _text(config.get("desc", "")), ranks)
            names = (f"{name} #{number}" if number else name for number in count())
            keys[name] = next(key for key in names if groups.setdefault(key, group).ranks == ranks)
    return keys


def _ranks(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, list):
        return tuple(sorted({number for number in map(_whole, value) if number is not None})) or None
    return _ranks_of_text(value) if isinstance(value, str) else None


@cache
def _ranks_of_text(text: str) -> tuple[int, ...] | None:
    return tuple(sorted(map(int, re.findall(r"(?<!\d)\d{1,9}(?!\d)", text)))) or None


def _entries(
    rank: int, entries: Sequence[Mapping[str, Any]], keys: Mapping[str, str], groups: dict[str, Group]
) -> dict[str, Sequence[Any]]:  # fmt: skip
    """The columns of a rank's entries."""
    names = [_group_of(entry) for entry in entries]
    for name, description in dict.fromkeys(names):
        if name not in keys:
            groups.setdefault(name, Group(name, description, None))
    is_p2p = [_is_p2p(entry) for entry in entries]
    return {
        "rank": [rank] * len(entries),
        "group": [keys.get(name, name) for name, _ in names],
        "seq": [_seq(entry, p2p) for entry, p2p in zip(entries, is_p2p, strict=True)],
        "is_p2p": is_p2p,
        "operation": [_GLOO_AND_THE_LIKE.sub("", _text(entry.get("profiling_name", ""))) for entry in entries],
        "state": [_text(entry.get("state", "")) for entry in entries],
        "sizes": [_text(f"{entry.get('input_sizes', '')} → {entry.get('output_sizes', '')}") for entry in entries],
        "dtypes": [_dtypes(entry) for entry in entries],
        "created_ns": [_created_ns(entry) for entry in entries],
        "timeout_ms": [_whole(entry.get("timeout_ms")) for entry in entries],
        "entry": range(len(entries)),
    }


def _text(value: Any) -> str:
    """A text that can be shown: a dump may hold halves of characters, and those that steer a terminal."""
    return printable(str(value))


def _group_of(entry: Mapping[str, Any]) -> tuple[str, str]:
    group = entry.get("process_group")
    if isinstance(group, (tuple, list)) and len(group) == 2:
        return _text(group[0]), _text(group[1])
    return _text(entry.get("pg_name", entry.get("pg_id", 0))), ""


def _is_p2p(entry: Mapping[str, Any]) -> bool:
    flag = entry.get("is_p2p")
    name = str(entry.get("profiling_name", "")).split(":")[-1]
    return flag if isinstance(flag, bool) else name.startswith(("send", "recv"))


def _seq(entry: Mapping[str, Any], is_p2p: bool) -> int:
    """Number of the call in its group; versions before 2.4 have one counter for collectives and send/recv."""
    names = ("p2p_seq_id" if is_p2p else "collective_seq_id", "seq_id")
    return next((number for name in names if (number := _whole(entry.get(name))) is not None), -1)


def _dtypes(entry: Mapping[str, Any]) -> str:
    both = (entry.get("input_dtypes"), entry.get("output_dtypes"))
    return " → ".join(", ".join(dict.fromkeys(map(_text, one))) for one in both if isinstance(one, (list, tuple)))


def _created_ns(entry: Mapping[str, Any]) -> int | None:
    """Time of the call; PyTorch 2.2 wrote microseconds."""
    time_us = _whole(entry.get("time_created_us"))
    return _whole(entry.get("time_created_ns", None if time_us is None else time_us * 1000))


def _whole(value: Any) -> int | None:
    """A number that a table can hold and that can be meant: none is negative, or has 63 bits."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None


# Where a hung job's ranks stand.


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


def _absences(recorder: FlightRecorder) -> list[Absence]:
    calls = recorder.open_collectives
    dumped = set(recorder.dumps)
    found = []
    for key, own in recorder.last.groupby("group", sort=False, observed=True):
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


def _mismatches(recorder: FlightRecorder) -> Iterator[Mismatch]:
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


def rank_never_came(recorder: FlightRecorder) -> Iterator[Facts]:
    """Of each process group the first collective that some ranks never called."""
    for one in recorder.absences:
        if one.missing:
            silent = sorted({*one.missing} - {row.rank for row in one.last})
            at = recorder.where(one.call)
            last_at = recorder.where(one.last[0]) if one.last else ""
            yield {"one": one, "silent": silent, "at": at, "last_at": last_at, "ranks": one.missing}


def mismatched_calls(recorder: FlightRecorder) -> Iterator[Facts]:
    """Ranks that called another operation, size or dtype under one number."""
    for one in recorder.mismatches:
        shown = [f"rank {rank}: {value}" for rank, value in one.others.items()]
        places = ((call.rank, place) for call in one.calls if (place := recorder.where(call)))
        yield {"one": one, "shown": shown[:6], "at": next(places, None), "ranks": tuple(one.others)}


def no_entries(recorder: FlightRecorder) -> Iterator[Facts]:
    """Dumps without any call."""
    if not recorder.entries.empty:
        return
    numbers: list[str] = []
    behind: set[int] = set()
    for name, ranks in recorder.numbers.items():
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


def ranks_without_dump(recorder: FlightRecorder) -> Iterator[Facts]:
    """Ranks of a process group that left no dump."""
    expected = {rank for group in recorder.groups.values() for rank in group.ranks or ()}
    if absent := sorted(expected - set(recorder.dumps)):
        waited = [one for one in recorder.absences if one.undumped]
        yield {"waited": waited, "expected": len(expected), "ranks": absent}


def open_everywhere(recorder: FlightRecorder) -> Iterator[Facts]:
    """A collective that all ranks called alike, and that did not complete."""
    stuck = recorder.open_collectives
    if not (stuck.empty or recorder.absences or recorder.mismatches):
        first = next(stuck.itertuples())
        yield {"first": first, "own": stuck[(stuck["group"] == first.group) & (stuck["seq"] == first.seq)]}


def recorder_in_words(recorder: FlightRecorder) -> Iterator[Facts]:
    """A flight recorder in which everything is complete."""
    if not recorder.entries.empty and (recorder.entries["state"] == "completed").all():
        yield {}
