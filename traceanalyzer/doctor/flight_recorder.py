"""PyTorch's flight recorder: what each rank's collectives were when the job hung, as one table."""

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
        last: group's name → rank → numbers of its last enqueued, started and completed collective (`pg_status`).
        notes: files that could not be read, and why.
    """

    entries: pd.DataFrame
    groups: Mapping[str, "Group"]
    dumps: Mapping[int, str]
    library_versions: Mapping[int, str]
    frames: Mapping[int, Sequence[Sequence[Mapping[str, Any]]]]
    last: Mapping[str, Mapping[int, Sequence[int | None]]]
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
    last: dict[str, dict[int, list[int | None]]] = {}
    for rank, (_, dump) in sorted(found.items()):
        entries = [entry for entry in dump.get("entries", ()) if isinstance(entry, dict)]
        frames[rank] = [own if isinstance(own := entry.get("frames"), list | tuple) else () for entry in entries]
        for name, values in _entries(rank, entries, _groups(dump, rank, groups), groups).items():
            columns[name].extend(values)
        if library := dump.get("comm_lib_version") or dump.get("nccl_version"):
            libraries[rank] = str(library)
        for name, status in _mappings(dump.get("pg_status")):
            last.setdefault(name, {})[rank] = [_whole(status.get(f"last_{event}_collective")) for event in EVENTS]
    table = pd.DataFrame({name: pd.Series(columns[name], dtype=kind) for name, kind in _COLUMNS.items()})
    files = {rank: path for rank, (path, _) in found.items()}
    return FlightRecorder(table, groups, files, libraries, frames, last, notes)


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
