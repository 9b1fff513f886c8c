"""Events whose times cannot be are left out, and what belongs to the others stays theirs."""

import pandas as pd
import pytest

from traceanalyzer.model.make import possible

SECOND = 10**9
DAY = 24 * 3600 * SECOND


def frames(odd_ns):
    """Twenty operations, the third at another time, and the arguments of the third and the fourth."""
    starts = [odd_ns if row == 2 else row * 1000 for row in range(20)]
    ops = pd.DataFrame({"start_ns": starts, "end_ns": [start + 500 for start in starts]})
    args = pd.DataFrame({"start_ns": [2000, 3000], "end_ns": [2500, 3500], "gpu_op": [2, 3]})
    return {"gpu_ops": ops, "comm_args": args}


@pytest.mark.parametrize(
    ("odd_ns", "recorded", "left_out"),
    [
        (2000, (0, 20_000), 0),
        (2 * DAY, (None, None), 1),
        (20 * SECOND, (None, None), 0),
        (20 * SECOND, (0, 20_000), 1),
        (-20 * SECOND, (0, 20_000), 1),
        (9 * SECOND, (0, 20_000), 0),
    ],
    ids=["none", "days later", "long after, nothing says how long", "long after the end", "long before", "soon after"],
)
def test_operations_that_no_recording_holds(odd_ns, recorded, left_out):
    found = possible(frames(odd_ns), recorded)
    assert (found.left_out, len(found.frames["gpu_ops"])) == (left_out, 20 - left_out)
    assert found.frames["comm_args"]["gpu_op"].tolist() == ([2] if left_out else [2, 3])


def test_many_of_them_are_another_clock():
    ops = pd.DataFrame({"start_ns": [0, 1, 20 * SECOND, 21 * SECOND]}).assign(end_ns=22 * SECOND)
    assert possible({"gpu_ops": ops}, (0, 1000)).left_out == 0
