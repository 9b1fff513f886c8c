"""The critical path as a line through the timeline's lanes.

Columns: start less the previous start (signed), length, place of the rank among those of the page (0: it is left out,
else one more), and lane, each a number. Stretches that follow each other in one lane of one rank are one.
"""

from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.communication.common_clock import Clock
from traceanalyzer.meaning.vocabulary import BETWEEN_KERNELS, IDLE, KINDS
from traceanalyzer.model.tables import array_of, table_of
from traceanalyzer.report.timeline.columns import signed, steps_of, varints

MOST_STRETCHES = 40_000
"""Of a page; of more the shortest are drawn as part of the one before."""

LANES = ("host", *(kind.key for kind in KINDS), IDLE.kind)
"""Where the line runs: on the host, in a lane of operations, or on a GPU on which nothing runs."""


def path_line(results: Results, kept: list[int], clock: Clock) -> tuple[dict[str, Any], bytes]:
    """What the line says, and its columns; without a path only why there is none."""
    stretches = results["path_stretches"].to_frame() if "path_stretches" in results else pd.DataFrame()
    if stretches.empty:
        return {"count": 0, "why_not": _why_not(results)}, b""
    table = _drawn(_merged(stretches))
    starts = table["start_ns"].to_numpy(dtype=np.int64) - _base(table, results, clock)
    place = table["rank"].map({rank: at + 1 for at, rank in enumerate(kept)}).fillna(0)
    columns = [
        signed(steps_of(starts)),
        (table["end_ns"] - table["start_ns"]).to_numpy(),
        place.to_numpy(dtype=np.int64),
        array_of(table, "lane").astype(np.int64),
    ]
    meta = {
        "count": len(table),
        "first": int(starts[0]),
        "lanes": LANES,
        "shares": _shares(results),
        "why_not": "",
    }
    return meta, b"".join(map(varints, columns))


def _why_not(results: Results) -> str:
    replay = results.get("replay")
    if replay is None:
        return "the job was not replayed"
    return replay.why_not or "the capture has no complete step to follow"


def _base(table: pd.DataFrame, results: Results, clock: Clock) -> np.ndarray:
    """What is taken from each row's times, to lie on its rank's operations as the page draws them.

    The path's clock takes every known offset from a rank's times, the page's only what is larger than its uncertainty.
    """
    known = results["clocks"].table.set_index("rank")["offset_ns"] if "clocks" in results else pd.Series(dtype="Int64")
    shifts = {
        rank: clock.shift_ns(rank) - (0 if pd.isna(offset := known.get(rank, pd.NA)) else int(offset))
        for rank in table["rank"].unique().tolist()
    }
    made: np.ndarray = (table["rank"].map(shifts) + clock.zero_ns).to_numpy(dtype=np.int64)
    return made


def _merged(stretches: pd.DataFrame) -> pd.DataFrame:
    """One row for each run of stretches in one lane of one rank: its `rank`, `lane` (place in `LANES`), times, `ns`."""
    category = stretches["category"]
    lane = category.map({name: place for place, name in enumerate(LANES)}).fillna(LANES.index(IDLE.kind))
    lanes = np.where(stretches["where"] == "host", LANES.index("host"), lane.to_numpy(dtype=np.int8))
    # The GPU's turnaround between two operations of a lane is no stop: it belongs to the lane.
    lanes = _held_on(lanes, (category == BETWEEN_KERNELS.key).to_numpy(dtype=bool))
    rank, starts, ends = (array_of(stretches, name) for name in ("rank", "start_ns", "end_ns"))
    table = table_of({"rank": rank, "lane": lanes, "start_ns": starts, "end_ns": ends, "ns": ends - starts})
    begins = np.append(True, (rank[1:] != rank[:-1]) | (lanes[1:] != lanes[:-1]))
    return _joined(table, begins)


def _held_on(lanes: np.ndarray, is_between: np.ndarray) -> np.ndarray:
    """With the lane of the stretch before in those between; of the first ones with that of the one after."""
    told = np.flatnonzero(~is_between)
    if not len(told):
        return np.full(len(lanes), LANES.index(IDLE.kind))
    made: np.ndarray = lanes[told[np.maximum(np.cumsum(~is_between) - 1, 0)]]
    return made


def _joined(table: pd.DataFrame, begins: np.ndarray) -> pd.DataFrame:
    """A row for each run of rows, with rank and lane of its longest; `begins` marks their first ones."""
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(table)) - 1
    ns = array_of(table, "ns")
    is_longest = np.flatnonzero(ns == np.repeat(np.maximum.reduceat(ns, first), last - first + 1))
    longest = is_longest[np.searchsorted(is_longest, first)]
    starts, ends = array_of(table, "start_ns")[first], array_of(table, "end_ns")[last]
    rank, lane = (array_of(table, name)[longest] for name in ("rank", "lane"))
    return table_of({"rank": rank, "lane": lane, "start_ns": starts, "end_ns": ends, "ns": ends - starts})


def _drawn(table: pd.DataFrame) -> pd.DataFrame:
    """As many as fit: shorter ones than the shortest that does are part of the one before."""
    if len(table) <= MOST_STRETCHES:
        return table
    ns = array_of(table, "ns")
    begins = ns > np.partition(ns, -MOST_STRETCHES)[-MOST_STRETCHES]
    begins[0] = True
    return _joined(table, begins)


def _shares(results: Results) -> list[list[Any]]:
    """[rank, per cent of the path], most first."""
    rows = results["path_over_ranks"].rows() if "path_over_ranks" in results else []
    return [[row["rank"], round(row["path_pct"], 1)] for row in rows[:4]]
