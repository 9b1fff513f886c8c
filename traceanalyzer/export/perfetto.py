"""All ranks as one file for Perfetto: Chrome trace events, a process for each rank, waits told apart from transfers.

Times are microseconds after the earliest operation, exact to the nanosecond; `otherData` says when that was.
"""

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.communication.common_clock import Clock, common_clock
from traceanalyzer.export.slices import of_rank

NEEDED = ("timeline", "ranks", "steps", "gpu_ranges", "gaps", "calls", "call_waits", "clocks", "path_stretches")
"""Results that an export is made from."""


def write(results: Mapping[str, Result], path: Path, label: str) -> int:
    """Write the ranks' operations, gzip-compressed when the name ends in `.gz`; returns how many events there are.

    Args:
        results: at least those of NEEDED.
        path: the file; its folder is made, and it appears when it is whole.
        label: name of the run.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".writing-{path.name}")
    try:
        count = _write(results, draft, label)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return count


def _write(results: Mapping[str, Result], path: Path, label: str) -> int:
    clock = common_clock(results)
    count = 0
    with _opened(path) as file:
        head = {"label": label, "zero_ns": str(clock.zero_ns), "clocks": clock.note}
        file.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(head)},"traceEvents":[')
        for event in trace_events(results, clock):
            file.write(",\n" if count else "\n")
            file.write(json.dumps(event, separators=(",", ":")))
            count += 1
        file.write("\n]}\n")
    return count


def trace_events(results: Mapping[str, Result], clock: Clock) -> Iterator[dict[str, Any]]:
    """Events of all ranks: names of processes and tracks (`ph` M), then slices (`ph` X), rank by rank."""
    frames = {name: results[name].to_frame() for name in NEEDED}
    tables = {name: dict(list(frame.groupby("rank"))) for name, frame in frames.items()}
    devices = frames["ranks"].set_index("rank")["device_name"]
    for rank in sorted(clock.shifts):
        device = devices.get(rank)
        name = f"rank {rank}" if pd.isna(device) else f"rank {rank} · {device}"
        yield _named("process_name", rank, 0, {"name": name})
        yield _named("process_sort_index", rank, 0, {"sort_index": rank})
        slices = _in_lanes(of_rank({name: tables[name].get(rank, frames[name].iloc[:0]) for name in NEEDED}))
        for thread, (_, track) in enumerate(sorted(set(zip(slices["order"], slices["track"], strict=True)))):
            yield _named("thread_name", rank, thread, {"name": track})
            yield _named("thread_sort_index", rank, thread, {"sort_index": thread})
            yield from _slices(slices[slices["track"] == track], rank, thread, clock.shift_ns(rank) + clock.zero_ns)


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", compresslevel=6, encoding="utf-8")
    return path.open("w", encoding="utf-8")


def _named(what: str, rank: int, thread: int, content: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": rank, "tid": thread, "args": content}


def _slices(slices: pd.DataFrame, rank: int, thread: int, zero_ns: int) -> Iterator[dict[str, Any]]:
    columns = ("name", "start_ns", "end_ns", "colour", "args")
    for name, start, end, colour, content in zip(*(slices[column].tolist() for column in columns), strict=True):
        event = {"ph": "X", "name": name, "pid": rank, "tid": thread, "ts": (start - zero_ns) / 1000,
                 "dur": (end - start) / 1000, "cname": colour}  # fmt: skip
        yield event | {"args": content} if content else event


def _in_lanes(slices: pd.DataFrame) -> pd.DataFrame:
    """Slices that begin before an earlier one of their track has ended go to a track of their own beside it."""
    slices = slices.sort_values(["order", "track", "start_ns", "end_ns"], kind="stable", ignore_index=True)
    tracks = slices["track"].to_numpy(dtype=object, copy=True)
    for track, own in slices.groupby("track", sort=False):
        starts, ends = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
        if (starts[1:] >= np.maximum.accumulate(ends)[:-1]).all():
            continue
        lanes = _lanes(starts, ends)
        tracks[own.index[lanes > 0]] = [f"{track} ({lane + 1})" for lane in lanes[lanes > 0]]
    return slices.assign(track=tracks)


def _lanes(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """For each slice, in order of start, the first lane that is free."""
    free: list[int] = []
    lanes = np.zeros(len(starts), dtype=np.int64)
    for place, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        lane = next((number for number, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        lanes[place] = lane
    return lanes
