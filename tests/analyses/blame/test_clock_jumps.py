"""Whose clock is set, and who only needs longer."""

import pandas as pd
import pytest

from traceanalyzer.analyses.blame.clock_jumps import clock_jumps_ns
from traceanalyzer.analyses.blame.step_parts import OWN_PARTS

MS = 1_000_000


@pytest.mark.parametrize(("always_ms", "is_set"), [(0, True), (1.9, False)])
def test_a_rank_that_always_needs_more_has_no_clock_that_is_set(always_ms, is_set):
    """Rank 0 ends its first step 2 ms late, rank 2 needs more than all: of four the median is no measure of rank 0."""
    more_ms = [always_ms, 0, 6, 0]
    rows = [
        {"rank": rank, "step": step, "begin_ns": 0, "end_ns": (20 + 2 * (rank == step == 0)) * MS, "compute_ns":
         (10 + more_ms[rank]) * MS}
        for rank in range(4)
        for step in range(4)
    ]  # fmt: skip
    rest = dict.fromkeys((*OWN_PARTS, "exposed_wait_ns"), 0) | {"is_partial": False}
    table = pd.DataFrame(rows).assign(**{name: value for name, value in rest.items() if name != "compute_ns"})
    calls = pd.DataFrame({"rank": range(4), "step": 0, "end_ns": 0, "instance": pd.NA})
    jumps = clock_jumps_ns(table, calls)
    assert jumps.dropna().tolist() == [2 * MS] * is_set


@pytest.mark.parametrize(("set_ms", "is_set"), [(2, True), (0, False)])
def test_whose_calls_end_with_their_partners_has_no_clock_that_is_set(set_ms, is_set):
    """Rank 0's first step is longer by 2 ms; in the next one its calls end that much later beside the others', or not."""
    rows = [
        {"rank": rank, "step": step, "begin_ns": 0, "end_ns": (20 + 2 * (rank == step == 0)) * MS}
        for rank in range(4)
        for step in range(4)
    ]
    table = pd.DataFrame(rows).assign(**dict.fromkeys((*OWN_PARTS, "exposed_wait_ns"), 0), is_partial=False)
    calls = pd.DataFrame(rows).assign(instance=[step for _ in range(4) for step in range(4)])
    calls["end_ns"] = calls["step"] * 20 * MS + set_ms * MS * ((calls["rank"] == 0) & (calls["step"] > 0))
    assert clock_jumps_ns(table, calls).dropna().tolist() == [2 * MS] * is_set
