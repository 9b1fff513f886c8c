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
        table["lane"].map(LANES.index).to_numpy(),
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
    """One row for each run of stretches in one lane of one rank."""
    on_host = stretches["where"] == "host"
    is_kind = stretches["category"].isin(LANES)
    lane = pd.Series(np.where(on_host, "host", np.where(is_kind, stretches["category"], IDLE.kind)), stretches.index)
    # The GPU's turnaround between two operations of a lane is no stop: it belongs to the lane.
    lane = lane.mask(stretches["category"] == BETWEEN_KERNELS.key).ffill().bfill().fillna(IDLE.kind)
    table = stretches.assign(lane=lane, ns=stretches["end_ns"] - stretches["start_ns"])
    return _joined(table, (table["rank"] != table["rank"].shift()) | (lane != lane.shift()))


def _joined(table: pd.DataFrame, begins: pd.Series) -> pd.DataFrame:
    run = begins.cumsum().to_numpy()
    longest = table.loc[table["ns"].groupby(run).idxmax(), ["rank", "lane"]].reset_index(drop=True)
    spans = table.groupby(run).agg(start_ns=("start_ns", "first"), end_ns=("end_ns", "last")).reset_index(drop=True)
    return spans.join(longest).assign(ns=lambda rows: rows["end_ns"] - rows["start_ns"])


def _drawn(table: pd.DataFrame) -> pd.DataFrame:
    """As many as fit: shorter ones than the shortest that does are part of the one before."""
    if len(table) <= MOST_STRETCHES:
        return table
    least = table["ns"].nlargest(MOST_STRETCHES).iloc[-1]
    begins = table["ns"] > least
    begins.iloc[0] = True
    return _joined(table, begins)


def _shares(results: Results) -> list[list[Any]]:
    """[rank, per cent of the path], most first."""
    rows = results["path_over_ranks"].rows() if "path_over_ranks" in results else []
    return [[row["rank"], round(row["path_pct"], 1)] for row in rows[:4]]
