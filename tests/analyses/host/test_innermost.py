"""Of events that hold each other, or cross, the one that began last of those that run is the innermost."""

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from traceanalyzer.analyses.host.activity import range_around

EVENTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 1)), min_size=1, max_size=12)


@given(EVENTS)
def test_the_last_of_those_that_run(events):
    rows = sorted((start, start + length, thread) for start, length, thread in events)
    rows = [row for place, row in enumerate(rows) if row[0] not in [other[0] for other in rows[:place]]]
    table = pd.DataFrame(rows, columns=["start_ns", "end_ns", "thread"])
    for thread in (0, 1):
        moments = range(45)
        found = range_around(table, pd.Series([thread] * len(moments)).to_numpy(), pd.Series(moments).to_numpy())
        for moment, row in zip(moments, found.tolist(), strict=True):
            running = [at for at, (start, end, on) in enumerate(rows) if on == thread and start <= moment < end]
            assert row == (max(running) if running else -1)
