"""The breakdown's definitions, case by case, and its sum on random traces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import rank_trace
from traceanalyzer.analyses import run


def row(trace):
    return run([trace], ["breakdown"])["breakdown"].rows()[0]


@pytest.mark.parametrize(
    ("ops", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"),
    [
        ([("compute", 0, 10), ("comm", 5, 15)], 10, 5, 0, 0),
        ([("comm", 0, 4), ("compute", 6, 10)], 4, 4, 0, 2),
        ([("compute", 0, 10), ("compute", 2, 5)], 10, 0, 0, 0),
        ([("compute", 0, 4), ("copy", 2, 8), ("comm", 6, 10)], 4, 4, 2, 0),
        ([("copy", 10, 20), ("comm", 0, 30)], 0, 30, 0, 0),
        ([("compute", 100, 110), ("compute", 150, 160)], 20, 0, 0, 40),
    ],
)
def test_parts_of_a_window(ops, compute_ns, exposed_comm_ns, exposed_copy_ns, idle_ns):
    found = row(rank_trace(ops))
    assert found["compute_ns"] == compute_ns
    assert found["exposed_comm_ns"] == exposed_comm_ns
    assert found["exposed_copy_ns"] == exposed_copy_ns
    assert found["idle_ns"] == idle_ns


def test_columns_are_those_of_summary_json():
    names = "rank window_ns compute_ns fused_ns exposed_comm_ns exposed_copy_ns opaque_ns idle_ns comm_ns overlap_pct"
    assert list(row(rank_trace([("compute", 0, 1)]))) == names.split()


@given(
    st.lists(
        st.tuples(st.sampled_from(["compute", "comm", "copy"]), st.integers(0, 50), st.integers(0, 20)),
        min_size=1,
        max_size=15,
    )
)
def test_parts_match_brute_force(ops):
    ops = [(kind, start, start + length) for kind, start, length in ops]
    found = row(rank_trace(ops))
    busy = {
        kind: {t for k, start, end in ops if k == kind for t in range(start, end)}
        for kind in ("compute", "comm", "copy")
    }
    window = set(range(min(op[1] for op in ops), max(op[2] for op in ops)))
    assert found["window_ns"] == len(window)
    assert found["compute_ns"] == len(busy["compute"])
    assert found["exposed_comm_ns"] == len(busy["comm"] - busy["compute"])
    assert found["exposed_copy_ns"] == len(busy["copy"] - busy["compute"] - busy["comm"])
    assert found["idle_ns"] == len(window - set.union(*busy.values()))
