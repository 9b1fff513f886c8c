import pandas as pd
import pytest

from tests.builders import rank_trace
from traceanalyzer.analyses import run
from traceanalyzer.model import make_trace
from traceanalyzer.selection import Selection, select

OPS = [("compute", 5, 40, 1), ("comm", 20, 60, 16), ("copy", 70, 80), ("comm", 85, 90, 84)]


def test_each_operation_with_its_step_call_and_launch():
    rows = run([rank_trace(OPS, steps=[(0, 15), (15, 30)])], ["timeline"])["timeline"].rows()
    seen = [(row["kind"], row["step"], row["call"], row["launch"], row["launch_start_ns"]) for row in rows]
    assert seen == [
        ("compute", 0, None, "cudaLaunchKernel", 1),
        ("comm", 1, 0, "cudaLaunchKernel", 16),
        ("copy", None, None, None, None),
        ("comm", None, 1, "cudaLaunchKernel", 84),
    ]


def test_each_operation_names_the_operator_and_the_ranges_that_launched_it():
    trace = with_ranges((0, 20, "forward", 1), (0, 3, "block", 1))
    ops = pd.DataFrame({"start_ns": [0], "end_ns": [2], "name": ["aten::mm"], "thread": [1], "shapes": ["[[4, 8]]"]})
    tables = {name: trace.table(name) for name in ("gpu_ops", "api_calls", "ranges")}
    rows = run([select(make_trace(trace.meta, **tables, host_ops=ops), Selection())], ["timeline"])["timeline"].rows()
    assert [(row["operator"], row["shapes"], row["path"]) for row in rows] == [
        ("aten::mm", "[[4, 8]]", "forward/block"),
        (None, None, "forward"),
        (None, None, None),
        (None, None, None),
    ]


def test_selected_steps_only_and_calls_keep_their_number():
    trace = rank_trace(OPS, steps=[(0, 15), (15, 30)], wanted="1")
    results = run([trace], ["timeline", "calls"])
    [row] = results["timeline"].rows()
    assert (row["operation"], row["call"]) == (1, 0)
    assert [call["call"] for call in results["calls"].rows()] == [0]


def test_names_of_all_ranks_stay_categorical():
    table = run([rank_trace(OPS), rank_trace(OPS[:1], rank=1)], ["timeline"])["timeline"].table
    assert isinstance(table["name"].dtype, pd.CategoricalDtype)
    assert table.groupby("rank").size().to_dict() == {0: 4, 1: 1}


def with_ranges(*ranges):
    trace = rank_trace(OPS)
    tables = {name: trace.table(name) for name in ("gpu_ops", "api_calls")}
    frame = pd.DataFrame(ranges, columns=["start_ns", "end_ns", "name", "thread"])
    return select(make_trace(trace.meta, **tables, ranges=frame), Selection())


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(0, 20, "forward", 1)], [("forward", 0, 5, 60, 2)]),
        ([(0, 20, "outer", 1), (10, 20, "inner", 1)], [("outer", 0, 5, 60, 2), ("inner", 1, 20, 60, 1)]),
        ([(0, 20, "a", 1), (1, 20, "b", 1), (1, 19, "c", 1)], [("a", 0, 5, 60, 2), ("b", 1, 5, 60, 2)]),
        ([(0, 20, "main", 1), (5, 30, "other thread", 2)], [("main", 0, 5, 60, 2), ("other thread", 0, 20, 60, 1)]),
        ([(0, 20, "nccl:all_reduce", 1), (0, 20, "ProfilerStep#3", 1)], []),
        ([(200, 300, "launches nothing", 1)], []),
    ],
)
def test_a_range_lies_where_the_operations_it_launched_lie(ranges, expected):
    rows = run([with_ranges(*ranges)], ["gpu_ranges"])["gpu_ranges"].rows()
    seen = [(row["name"], row["depth"], row["start_ns"], row["end_ns"], row["operations"]) for row in rows]
    assert seen == expected
