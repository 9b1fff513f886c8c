"""The threads of the host, as far as they fit: the longest events of the ranks that matter most.

For each lane (a thread's ranges, operators and calls; or its Python frames) come, as columns, in units of 100 ns: start
after the previous start, length; then the name and the depth.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.communication.common_clock import Clock
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.host_activity import API_CALL, FRAME, OPERATOR, RANGE
from traceanalyzer.analyses.timeline.host_events import MOST_RANKS
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.names import short_name
from traceanalyzer.report.timeline.columns import steps_of, varints

MOST_EVENTS = 64_000
"""Events of all of them together, the longest: about 4 bytes each."""

UNIT_NS = 100

KINDS = {RANGE: "range", OPERATOR: "operator", API_CALL: "call", FRAME: "frame"}
"""What events are called in the page; calls that synchronise are `sync`."""


def host_lanes(results: Results, order: Sequence[int], clock: Clock) -> tuple[dict[str, Any], bytes]:
    """Names and lanes, and their columns, of the first `MOST_RANKS` ranks of `order`."""
    frame = results["host_events"].to_frame() if "host_events" in results else pd.DataFrame()
    if frame.empty:
        return {"names": [], "lanes": [], "unit": UNIT_NS, "note": ""}, b""
    known = set(frame["rank"].unique())
    ranks = [rank for rank in order if rank in known][:MOST_RANKS]
    frame = frame[frame["rank"].isin(ranks)]
    recorded = int(frame.groupby("rank")["recorded"].first().sum())
    frame = frame.assign(ns=frame["end_ns"] - frame["start_ns"], is_frame=frame["what"] == FRAME)
    held = frame.loc[np.sort(frame["ns"].nlargest(MOST_EVENTS, keep="first").index)]
    name, names = _named(held)
    held = held.assign(said=name)
    lanes, columns = [], []
    for (rank, thread, is_frame), own in held.groupby(["rank", "thread", "is_frame"], sort=False):
        entry, made = _lane(own.sort_values(["start_ns", "depth"], kind="stable"), clock, rank)
        lanes.append({"rank": rank, "thread": thread, "role": own["role"].iloc[0], "frames": is_frame, **entry})
        columns += made
    meta = {"names": names, "lanes": lanes, "unit": UNIT_NS,
            "note": note(len(held), recorded, held["ns"].min(), ranks, len(order))}  # fmt: skip
    return meta, b"".join(map(varints, columns))


def _named(held: pd.DataFrame) -> tuple[np.ndarray, list[list[str]]]:
    """Each row's number among the distinct [what, short name], most frequent first: those have the shortest codes."""
    what = held["what"].astype("str").map(KINDS)
    is_sync = (what == "call") & host_names.matches(held["name"].astype("category"), host_names.is_sync)
    pair = what.mask(is_sync, "sync") + "\n" + held["name"].astype("str")
    counts = pair.value_counts()
    codes = pd.Series(range(len(counts)), index=counts.index)
    names = [text.split("\n", 1) for text in counts.index]
    return pair.map(codes).to_numpy(), [[what, short_name(name)] for what, name in names]


def _lane(own: pd.DataFrame, clock: Clock, rank: int) -> tuple[dict[str, Any], list[np.ndarray]]:
    shift = clock.shift_ns(rank) + clock.zero_ns
    starts = (own["start_ns"].to_numpy(dtype=np.int64) - shift) // UNIT_NS
    ends = (own["end_ns"].to_numpy(dtype=np.int64) - shift) // UNIT_NS
    depth = own["depth"].to_numpy(dtype=np.int64)
    # Levels that no event of the lane is drawn in are closed up.
    levels = np.unique(depth)
    place = np.searchsorted(levels, depth)
    entry = {"count": len(own), "first": int(starts[0]), "levels": len(levels)}
    return entry, [steps_of(starts), ends - starts, own["said"].to_numpy(), place]


def note(held: int, recorded: int, least_ns: int, ranks: Sequence[int], of_ranks: int) -> str:
    """What is not drawn."""
    said = []
    if held < recorded:
        least = max(1, round(least_ns / 1000))
        said.append(f"Of {recorded:,} host events the {held:,} longest are drawn: all above {least} µs.")
    if len(ranks) < of_ranks:
        said.append(f"The host is drawn of {numbered('rank', ranks)}.")
    return " ".join(said)
