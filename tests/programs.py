"""Tiny programs for tests: operators, modules and launches as literals in, a `RankTrace` out."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from traceanalyzer.model import RankMeta, RankTrace, make_trace
from traceanalyzer.selection import Selection, select

Event = tuple[str, int, int] | tuple[str, int, int, dict[str, Any]]
"""(name, start, end), and further columns."""


def program(
    host: Iterable[Event] = (),
    gpu: Iterable[Event] = (),
    *,
    modules: Iterable[Event] = (),
    ranges: Iterable[Event] = (),
    steps: Sequence[tuple[int, int]] = (),
    wanted: str = "all",
    device_name: str | None = "NVIDIA H200",
) -> RankTrace:
    """A rank; a GPU operation's `launch` is the time of its launch, `thread` its thread, `call` the API call's name."""
    ops = _frame(gpu)
    marks = [(f"ProfilerStep#{number}", start, end) for number, (start, end) in enumerate(steps)]
    tables = {
        "host_ops": _frame(host),
        "ranges": _frame([*ranges, *marks]),
        "frames": _frame(modules),
        "api_calls": _launches(ops),
        "gpu_ops": ops.drop(columns="launch", errors="ignore").assign(correlation=range(1, len(ops) + 1)),
    }
    meta = RankMeta(0, "test", ("test.json",), "kineto", device_name=device_name)
    trace = make_trace(meta, **{name: frame for name, frame in tables.items() if len(frame)})
    return select(trace, Selection(steps=wanted))


def _frame(events: Iterable[Event]) -> pd.DataFrame:
    fixed = {"kind": "compute", "activity": "kernel", "stream": 7, "thread": 1}
    rows = [
        {**fixed, "name": event[0], "start_ns": event[1], "end_ns": event[2], **(event[3] if len(event) == 4 else {})}
        for event in events
    ]
    frame = pd.DataFrame(rows)
    for column in ("sequence", "forward_thread"):
        if column in frame:
            frame[column] = frame[column].astype("Int64")
    return frame


def _launches(ops: pd.DataFrame) -> pd.DataFrame:
    """One API call for each distinct launch; operations of one launch share its row by their correlation."""
    if "launch" not in ops:
        return pd.DataFrame()
    held = ops[ops["launch"].notna()]
    names = held["call"].fillna("cudaLaunchKernel") if "call" in held else "cudaLaunchKernel"
    starts = held["launch"].astype("int64")
    return pd.DataFrame(
        {
            "start_ns": starts,
            "end_ns": starts + 1,
            "name": names,
            "thread": held["thread"],
            "correlation": held.index + 1,
        }
    )
