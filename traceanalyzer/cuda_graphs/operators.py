"""Operators and ranges of replayed CUDA graphs: a replay alone is one call without any."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE, TABLES, conform
from traceanalyzer.model.tables import array_of

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
    named["annotation"] = named["annotation"].astype("str")
    starts, threads = (array_of(trace.api_calls, name)[named["launch"]] for name in ("start_ns", "thread"))
    scopes = named.drop_duplicates(["launch", "annotation"])
    place = scopes.groupby("launch").cumcount().rename("place")
    named = named.merge(scopes.assign(place=place)[["launch", "annotation", "place"]], on=["launch", "annotation"])
    named = named.sort_values("op", ignore_index=True)
    starts, threads = (array_of(trace.api_calls, name)[named["launch"]] for name in ("start_ns", "thread"))
    named = named.assign(start_ns=starts + 1 + named["place"], thread=threads)
    rows = named.drop_duplicates(["launch", "annotation"])
    operators = pd.DataFrame(
        {"start_ns": rows["start_ns"], "end_ns": rows["start_ns"] + 1, "name": rows["annotation"],
         "thread": rows["thread"]}
    )  # fmt: skip
    moments = [pd.Series(array_of(named, "start_ns"), index=array_of(named, "op"))]
    schema = TABLES["host_ops"]
    host_ops = _sorted([trace.host_ops, conform(operators, schema)], schema)
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
