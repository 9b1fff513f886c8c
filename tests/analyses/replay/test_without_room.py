"""Kernels that start late because another stream's compute kernel fills the GPU."""

import pandas as pd
import pytest

from traceanalyzer.analyses.replay.event_waits import without_room

US = 1000


@pytest.mark.parametrize("kind", ["comm", "compute"])
@pytest.mark.parametrize(
    ("kernel", "late_us", "found"),
    [
        ((0, 1000), 890, True),
        ((0, 1000), 400, False),
        ((200, 1000), 890, False),
        ((0, 100), 60, True),
        ((0, 1000), 0, False),
    ],
    ids=["in its last blocks", "in the middle", "held before it began", "short kernel", "nothing unexplained"],
)
def test_it_waits_for_a_kernel_that_ran_all_the_while_and_was_nearly_done(kind, kernel, late_us, found):
    begin, end = kernel
    start = max(late_us, 1)
    ops = pd.DataFrame(
        {
            "stream": [7, 19],
            "kind": pd.Categorical(["compute", kind]),
            "start_ns": [begin * US, start * US],
            "duration_ns": [(end - begin) * US, 50 * US],
        }
    )
    waits = without_room(ops, pd.Series([0, late_us * US]).to_numpy())
    assert waits[["source", "target"]].to_numpy().tolist() == ([[0, 1]] if found else [])
    assert not waits["is_recorded"].any()


def test_a_copy_needs_no_room():
    ops = pd.DataFrame(
        {
            "stream": [7, 19],
            "kind": pd.Categorical(["compute", "copy"]),
            "start_ns": [0, 890 * US],
            "duration_ns": [1000 * US, 50 * US],
        }
    )
    assert without_room(ops, pd.Series([0, 890 * US]).to_numpy()).empty
