"""The critical path of the recorded job, stretch by stretch and summed up."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent
from traceanalyzer.analyses.names import CriticalPathColumn, PathStretchesColumn
from traceanalyzer.analyses.replay.critical_path import CATEGORIES, critical_path
from traceanalyzer.analyses.replay.job import Job, Lengths
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.meaning.columns import Better, Column, Written
from traceanalyzer.meaning.vocabulary import DATA, HOST, KINDS, ON_PATH
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, only, sorted_by, table_of, without_rows

_WORK = (*(kind.key for kind in KINDS), HOST.key, DATA.key)
"""Categories that are summed up by name; the others are one row a rank."""


class PathStretches(Result[PathStretchesColumn]):
    """One row for each stretch of the critical path, in order of time; they tile the window."""

    title: ClassVar[str] = "Critical path, stretch by stretch"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("start_ns",)
    columns: ClassVar[Mapping[str, Column]] = {
        "start_ns": Column.moment("Start on the common clock."),
        "end_ns": Column.moment("End: the next one's start."),
        "rank": Column.ident("Global rank that it runs on."),
        "where": Column.text("`host`, or the stream."),
        "category": Column.text(f"{', '.join(f'{one.key} ({one.definition})' for one in ON_PATH)}."),
        "name": Column.text(
            "The kernel or copy that runs, or that a launch, turnaround or unknown stretch leads to.",
            written=Written.KERNEL,
        ),
        "operator": Column.text("Operator that launched it, or around the launch that the host's work leads to."),
        "phase": Column.text("Phase of the same."),
        "step": Column.ident("Step of the same; absent for none."),
    }


class CriticalPath(Result[CriticalPathColumn]):
    """One row for each rank, category and name on the critical path, longest first; they add up to the window."""

    title: ClassVar[str] = "Critical path"
    keys: ClassVar[tuple[str, ...]] = ("rank", "category", "phase", "name")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank that it runs on."),
        "category": PathStretches.columns["category"],
        "phase": Column.text("Phase of the work; absent for the rest."),
        "name": Column.text(
            "Operator behind the work, of an operation without one its own name; absent for the rest.",
            written=Written.KERNEL,
        ),
        "stretches": Column.count("How many of the path's stretches."),
        "path_ns": Column.time("Their length."),
        "window_ns": Column.time(
            "Length of the path: the job's complete steps, of a capture without any all of it.", better=Better.LESS
        ),
        "path_pct": Column.share("100 · path / window."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"path_pct": percent(table["path_ns"], table["window_ns"])})


def stretches(_parts: Mapping[int, pd.DataFrame], replay: Replay) -> PathStretches:
    """The path of the job as recorded."""
    if replay.engine is None:
        return PathStretches(without_rows(PathStretches.columns))
    return PathStretches(path_of(replay, replay.engine.job.recorded))


def across(_parts: Mapping[int, pd.DataFrame], path_stretches: PathStretches) -> CriticalPath:
    """Sum up its stretches."""
    return CriticalPath(summed(path_stretches.table))


def path_of(replay: Replay, lengths: Lengths) -> pd.DataFrame:
    """The path of the job with these lengths, with names."""
    assert replay.engine is not None
    job = replay.engine.job
    path = critical_path(job, replay.engine.windows, lengths)
    ranks = np.unique(array_of(path, "rank")).tolist()
    if len(ranks) == 1:  # of a large trace alone the path is long
        return only(_named(job, ranks[0], path), list(PathStretches.columns))
    parts = [_named(job, int(rank), part) for rank, part in path.groupby("rank", sort=False)]
    named = pd.concat(parts).sort_index() if parts else path.reindex(columns=list(PathStretches.columns))
    return named[list(PathStretches.columns)]


def summed(path: pd.DataFrame) -> pd.DataFrame:
    """Rows of `CriticalPath`."""
    keys = list(CriticalPath.keys)
    works = path["category"].isin(_WORK)
    name = path["operator"].fillna(path["name"]).where(works, None)
    table = path.assign(ns=path["end_ns"] - path["start_ns"], name=name, phase=path["phase"].where(works, None))
    groups = table.groupby(keys, dropna=False, observed=True)["ns"]
    found = table_of({"stretches": groups.size(), "path_ns": groups.sum()}).reset_index()
    found["window_ns"] = int(table["ns"].sum())
    return sorted_by(found, "path_ns")


def composition(path: pd.DataFrame) -> dict[str, float]:
    """Percent of a path by category, in the order of `CATEGORIES`, without what has none."""
    ns = (path["end_ns"] - path["start_ns"]).groupby(path["category"]).sum()
    total = int(ns.sum())
    return {name: 100 * int(ns.get(name, 0)) / total for name in CATEGORIES if ns.get(name, 0)}


def _named(job: Job, rank: int, path: pd.DataFrame) -> pd.DataFrame:
    piece = job.nodes[rank].piece
    op, host = array_of(path, "op"), array_of(path, "host")
    stream = np.append(array_of(piece.ops, "stream"), NONE)[op]
    step = _of_either(array_of(piece.ops, "step"), op, array_of(piece.host, "step"), host)
    return path.assign(
        where=_places(stream),
        category=path["category"].astype("str"),
        name=_text(piece.ops["name"], op),
        operator=np.where(op == NONE, _text(piece.host["operator"], host), _text(piece.ops["operator"], op)),
        phase=np.where(op == NONE, _text(piece.host["phase"], host), _text(piece.ops["phase"], op)),
        step=step,
    )


def _places(stream: np.ndarray) -> np.ndarray:
    numbers, place = np.unique(stream, return_inverse=True)
    texts = ["host" if number == NONE else f"stream {number}" for number in numbers.tolist()]
    told: np.ndarray = np.array(texts, dtype=object)[place]
    return told


def _text(values: pd.Series, rows: np.ndarray) -> np.ndarray:
    names: Any = values.array
    texts = np.array([*names.categories.tolist(), None], dtype=object)
    told: np.ndarray = texts[np.append(names.codes, NONE)[rows]]
    return told


def _of_either(of_ops: np.ndarray, op: np.ndarray, of_host: np.ndarray, host: np.ndarray) -> pd.arrays.IntegerArray:
    found = np.where(op == NONE, np.append(of_host, NONE)[host], np.append(of_ops, NONE)[op])
    return pd.arrays.IntegerArray(np.where(found == NONE, 1, found), found == NONE)
