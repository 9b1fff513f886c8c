from tests.builders import rank_trace
from tests.host_builders import host_trace
from traceanalyzer.analyses import run

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


def test_selected_steps_only_and_calls_keep_their_number():
    trace = rank_trace(OPS, steps=[(0, 15), (15, 30)], wanted="1")
    results = run([trace], ["timeline", "calls"])
    [row] = results["timeline"].rows()
    assert (row["operation"], row["call"]) == (1, 0)
    assert [call["call"] for call in results["calls"].rows()] == [0]


def test_host_events_have_the_depth_of_what_they_lie_in():
    events = [
        ("a", 0, 100, 1),
        ("a", 0, 100, 1),
        ("b", 10, 20, 1),
        ("c", 50, 60, 1),
        ("d", 120, 130, 1),
        ("e", 5, 9, 2),
    ]
    trace = host_trace([("gemm", 0, 200)], host_ops=events)
    rows = run([trace], ["host_events"])["host_events"].rows()
    assert [(row["name"], row["depth"], row["event"]) for row in rows] == [
        ("a", 0, 0), ("a", 1, 1), ("b", 2, 2), ("c", 2, 3), ("d", 0, 4), ("e", 0, 5),
    ]  # fmt: skip
