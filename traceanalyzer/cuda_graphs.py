"""Replayed CUDA graphs: what captures recorded beside them tell of the operators in them."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.files.archives import is_json
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE, TABLES, conform
from traceanalyzer.model.tables import array_of, innermost, rows_named_so

# Operators and ranges of replayed CUDA graphs: a replay alone is one call without any.


GRAPH_LAUNCH = re.compile(r"GraphLaunch")

_TIMES = ("start_ns", "end_ns")

_MOST_ROWS = 2_000_000
"""Of operators and ranges of all replays together; further ones stay without."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What was recorded while graphs were captured.

    Attributes:
        launches: what became the graphs' nodes: `start_ns`, `thread`, `block` (which capture); the index is its name.
        tables: operators, frames, ranges around them, by the names of a trace's tables.
        inside: names of tables of which rows around all that a capture launched are left out: they may hold the
            program's steps.
    """

    launches: pd.DataFrame
    tables: Mapping[str, pd.DataFrame]
    inside: frozenset[str] = field(default_factory=frozenset)


def with_operators(trace: RankTrace, matched: pd.DataFrame, recording: Recording) -> RankTrace:
    """The trace, where each replay of a graph holds the operators, frames and ranges that captured it.

    They stand within the call that launched the graph, nanoseconds long: their order and nesting are those of the
    capture, their host time is not. `gpu_ops.captured_ns` is the moment of an operation's launch among them.

    Args:
        trace: that replays graphs.
        matched: a row for each replayed operation: `op` (row in `gpu_ops`), `launch` (row in `api_calls`), `block` and
            `source` (of the recording's launches).
        recording: of the captures.
    """
    scenes = {block: _Scene(recording, rows) for block, rows in recording.launches.groupby("block")}
    added: dict[str, list[pd.DataFrame]] = {name: [getattr(trace, name)] for name in recording.tables}
    moments, room = [], _MOST_ROWS
    for (launch, block), rows in matched.groupby(["launch", "block"], sort=True):
        scene, call = scenes[block], trace.api_calls.iloc[launch]
        room -= scene.rows
        if room < 0:
            break
        begin_ns = int(call["start_ns"]) + 1
        for name, parts in added.items():
            parts.append(scene.at(name, begin_ns, call["thread"]))
        moments.append(pd.Series(begin_ns + scene.places(array_of(rows, "source")), index=array_of(rows, "op")))
    tables: dict[str, Any] = {name: _sorted(parts, TABLES[name]) for name, parts in added.items()}
    return replace(trace, gpu_ops=_with_moments(trace.gpu_ops, moments), **tables)


def with_annotations(trace: RankTrace, notes: pd.DataFrame) -> RankTrace:
    """The trace, where replayed operations have the names that the program gave to their nodes as operators.

    Args:
        trace: that replays graphs.
        notes: `graph_node` and `annotation`; `correlation` too where a node's name is of one launch.
    """
    keys = [name for name in ("graph_node", "correlation") if name in notes]
    known = notes[[*keys, "annotation"]].drop_duplicates(keys)
    ops = trace.gpu_ops
    held = ops[ops["graph_node"].notna() & (ops["launch"] != NONE) & ops["captured_ns"].isna()]
    named = held[["launch", *keys]].reset_index(names="op").merge(known, on=keys)
    if named.empty:
        return trace
    named["name"] = named["annotation"].astype("str")
    scope = ["launch", "name"]
    scopes = named.drop_duplicates(scope)
    scopes = scopes.assign(place=scopes.groupby("launch").cumcount())
    named = named.merge(scopes[[*scope, "place"]], on=scope)
    begins, threads = (array_of(trace.api_calls, name)[named["launch"]] for name in ("start_ns", "thread"))
    starts = begins + 1 + named["place"]
    named = named.assign(start_ns=starts, end_ns=starts + 1, thread=threads)
    schema = TABLES["host_ops"]
    operators = named.drop_duplicates(scope)[["start_ns", "end_ns", "name", "thread"]]
    host_ops = _sorted([trace.host_ops, conform(operators, schema)], schema)
    moments = [pd.Series(array_of(named, "start_ns"), index=array_of(named, "op"))]
    return replace(trace, gpu_ops=_with_moments(ops, moments), host_ops=host_ops)


class _Scene:
    """What one capture holds, in ordinals of time: only what launches something."""

    def __init__(self, recording: Recording, launches: pd.DataFrame) -> None:
        self._tables = {
            name: _around(table, launches, is_inside=name in recording.inside)
            for name, table in recording.tables.items()
        }
        times = [table[name] for table in self._tables.values() for name in _TIMES]
        self._times = np.unique(np.concatenate([moment.to_numpy() for moment in (launches["start_ns"], *times)]))
        self._launch_ns = launches["start_ns"]
        self.rows = sum(map(len, self._tables.values()))

    def at(self, name: str, begin_ns: int, thread: int) -> pd.DataFrame:
        """The rows of a table within a call that began then."""
        table = self._tables[name]
        times = {name: begin_ns + np.searchsorted(self._times, array_of(table, name)) for name in _TIMES}
        return table.assign(thread=thread, **times)

    def places(self, sources: np.ndarray) -> np.ndarray:
        """Ordinals of these launches."""
        found: np.ndarray = np.searchsorted(self._times, self._launch_ns.loc[sources].to_numpy())
        return found


def _around(table: pd.DataFrame, launches: pd.DataFrame, *, is_inside: bool) -> pd.DataFrame:
    """Rows during which their thread launched one of the kernels; with `is_inside` not all of the capture's."""
    count = np.zeros(len(table), dtype=np.int64)
    for thread, rows in launches.groupby("thread"):
        moments = np.sort(array_of(rows, "start_ns"))
        first, past = (np.searchsorted(moments, array_of(table, name)) for name in _TIMES)
        count += np.where((table["thread"] == thread).to_numpy(), past - first, 0)
    return table[(count > 0) & ~(is_inside & (count == len(launches)))]


def _with_moments(ops: pd.DataFrame, moments: list[pd.Series]) -> pd.DataFrame:
    if not moments:
        return ops
    found = pd.concat(moments).astype("Int64").reindex(range(len(ops)))
    return ops.assign(captured_ns=ops["captured_ns"].fillna(found).array)


def _sorted(parts: list[pd.DataFrame], schema: Mapping[str, str]) -> pd.DataFrame:
    names = dict.fromkeys((name for name, dtype in schema.items() if dtype == "category"), "object")
    held = [part.astype(names) for part in parts if len(part)] or parts[:1]
    table = pd.concat(held, ignore_index=True)
    order = np.lexsort((-array_of(table, "end_ns"), array_of(table, "start_ns")))
    return conform(table.iloc[order].reset_index(drop=True), schema)


# Captures of CUDA graphs, recorded beside their replays: traces of a capture, names of a graph's nodes.


_CAPTURE = re.compile(r"graph_?captures?|capture_?traces?|captured_?graphs?", re.IGNORECASE)

_NOTES = re.compile(r"^kernel_annotations_rank(\d+)\w*\.json$")
"""What `torch.cuda.graph(…, enable_annotations=True)` is saved as."""

_BEGIN_OF_CAPTURE = re.compile(r"StreamBeginCapture")

_END_OF_CAPTURE = re.compile(r"StreamEndCapture")

_NODE_CALLS = {
    "kernel": re.compile(r"Launch(?:Cooperative)?Kernel"),
    "memcpy": re.compile(r"Memcpy"),
    "memset": re.compile(r"Memset"),
}
"""Calls that become nodes of a graph while it is captured, by what the node runs."""

_MODULE = "nn.Module: "


def is_capture(path: Path) -> bool:
    """Whether a file is called a trace of captures (`capture_traces/…`, `graph_capture_rank_0….json.gz`)."""
    return bool(_CAPTURE.search(path.name) or _CAPTURE.search(path.parent.name))


def captures_beside(path: Path) -> list[Path]:
    """Files beside a trace, or in a folder beside it, that are called traces of captures; none of such a one itself."""
    if is_capture(path) or not path.is_file():
        return []
    near = _called(path.parent, _CAPTURE)
    files = [file for place in near for file in (place.iterdir() if place.is_dir() else [place])]
    return sorted(file for file in files if file.is_file() and is_json(file.name))


def has_replays(trace: RankTrace) -> bool:
    """Whether a graph was launched."""
    return bool(rows_named_so(trace.api_calls, GRAPH_LAUNCH.search).any())


def with_captured_operators(trace: RankTrace, captured: RankTrace) -> RankTrace:
    """The trace with the operators and modules that captured its graphs.

    A replay is that of a capture which launched the same kernels as often (ROCm, whose calls name their kernels), or as
    many kernels, copies and memsets in the order of its nodes (CUDA, whose calls do not). Of several such captures the
    operators are taken where they launched by the same ones, their shapes where these are the same.
    """
    launches = _launches(captured)
    replays = _replays(trace, is_by_node=_is_by_node(captured))
    if replays.empty or launches.empty:
        return trace
    modules = captured.frames[captured.frames["name"].astype("str").str.startswith(_MODULE)]
    alike, is_alike_in_shape = _alone_or_alike(launches, captured)
    matched = _matched(replays, launches, alike)
    if matched.empty:
        return trace
    host_ops = captured.host_ops
    if not is_alike_in_shape:
        host_ops = host_ops.assign(**dict.fromkeys(("shapes", "strides", "dtypes", "arguments")))
    tables = {"host_ops": host_ops, "frames": modules}
    recording = Recording(launches.set_index("source"), tables)
    found = with_operators(trace, matched, recording)
    count = int(found.gpu_ops["captured_ns"].notna().sum() - trace.gpu_ops["captured_ns"].notna().sum())
    note = (
        f"Operators of {count:,} replayed operations are those of the capture that "
        f"{', '.join(captured.meta.files)} recorded."
    )
    if not is_alike_in_shape:
        note += " Several captures there fit a replay: their operators are the same, their shapes are not and left out."
    return replace(found, meta=replace(trace.meta, notes=(*trace.meta.notes, note)))


def with_notes_beside(trace: RankTrace, path: Path) -> RankTrace:
    """The trace with the names of its graphs' nodes that a `kernel_annotations_rank<n>….json` beside or above has."""
    for file in notes_beside(path):
        match = _NOTES.match(file.name)
        if match and int(match[1]) == trace.rank:
            return with_annotations(trace, _notes(file))
    return trace


def notes_beside(path: Path) -> list[Path]:
    """Files of the names of graphs' nodes beside a trace, then those in the folder above."""
    return [file for folder in (path.parent, path.parent.parent) for file in sorted(_called(folder, _NOTES))]


def _called(folder: Path, name: re.Pattern[str]) -> list[Path]:
    """What lies in a folder under such a name."""
    try:
        changed_ns = folder.stat().st_mtime_ns
        is_settled = time.time_ns() - changed_ns > _UNSETTLED_NS
        return (_listed if is_settled else _listed.__wrapped__)(folder, name, changed_ns)
    except OSError:  # no permission, or deleted
        return []


_UNSETTLED_NS = 2 * 10**9
"""A folder that changed more recently may change again within one tick of its file system's clock (FAT: 2 s)."""


@lru_cache(16)
def _listed(folder: Path, name: re.Pattern[str], _changed_ns: int) -> list[Path]:
    """Entries with such a name, listed once for all the files of a folder rather than once for each of them."""
    return [place for place in folder.iterdir() if name.search(place.name)]


def _notes(file: Path) -> pd.DataFrame:
    """`graph_node`, `annotation`; empty of a file that is not what its name says."""
    try:
        nodes = json.loads(file.read_bytes())
        rows = [(int(node), _name(notes)) for node, notes in nodes.items()]
    except (OSError, ValueError, AttributeError, RecursionError):
        rows = []
    known = [(node, name) for node, name in rows if name and 0 < node < 1 << 63]
    return pd.DataFrame(known, columns=["graph_node", "annotation"]).astype({"graph_node": "Int64"})


def _name(notes: object) -> str | None:
    """The innermost name: of several the last."""
    found = None
    for note in notes if isinstance(notes, list) else [notes]:
        texts = [note.get(key) for key in ANNOTATIONS] if isinstance(note, dict) else [note]
        found = next((text for text in texts if isinstance(text, str) and text), found)
    return found


ANNOTATIONS = ("name", "str", "module_fqn", "component")
"""Keys under which programs name a graph's nodes, PyTorch's own first."""


def _is_by_node(captured: RankTrace) -> bool:
    """Whether launches of the capture do not name their kernels, so that only the nodes' order tells."""
    return bool(captured.api_calls["kernel"].isna().all())


def _replays(trace: RankTrace, *, is_by_node: bool) -> pd.DataFrame:
    """Operations that graph launches ran: `op`, `launch` and `name` as `_numbered` has it.

    By node they are named by their activity, in the order in which the graph's nodes were made.
    """
    calls, ops = trace.api_calls, trace.gpu_ops
    is_graph = np.append(rows_named_so(calls, GRAPH_LAUNCH.search), False)[array_of(ops, "launch")]
    if is_by_node:
        held = ops[is_graph & ops["graph_node"].notna().to_numpy()].sort_values(["launch", "graph_node"], kind="stable")
    else:
        held = ops[is_graph & (ops["activity"] == "kernel").to_numpy()]
    name = held["activity" if is_by_node else "name"]
    table = pd.DataFrame({"op": held.index, "launch": held["launch"], "name": name})
    return _numbered(table, "launch", is_by_node=is_by_node)


def _numbered(table: pd.DataFrame, by: str, *, is_by_node: bool) -> pd.DataFrame:
    """The table, its names with which of that name it is for each `by`, or by node which of all."""
    names = table["name"].astype("str")
    place = names.groupby(table[by] if is_by_node else [table[by], names]).cumcount()
    return table.assign(name=names + " " + place.astype("str"))


def _launches(captured: RankTrace) -> pd.DataFrame:
    """Launches that only went into a graph, with what `_replays` says of its operations.

    `source` (row in `api_calls`), `start_ns`, `thread`, `block` (which capture), `name`.
    """
    calls = captured.api_calls
    is_free = ~array_of(calls, "has_gpu_op")
    starts = array_of(calls, "start_ns")
    ends = starts[rows_named_so(calls, _END_OF_CAPTURE.search)]
    if _is_by_node(captured):
        name = np.full(len(calls), "", dtype=object)
        for activity, pattern in _NODE_CALLS.items():
            name[rows_named_so(calls, pattern.search)] = activity
        begins = starts[rows_named_so(calls, _BEGIN_OF_CAPTURE.search)]
        is_captured = np.searchsorted(begins, starts) > np.searchsorted(ends, starts)
        held = is_free & (name != "") & is_captured
    else:
        name = calls["kernel"].astype("object").to_numpy()
        held = is_free & calls["kernel"].notna().to_numpy()
    rows = np.flatnonzero(held)
    table = pd.DataFrame(
        {"source": rows, "start_ns": starts[rows], "thread": array_of(calls, "thread")[rows], "name": name[rows]}
    )
    table = table.assign(block=np.searchsorted(ends, table["start_ns"]))
    return _numbered(table, "block", is_by_node=_is_by_node(captured))


def _signature(rows: pd.DataFrame, by: str) -> pd.Series:
    """What was launched, for each `by`."""
    return rows.groupby(by)["name"].agg(lambda names: hash(tuple(sorted(names))))


def _alone_or_alike(launches: pd.DataFrame, captured: RankTrace) -> tuple[pd.Series, bool]:
    """Block by signature, of those that are alone with it or alike; whether alike ones are so in shape too."""
    operators = captured.host_ops
    table = launches.assign(operator=innermost(operators, array_of(launches, "thread"), array_of(launches, "start_ns")))
    texts = {name: operators[name].astype("object").to_numpy() for name in ("name", "shapes")}
    for name, values in texts.items():
        told = [*map(str, values), "none"]
        table[f"of_{name}"] = [told[row] for row in table["operator"]]
    table = table.sort_values(["block", "name"])
    parts = {name: table.groupby("block")[f"of_{name}"].agg(lambda row: hash(tuple(row))) for name in texts}
    blocks = pd.DataFrame({"signature": _signature(launches, "block"), **parts}).reset_index()
    same = blocks.groupby("signature")["name"].transform("nunique") == 1
    kept = blocks[same]
    first = kept.drop_duplicates("signature")
    is_alike = len(kept.drop_duplicates(["signature", "shapes"])) == len(first)
    return pd.Series(array_of(first, "block"), index=array_of(first, "signature")), is_alike


def _matched(replays: pd.DataFrame, launches: pd.DataFrame, block_of: pd.Series) -> pd.DataFrame:
    """`op`, `launch`, `block`, `source` of the replays that ran just what one capture launched."""
    block = _signature(replays, "launch").map(block_of).dropna().astype("int64")
    held = replays.merge(block.rename("block"), left_on="launch", right_index=True)
    return held.merge(launches[["block", "name", "source"]], on=["block", "name"])
