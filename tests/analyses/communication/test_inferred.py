"""Arguments of kernels launched before the capture."""

import pandas as pd
import pytest

from traceanalyzer.analyses.communication.inferred import ARGUMENTS, with_inferred


def calls(*rows):
    """Each row: step or None, grid, size or None, stream."""
    table = pd.DataFrame(
        {
            "step": pd.array([row[0] for row in rows], dtype="Int64"),
            "grid": [row[1] for row in rows],
            "stream": [row[3] for row in rows],
            "name": "nccl",
            "arguments": [None if row[2] is None else "kernel" for row in rows],
        }
    )
    return table.assign(**dict.fromkeys(ARGUMENTS)).assign(
        size_bytes=pd.array([row[2] for row in rows], dtype="Int64"),
        sequence=pd.array([pd.NA] * len(rows), dtype="Int64"),
    )


STEP = [(1, "24", 100, 17), (1, "24", 200, 17), (1, "8", 300, 17)]
LAST = [(2, "24", 100, 17)]


@pytest.mark.parametrize(
    ("queued", "sizes"),
    [
        ([("8", 17)], [300]),
        ([("24", 17), ("8", 17)], [200, 300]),
        ([("8", 17), ("24", 17), ("24", 17), ("8", 17)], [300, 100, 200, 300]),  # the end of the step before too
        ([("24", 17), ("24", 17)], [None, None]),  # the last kernel is another one
        ([("8", 17), ("8", 17)], [None, 300]),
        ([("24", 99), ("8", 17)], [None, 300]),  # nothing is known of that stream
    ],
)
def test_queued_kernels_take_their_place_from_a_steps_end(queued, sizes):
    rows = [(None, grid, None, stream) for grid, stream in queued]
    found = with_inferred(calls(*rows, *STEP, *LAST)).head(len(rows))
    assert [None if pd.isna(size) else size for size in found["size_bytes"]] == sizes
    assert [says == "inferred" for says in found["arguments"]] == [size is not None for size in sizes]


def test_only_kernels_before_the_first_step():
    table = with_inferred(calls(*STEP, (None, "8", None, 17), *LAST))
    assert table["arguments"].isna().sum() == 1
