"""Operators of replayed CUDA graphs, from a trace of their capture: a replay alone is one call without operators."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from traceanalyzer.model import RankTrace
from traceanalyzer.packing import is_json
from traceanalyzer.schema import FRAMES, HOST_OPS, conform

_CAPTURE = re.compile(r"graph_?captures?|capture_?traces?|captured_?graphs?", re.IGNORECASE)

_GRAPH_LAUNCH = re.compile(r"GraphLaunch")

_END_OF_CAPTURE = re.compile(r"StreamEndCapture")

_MODULE = "nn.Module: "

_TIMES = ("start_ns", "end_ns")

_MOST_OPERATORS = 2_000_000
"""Of all replays together; further ones stay without."""


def is_capture(path: Path) -> bool:
    """Whether a file is called a trace of captures (`capture_traces/…`, `graph_capture_rank_0….json.gz`)."""
    return bool(_CAPTURE.search(path.name) or _CAPTURE.search(path.parent.name))


def captures_beside(path: Path) -> list[Path]:
    """Files beside a trace, or in a folder beside it, that are called traces of captures; none of such a one itself."""
    if is_capture(path) or not path.is_file():
        return []
    near = [place for place in path.parent.iterdir() if _CAPTURE.search(place.name)]
    files = [file for place in near for file in (place.iterdir() if place.is_dir() else [place])]
    return sorted(file for file in files if file.is_file() and is_json(file.name))


def has_replays(trace: RankTrace) -> bool:
    """Whether a graph was launched."""
    return bool(_matches(trace.api_calls["name"], _GRAPH_LAUNCH).any())


def with_captured_operators(trace: RankTrace, captured: RankTrace) -> RankTrace:
    """The trace, where each replay of a graph holds the operators and modules that captured it.

    A replay is that of a capture which launched the same kernels as often; of several such captures none is taken. The
    operators stand within the call that launched the graph, nanoseconds long: their order and nesting are those of the
    capture, their host time is not. `gpu_ops.captured_ns` is the moment of an operation's launch among them.
    """
    replays = _replays(trace)
    launches = _launches(captured)
    if replays.empty or launches.empty:
        return trace
    matched = _matched(replays, launches)
    if matched.empty:
        return trace
    scenes = {block: _Scene(captured, rows) for block, rows in launches.groupby("block")}
    host_ops, frames, moments = [trace.host_ops], [trace.frames], []
    room = _MOST_OPERATORS
    for (launch, block), rows in matched.groupby(["launch", "block"], sort=True):
        scene, call = scenes[block], trace.api_calls.iloc[launch]
        room -= len(scene.host_ops)
        if room < 0:
            break
        begin_ns = int(call["start_ns"]) + 1
        host_ops.append(scene.at(scene.host_ops, begin_ns, call["thread"]))
        frames.append(scene.at(scene.frames, begin_ns, call["thread"]))
        moments.append(pd.Series(begin_ns + scene.places(rows["source"].to_numpy()), index=rows["op"].to_numpy()))
    captured_ns = pd.concat(moments).astype("Int64").reindex(range(len(trace.gpu_ops)))
    note = (
        f"Operators of {len(captured_ns.dropna()):,} replayed operations are those of the capture that "
        f"{', '.join(captured.meta.files)} recorded."
    )
    return replace(
        trace,
        meta=replace(trace.meta, notes=(*trace.meta.notes, note)),
        host_ops=_sorted(host_ops, HOST_OPS),
        frames=_sorted(frames, FRAMES),
        gpu_ops=trace.gpu_ops.assign(captured_ns=captured_ns.array),
    )


class _Scene:
    """What one capture holds, in ordinals of time: only what launches something."""

    def __init__(self, captured: RankTrace, launches: pd.DataFrame) -> None:
        modules = captured.frames[captured.frames["name"].astype("str").str.startswith(_MODULE)]
        self.host_ops, self.frames = (_around(table, launches) for table in (captured.host_ops, modules))
        tables = (self.host_ops, self.frames)
        moments = [launches["start_ns"], *(table[name] for table in tables for name in _TIMES)]
        self._times = np.unique(np.concatenate([moment.to_numpy() for moment in moments]))
        self._launch_ns = launches.set_index("source")["start_ns"]

    def at(self, table: pd.DataFrame, begin_ns: int, thread: int) -> pd.DataFrame:
        """The rows within a call that began then."""
        times = {name: begin_ns + np.searchsorted(self._times, table[name].to_numpy()) for name in _TIMES}
        return table.assign(thread=thread, **times)

    def places(self, sources: np.ndarray) -> np.ndarray:
        """Ordinals of these launches."""
        found: np.ndarray = np.searchsorted(self._times, self._launch_ns.loc[sources].to_numpy())
        return found


def _around(table: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    """Rows during which their thread launched one of the kernels."""
    held = np.zeros(len(table), dtype=bool)
    for thread, rows in launches.groupby("thread"):
        moments = np.sort(rows["start_ns"].to_numpy())
        first, past = (np.searchsorted(moments, table[name].to_numpy()) for name in ("start_ns", "end_ns"))
        held |= (table["thread"] == thread).to_numpy() & (past > first)
    return table[held]


def _replays(trace: RankTrace) -> pd.DataFrame:
    """Kernels that graph launches ran: `op`, `launch`, `name`, and which of its name in that launch, `ordinal`."""
    calls, ops = trace.api_calls, trace.gpu_ops
    is_graph = np.append(_matches(calls["name"], _GRAPH_LAUNCH), False)[ops["launch"].to_numpy()]
    held = ops[is_graph & (ops["activity"] == "kernel").to_numpy()]
    table = pd.DataFrame({"op": held.index, "launch": held["launch"], "name": held["name"].astype("str")})
    return table.assign(ordinal=table.groupby(["launch", "name"]).cumcount())


def _launches(captured: RankTrace) -> pd.DataFrame:
    """Launches that only went into a graph and name their kernels: `source`, `block` (capture), `name`, `ordinal`."""
    calls = captured.api_calls
    held = calls[(~calls["has_gpu_op"] & calls["kernel"].notna()).to_numpy()]
    ends = calls["start_ns"].to_numpy()[_matches(calls["name"], _END_OF_CAPTURE)]
    table = pd.DataFrame({"source": held.index, "start_ns": held["start_ns"], "thread": held["thread"]})
    table = table.assign(block=np.searchsorted(ends, held["start_ns"]), name=held["kernel"].astype("str"))
    return table.assign(ordinal=table.groupby(["block", "name"]).cumcount())


def _matched(replays: pd.DataFrame, launches: pd.DataFrame) -> pd.DataFrame:
    """`op`, `launch`, `block`, `source` of the replays that ran just what one capture launched."""
    keys = launches.groupby("block")["name"].agg(lambda names: hash(tuple(sorted(names))))
    alone = keys[~keys.duplicated(keep=False)]
    of_key = pd.Series(alone.index, index=alone.to_numpy())
    own = replays.groupby("launch")["name"].agg(lambda names: hash(tuple(sorted(names))))
    block = own.map(of_key).dropna().astype("int64")
    held = replays[replays["launch"].isin(block.index)]
    held = held.assign(block=held["launch"].map(block))
    return held.merge(launches[["block", "name", "ordinal", "source"]], on=["block", "name", "ordinal"])


def _matches(names: pd.Series, pattern: re.Pattern[str]) -> np.ndarray:
    is_of = np.array([bool(pattern.search(str(name))) for name in names.cat.categories], dtype=bool)
    mask: np.ndarray = np.append(is_of, False)[names.cat.codes.to_numpy()]
    return mask


def _sorted(parts: list[pd.DataFrame], schema: Mapping[str, str]) -> pd.DataFrame:
    names = dict.fromkeys((name for name, dtype in schema.items() if dtype == "category"), "object")
    held = [part.astype(names) for part in parts if len(part)] or parts[:1]
    table = pd.concat(held, ignore_index=True)
    order = np.lexsort((-table["end_ns"].to_numpy(), table["start_ns"].to_numpy()))
    return conform(table.iloc[order].reset_index(drop=True), schema)
