"""What an export draws of a rank: the analysis' rows, every GPU operation by stream, every host thread, counters.

A track is a row of a viewer: slices, or samples of a quantity. Times are the rank's own, as recorded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from traceanalyzer.analyses.engine import reduce_rank
from traceanalyzer.analyses.host.launch_queue import launch_queue
from traceanalyzer.analyses.memory.held import CATEGORIES, Held
from traceanalyzer.export.gpu_slices import streams
from traceanalyzer.export.host_slices import threads
from traceanalyzer.export.rows import SLICE_COLUMNS, gaps, path, ranges, steps
from traceanalyzer.model import RankTrace


@dataclass(frozen=True, slots=True)
class Track:
    """A row of a viewer.

    Attributes:
        group: what it stands under: `analysis`, `GPU`, `host` or `counters`.
        name: its heading.
        slices: rows of `SLICE_COLUMNS` by start; those inside another one come after it. Or:
        samples: columns `time_ns` and `value`, which holds until the next one.
        unit: of the samples.
    """

    group: str
    name: str
    slices: pd.DataFrame | None = None
    samples: pd.DataFrame | None = None
    unit: str = ""


ROWS = ("steps", "gpu_ranges", "path_stretches", "gaps", "calls")
"""Tables of which `of_rank` takes the rank's own rows."""


def of_rank(trace: RankTrace, tables: Mapping[str, pd.DataFrame]) -> Iterator[Track]:
    """The rank's tracks, from top to bottom.

    Args:
        trace: its events.
        tables: its rows of `ROWS`; those of `calls` as `perfetto.told_calls` makes them.
    """
    ops = reduce_rank(trace, ["timeline"])["timeline"]
    analysis = {
        "steps": steps(tables["steps"]),
        "critical path": path(tables["path_stretches"]),
        **ranges(tables["gpu_ranges"]),
        "idle": gaps(tables["gaps"]),
    }
    for name, slices in analysis.items():
        yield from _laid("analysis", name, slices, is_nested=False)
    for name, slices in streams(ops, tables["calls"], trace.rank):
        yield from _laid("GPU", name, slices, is_nested=False)
    for name, slices in threads(trace, ops):
        yield from _laid("host", name, slices, is_nested=True)
    yield from _counters(trace)


def _laid(group: str, name: str, slices: pd.DataFrame, *, is_nested: bool) -> Iterator[Track]:
    """The slices in as many tracks as they need beside each other: one that ends inside another has a track of its own.

    On a host thread a slice may lie inside another one; on a stream it may not.
    """
    if slices.empty:
        return
    order = np.lexsort((-slices["end_ns"].to_numpy(), slices["start_ns"].to_numpy()))
    ordered = slices[list(SLICE_COLUMNS)].take(order)
    lane = lanes(ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy(), is_nested=is_nested)
    for number in range(int(lane.max()) + 1):
        yield Track(group, name if not number else f"{name} ({number + 1})", ordered[lane == number])


def lanes(starts: np.ndarray, ends: np.ndarray, *, is_nested: bool) -> np.ndarray:
    """For each slice, in order of start and the longer first, the first lane in which it fits."""
    if _fits_one_lane(starts, ends, is_nested=is_nested):
        return np.zeros(len(starts), dtype=np.int64)
    open_ends: list[list[int]] = []
    found = np.zeros(len(starts), dtype=np.int64)
    for place, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        for number, stack in enumerate(open_ends):
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or (is_nested and end <= stack[-1]):
                stack.append(end)
                found[place] = number
                break
        else:
            found[place] = len(open_ends)
            open_ends.append([end])
    return found


def _fits_one_lane(starts: np.ndarray, ends: np.ndarray, *, is_nested: bool) -> bool:
    return not is_nested and bool((starts[1:] >= np.maximum.accumulate(ends)[:-1]).all())


def _counters(trace: RankTrace) -> Iterator[Track]:
    if (trace.gpu_ops["launch"] >= 0).any():
        queue = launch_queue(trace)
        changes = np.append(True, queue.depth[1:] != queue.depth[:-1])
        samples = pd.DataFrame({"time_ns": queue.times[:-1][changes], "value": queue.depth[changes].astype(float)})
        yield Track("counters", "launched operations that wait", samples=samples, unit="operations")
    for name, own in trace.counters.groupby("name", observed=True, sort=True):
        title = str(name)
        is_bytes = title.endswith("_bytes")
        heading = title.removesuffix("_bytes").replace("_", " ") if is_bytes else title
        yield Track("counters", heading, samples=own[["time_ns", "value"]], unit="bytes" if is_bytes else "")
    held = Held.of(trace)
    for place, category in enumerate(CATEGORIES if len(held.events) else ()):
        level = held.level_bytes[:, place]
        if level.any():
            changes = np.append(True, level[1:] != level[:-1])
            times = held.events["time_ns"].to_numpy()
            samples = pd.DataFrame({"time_ns": times[changes], "value": level[changes].astype(float)})
            yield Track("counters", f"memory held: {category}", samples=samples, unit="bytes")
