"""How much longer a rank computes by more or larger operators."""

import pandas as pd
import pytest

from traceanalyzer.analyses.blame.amounts import more_work_ns
from traceanalyzer.analyses.blame.what_ran import MOST_NAMES, OPERATOR


def rows(rank, names):
    return [(rank, 1, "compute_ns", OPERATOR, name, ns, calls, 0) for name, (ns, calls) in names.items()]


def test_what_a_rank_of_many_shapes_has_no_room_for_is_not_nothing():
    """Rank 1 runs three quarters of what rank 0 runs, and as many operators of another shape: of these all are kept."""
    both = {f"aten::add of [4, {number}]": (40, 4) for number in range(MOST_NAMES // 2)}
    own = {f"aten::add of [12, {number}]": (31, 1) for number in range(MOST_NAMES)}
    columns = ["rank", "step", "part", "what", "name", "total_ns", "calls", "blocks"]
    work = pd.DataFrame([*rows(0, both), *rows(1, own)], columns=columns)
    # Three of four take 30 each: less than the shortest that is kept.
    expected = (31 * MOST_NAMES + 30 * len(both)) - 40 * len(both)
    assert more_work_ns(work, 1, [0], [1])[1] == pytest.approx(expected, rel=0.03)
