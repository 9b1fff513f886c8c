"""What other threads of a process run in Python while one of them records nothing: one at a time runs Python."""

import re
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.host.host_activity import NOTHING, innermost
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of

BESIDE = f"{NOTHING} beside "
"""Before the frame of another thread, in what a host is said to do where nothing of its own is recorded."""

LEAST_NS = 200_000
"""Shorter stretches are not looked at: threads change every 5 ms, or when one of them waits."""

_COVERED = 0.8
"""Of a stretch, by the frame that is named."""

_SAMPLES = 5

# Their functions begin threads, and wait: for a lock, an item of a queue, a message.
_OF_THREADS = re.compile(
    r"^(?:.*/)?(?:threading|queue|selectors|socket|ssl|subprocess|(?:asyncio|concurrent|multiprocessing)/[\w/]+|"
    r"tqdm/_monitor)\.py\("
)


def beside(trace: RankTrace, thread: int, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """For each stretch of the thread the innermost Python frame of another one that covers it; `None` where none does.

    None of threads that wait then.
    """
    answer = np.full(len(starts), None, dtype=object)
    asked = np.flatnonzero(ends - starts >= LEAST_NS)
    frames = trace.frames
    if not len(asked) or frames.empty:
        return answer
    for other in np.setdiff1d(array_of(frames, "thread"), [thread]).tolist():
        own = frames[array_of(frames, "thread") == other]
        found = _covering(own, starts[asked], ends[asked])
        held = found != NONE
        names = own["name"].astype("object").to_numpy()
        answer[asked[held]] = names[found[held]]
    return answer


def _covering(frames: pd.DataFrame, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Row of the innermost frame that covers most of each stretch, -1 where there is none or the thread waits."""
    begins, until = (array_of(frames, name) for name in ("start_ns", "end_ns"))
    names: Any = column_of(frames, "name")
    is_of_threads = np.array([*(bool(_OF_THREADS.match(name)) for name in names.categories), True])[names.codes]
    long = np.flatnonzero((until - begins >= _COVERED * LEAST_NS) & ~is_of_threads)
    since, ended, row = innermost(begins, until)
    found = np.full(len(starts), NONE, dtype=np.int64)
    for place, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        shared = np.minimum(until[long], end) - np.maximum(begins[long], start)
        covers = long[shared >= _COVERED * (end - start)]
        if not len(covers) or not len(since):
            continue
        times = np.linspace(start, end, _SAMPLES + 2)[1:-1]
        at = np.searchsorted(since, times, side="right") - 1
        inner = np.where((at >= 0) & (times < ended[at]), row[at], NONE)
        if 2 * np.count_nonzero((inner != NONE) & ~np.append(is_of_threads, True)[inner]) > _SAMPLES:
            found[place] = covers[np.argmin(until[covers] - begins[covers])]
    return found
