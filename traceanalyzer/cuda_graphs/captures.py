"""Captures of CUDA graphs, recorded beside their replays: traces of a capture, names of a graph's nodes."""

import json
import re
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from traceanalyzer.cuda_graphs.operators import GRAPH_LAUNCH, Recording, with_annotations, with_operators
from traceanalyzer.files.packing import is_json
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of

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
    return bool(_matches(trace.api_calls["name"], GRAPH_LAUNCH).any())


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
        told = _NOTES.match(file.name)
        if told and int(told[1]) == trace.rank:
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
    except OSError:  # another's, or gone
        return []


_UNSETTLED_NS = 2 * 10**9
"""A folder that changed so shortly ago may change again within one tick of its clock."""


@lru_cache(16)
def _listed(folder: Path, name: re.Pattern[str], _changed_ns: int) -> list[Path]:
    """Listed once for all the files of a folder: of a thousand files each would list the others again."""
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
        told = [note.get(key) for key in ANNOTATIONS] if isinstance(note, dict) else [note]
        found = next((text for text in told if isinstance(text, str) and text), found)
    return found


ANNOTATIONS = ("name", "str", "module_fqn", "component")
"""Keys under which programs name a graph's nodes, PyTorch's own first."""


def _is_by_node(captured: RankTrace) -> bool:
    """Whether launches of the capture do not name their kernels, so that only the nodes' order tells."""
    return bool(captured.api_calls["kernel"].isna().all())


def _replays(trace: RankTrace, *, is_by_node: bool) -> pd.DataFrame:
    """Operations that graph launches ran: `op`, `launch`, `name`, and which of its name in that launch, `ordinal`.

    By node they are named by their activity, in the order in which the graph's nodes were made.
    """
    calls, ops = trace.api_calls, trace.gpu_ops
    is_graph = np.append(_matches(calls["name"], GRAPH_LAUNCH), False)[array_of(ops, "launch")]
    if is_by_node:
        held = ops[is_graph & ops["graph_node"].notna().to_numpy()].sort_values(["launch", "graph_node"], kind="stable")
        names = held["activity"]
    else:
        held = ops[is_graph & (ops["activity"] == "kernel").to_numpy()]
        names = held["name"]
    table = pd.DataFrame({"op": held.index, "launch": held["launch"], "name": names.astype("str")})
    return table.assign(
        ordinal=table.groupby(["launch", "name"]).cumcount(),
        key=table.groupby("launch").cumcount() if is_by_node else 0,
    )


def _launches(captured: RankTrace) -> pd.DataFrame:
    """Launches that only went into a graph, with what `_replays` says of its operations.

    `source` (row in `api_calls`), `start_ns`, `thread`, `block` (which capture), `name`, `ordinal`, `key`.
    """
    calls = captured.api_calls
    is_free = ~array_of(calls, "has_gpu_op")
    starts = array_of(calls, "start_ns")
    ends = starts[_matches(calls["name"], _END_OF_CAPTURE)]
    if _is_by_node(captured):
        name = np.full(len(calls), "", dtype=object)
        for activity, pattern in _NODE_CALLS.items():
            name[_matches(calls["name"], pattern)] = activity
        begins = starts[_matches(calls["name"], _BEGIN_OF_CAPTURE)]
        is_captured = np.searchsorted(begins, starts) > np.searchsorted(ends, starts)
        held = is_free & (name != "") & is_captured
    else:
        name = calls["kernel"].astype("object").to_numpy()
        held = is_free & calls["kernel"].notna().to_numpy()
    rows = np.flatnonzero(held)
    table = pd.DataFrame(
        {"source": rows, "start_ns": starts[rows], "thread": array_of(calls, "thread")[rows], "name": name[rows]}
    )
    table = table.assign(block=np.searchsorted(ends, table["start_ns"]), name=table["name"].astype("str"))
    return table.assign(
        ordinal=table.groupby(["block", "name"]).cumcount(),
        key=table.groupby("block").cumcount() if _is_by_node(captured) else 0,
    )


def _signature(rows: pd.DataFrame, by: str) -> pd.Series:
    """What was launched, for each `by`: in order where `key` counts, else sorted."""
    table = rows.sort_values([by, "key", "name"], kind="stable")
    return table.groupby(by)["name"].agg(lambda names: hash(tuple(names)))


def _alone_or_alike(launches: pd.DataFrame, captured: RankTrace) -> tuple[pd.Series, bool]:
    """Block by signature, of those that are alone with it or alike; whether alike ones are so in shape too."""
    operators = captured.host_ops
    table = launches.assign(operator=_innermost(operators, launches))
    texts = {name: operators[name].astype("object").to_numpy() for name in ("name", "shapes")}
    for name, values in texts.items():
        told = [*map(str, values), "none"]
        table[f"of_{name}"] = [told[row] for row in table["operator"]]
    table = table.sort_values(["block", "name", "ordinal"], kind="stable")
    parts = {name: table.groupby("block")[f"of_{name}"].agg(lambda row: hash(tuple(row))) for name in texts}
    blocks = pd.DataFrame({"signature": _signature(launches, "block"), **parts}).reset_index()
    same = blocks.groupby("signature")["name"].transform("nunique") == 1
    kept = blocks[same]
    first = kept.drop_duplicates("signature")
    is_alike = len(kept.drop_duplicates(["signature", "shapes"])) == len(first)
    return pd.Series(array_of(first, "block"), index=array_of(first, "signature")), is_alike


def _innermost(operators: pd.DataFrame, launches: pd.DataFrame) -> np.ndarray:
    """Row of the innermost operator that runs on each launch's thread when it begins; -1 without one."""
    found = np.full(len(launches), -1, dtype=np.int64)
    for thread in launches["thread"].unique():
        own = np.flatnonzero((operators["thread"] == thread).to_numpy())
        asked = np.flatnonzero((launches["thread"] == thread).to_numpy())
        starts, ends = (array_of(operators, name)[own].tolist() for name in ("start_ns", "end_ns"))
        around: list[int] = []
        coming = 0
        moments = array_of(launches, "start_ns")[asked]
        for place in np.argsort(moments, kind="stable").tolist():
            while coming < len(starts) and starts[coming] <= moments[place]:
                while around and ends[around[-1]] <= starts[coming]:
                    around.pop()
                around.append(coming)
                coming += 1
            while around and ends[around[-1]] <= moments[place]:
                around.pop()
            found[asked[place]] = own[around[-1]] if around else -1
    return found


def _matched(replays: pd.DataFrame, launches: pd.DataFrame, block_of: pd.Series) -> pd.DataFrame:
    """`op`, `launch`, `block`, `source` of the replays that ran just what one capture launched."""
    block = _signature(replays, "launch").map(block_of).dropna().astype("int64")
    held = replays[replays["launch"].isin(block.index)]
    held = held.assign(block=held["launch"].map(block))
    return held.merge(launches[["block", "name", "ordinal", "source"]], on=["block", "name", "ordinal"])


def _matches(names: pd.Series, pattern: re.Pattern[str]) -> np.ndarray:
    is_of = np.array([bool(pattern.search(str(name))) for name in names.cat.categories], dtype=bool)
    mask: np.ndarray = np.append(is_of, False)[names.cat.codes.to_numpy()]
    return mask
