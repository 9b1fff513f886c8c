"""Which frame of another thread covers a stretch in which one records nothing."""

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.host.other_threads import _covering

MS = 1_000_000

_RUN = ("threading.py(1016): _bootstrap", 0, 100)


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        ([_RUN, ("prefetch.py(9): loop", 0, 100), ("prefetch.py(41): decode", 9, 21)], "prefetch.py(41): decode"),
        ([_RUN, ("prefetch.py(41): decode", 9, 18)], "prefetch.py(41): decode"),
        ([_RUN, ("prefetch.py(41): decode", 9, 17)], None),  # 7 of 10 ms
        ([_RUN, ("prefetch.py(9): loop", 0, 100), ("/usr/lib/python3.12/queue.py(154): get", 8, 30)], None),
        ([_RUN, ("prefetch.py(9): loop", 0, 100), ("multiprocessing/connection.py(1136): wait", 8, 17)], None),
        ([_RUN, ("prefetch.py(9): loop", 0, 100), ("queue.py(154): get", 17, 30)], "prefetch.py(9): loop"),
        ([_RUN], None),
    ],
    ids=["innermost", "most of it", "less", "waits", "waits for most", "waits at the end", "only begun"],
)
def test_the_innermost_frame_that_covers_most_of_it_is_named_unless_its_thread_waits(frames, named):
    table = pd.DataFrame(
        [(name, start * MS, end * MS) for name, start, end in frames], columns=["name", "start_ns", "end_ns"]
    ).astype({"name": "category"})
    (row,) = _covering(table, np.array([10 * MS]), np.array([20 * MS]))
    assert (None if row < 0 else table["name"].iloc[row]) == named
