"""What is wrong with traces is found, and nothing else."""

import shlex
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest

from tests import once
from tests.builders import rank_trace
from tests.host_builders import host_trace
from tests.programs import program
from tests.samples import RUNS
from traceanalyzer.analyses import ANALYSES, run
from traceanalyzer.analyses.integrity.checks import EVENTS
from traceanalyzer.analyses.registry import SHARED
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankMeta, make_trace
from traceanalyzer.model.schema import TABLES
from traceanalyzer.selection import Selection, select

LAUNCH = ("cudaLaunchKernel", 0, 1)
META = RankMeta(0, "test", ("test.json",), "kineto")


def checks(*traces):
    return {(row["rank"], row["check"]): row["count"] for row in run(traces, ["integrity"])["integrity"].rows()}


def one_number():
    """Two calls of one number, one after the other."""
    trace = host_trace([("gemm", 5, 9, 1)], [LAUNCH, ("cudaLaunchKernel", 2, 3)])
    return replace(trace, api_calls=trace.api_calls.assign(correlation=1, has_gpu_op=True))


CASES = {
    "clean": (partial(host_trace, [("gemm", 5, 9, 1)], [LAUNCH]), {}),
    "a launch whose kernel is missing": (
        partial(host_trace, [("gemm", 5, 9, 1)], [LAUNCH, ("cudaLaunchKernel", 3, 4)]), {"launches_without_operation": 1}),
    "events that the profiler dropped, one of which a launch shows": (
        partial(host_trace, [("gemm", 5, 9, 1)], [LAUNCH, ("cudaLaunchKernel", 3, 4)], meta=replace(META, events_dropped=3)),
        {"launches_without_operation": 1, "dropped_events": 3}),
    "a launch inside a graph capture runs nothing": (
        partial(host_trace, [("gemm", 5, 9, 1)], [LAUNCH, ("cudaStreamBeginCapture", 10, 11), ("cudaLaunchKernel", 13, 14),
                                         ("cudaStreamEndCapture", 20, 21)]), {}),
    "a kernel whose launch is missing": (
        partial(host_trace, [("gemm", 5, 9, 1), ("gemm", 10, 12)], [LAUNCH]), {"operations_without_launch": 1}),
    "communication without arguments": (
        partial(host_trace, [("nccl", 5, 9, 1)], [LAUNCH]), {"communication_without_arguments": 1}),
    "a peer copy needs none": (partial(host_trace, [("PtoP", 5, 9, 1)], [LAUNCH]), {}),
    "two operations at once on a stream": (
        partial(host_trace, [("gemm", 5, 9, 1), ("gemm", 8, 12, 2)], [LAUNCH, LAUNCH]), {"overlaps_on_a_stream": 1}),
    "an operation inside another one of its stream": (
        partial(host_trace, [("gemm", 5, 20, 1), ("gemm", 8, 12, 2)], [LAUNCH, LAUNCH]),
        {"overlaps_on_a_stream": 1, "nested_on_a_stream": 1}),
    "an operation beside a copy from one memory of the host to another, which its CPU makes": (
        partial(host_trace, [("HtoH", 5, 20, 1), ("gemm", 8, 12, 2), ("gemm", 19, 24, 3)], [LAUNCH, LAUNCH, LAUNCH]), {}),
    "an operation inside another one, on another stream": (
        partial(host_trace, [("gemm", 5, 20, 1), ("gemm", 8, 12, 2, 8)], [LAUNCH, LAUNCH]), {}),
    "a graph that was launched and not recorded": (
        partial(host_trace, [("gemm", 5, 9, 1), ("gemm", 30, 35, 3)],
                   [LAUNCH, ("cudaGraphLaunch", 12, 14), ("cudaLaunchKernel", 20, 21)]),
        {"launches_without_operation": 1, "lost_amid_others": 1, "graphs_without_operations": 1}),
    "operations that do not say which call launched them": (
        partial(host_trace, [("gemm", 5, 9), ("gemm", 10, 12), ("gemm", 14, 16, 3)], [LAUNCH, LAUNCH, LAUNCH]),
        {"operations_without_launch": 2}),
    "two operations of one launch": (
        partial(host_trace, [("gemm", 5, 9, 1), ("gemm", 10, 12, 1)], [LAUNCH]), {"shared_launches": 2}),
    "operations of one stream in another order than their launches": (
        partial(host_trace, [("gemm", 5, 9, 2), ("gemm", 10, 12, 1)], [LAUNCH, ("cudaLaunchKernel", 2, 3)]),
        {"launches_out_of_order": 1}),
    "the same of two threads that launched at once": (
        partial(host_trace, [("gemm", 5, 9, 2), ("gemm", 10, 12, 1)], [("launch", 0, 3), ("launch", 1, 3)]), {}),
    "the same on two streams": (
        partial(host_trace, [("gemm", 5, 9, 2), ("gemm", 10, 12, 1, 8)], [LAUNCH, ("cudaLaunchKernel", 2, 3)]), {}),
    "an operation whose number two calls bear": (one_number, {"shared_launches": 1}),
    "two operations of one graph": (
        partial(host_trace, [("gemm", 5, 9, 1), ("gemm", 10, 12, 1)], [("cudaGraphLaunch", 0, 1)]), {}),
    "two operations at once on two streams": (
        partial(host_trace, [("gemm", 5, 9, 1), ("gemm", 8, 12, 2, 8)], [LAUNCH, LAUNCH]), {}),
    "no duration": (
        partial(host_trace, [("gemm", 5, 9, 1), ("gemm", 10, 10, 2)], [LAUNCH, LAUNCH]), {"operations_without_duration": 1}),
    "an operation before its launch": (
        partial(host_trace, [("gemm", 5, 9, 1)], [("cudaLaunchKernel", 7, 8)]), {"operations_before_their_launch": 1}),
    "an operation after the call that waited for it": (
        partial(host_trace, [("gemm", 5, 9, 1)], [LAUNCH, ("cudaDeviceSynchronize", 2, 8)]), {"operations_after_their_wait": 1}),
    "one that was launched after it": (
        partial(host_trace, [("gemm", 5, 9, 2)], [("cudaDeviceSynchronize", 0, 1), ("cudaLaunchKernel", 2, 3)]), {}),
    "a file that is cut off": (
        partial(host_trace, [("gemm", 5, 9, 1)], [LAUNCH], meta=replace(META, is_truncated=True, events_skipped=7)),
        {"truncated": 1, "unreadable_events": 7}),
    "a kernel whose name speaks of communication": (
        partial(host_trace, [("void mine::fast_all_reduce<8>(int)", 5, 9, 1)], [LAUNCH]), {"unknown_communication": 1}),
    "such kernels that take no time, as all others": (
        partial(host_trace, [("void mine::fast_all_reduce<8>(int)", 5, 5, 1), ("deep_gemm::sm90_fp8_mega_moe_impl<1>(int)", 7, 7, 2)],
                   [LAUNCH, ("cudaLaunchKernel", 2, 3)]), {"operations_without_duration": 2}),
    "the user has said what it is": (
        partial(host_trace, [("void mine::fast_all_reduce<8>(int)", 5, 9, 1)], [LAUNCH],
                   meta=replace(META, kind_rules=KindRules.parse(("compute=fast_all",)))), {}),
    "an operator that speaks of communication launches nothing that is known": (
        partial(host_trace, [("mystery", 5, 9, 1)], [LAUNCH], host_ops=[("mine::all_reduce", 0, 4, 1)]), {"unknown_communication": 1}),
    "an operator that speaks of communication launches a copy of PyTorch's": (
        partial(host_trace, [("void at::native::vectorized_elementwise_kernel<4>(int)", 5, 9, 1)], [LAUNCH],
                   host_ops=[("mine::all_reduce", 0, 4, 1)]), {}),
    "one that launches what is known": (
        partial(host_trace, [("gemm", 5, 9, 1), ("nccl", 10, 12, 2)], [LAUNCH, ("cudaLaunchKernel", 2, 3)],
                   host_ops=[("mine::all_reduce", 0, 4, 1)]), {"communication_without_arguments": 1}),
    "a job of two ranks without communication": (
        partial(host_trace, [("gemm", 5, 9, 1)], [LAUNCH], meta=replace(META, world_size=2)), {"no_communication": 1}),
    "a job of two ranks, kernels of no library take next to none of its time": (
        partial(host_trace, [("void at::native::reduce_kernel<1>(int)", 5, 9000, 1), ("mine", 9001, 9002, 2)],
                [LAUNCH, ("cudaLaunchKernel", 2, 3)], meta=replace(META, world_size=2)), {"without_communication": 1}),
    "a job of two ranks whose kernels are all of libraries that compute": (
        partial(host_trace, [("void at::native::reduce_kernel<1>(int)", 5, 9, 1)], [LAUNCH], meta=replace(META, world_size=2)),
        {"without_communication": 1}),
    "a kernel that computes and communicates at once": (
        partial(host_trace, [("deep_gemm::sm90_fp8_mega_moe_impl<1>(int)", 5, 9, 1)], [LAUNCH], meta=replace(META, world_size=1)),
        {"fused_kernels": 1}),
    "a rule of the user's that fits nothing": (
        partial(host_trace, [("gemm", 5, 9, 1)], [LAUNCH], meta=replace(META, kind_rules=KindRules.parse(("comm=x", "comm=gemm")))),
        {"kind_without_match": 1}),
    "no GPU operations": (host_trace, {"no_gpu_operations": 1}),
}  # fmt: skip


@pytest.mark.parametrize(("make", "expected"), CASES.values(), ids=CASES)
def test_checks_of_one_rank(make, expected):
    found = {check: count for (_, check), count in checks(make()).items() if check != "missing_ranks"}
    assert found == expected


def test_unknown_kernels_are_named_with_the_option_that_changes_them():
    names = [f"void mine::all_reduce_{number}<8>(int)" for number in range(10)]
    ops = [(name, 100 * number, 100 * number + 50 - number, 1, 31) for number, name in enumerate(names)]
    trace = host_trace([*ops, ("gemm", 2000, 2010, 2)], [LAUNCH, LAUNCH])
    (row,) = [row for row in run([trace], ["integrity"])["integrity"].rows() if row["check"] == "unknown_communication"]
    assert row["severity"] == "high"
    assert "mine::all_reduce_0" in row["sentence"]
    assert "mine::all_reduce_4" in row["sentence"]
    assert "and 2 more" in row["sentence"]
    assert "No other kernel runs on stream 31." in row["sentence"]
    assert (
        "--kernel-kind 'comm=all_reduce_0|all_reduce_1|all_reduce_2|all_reduce_3|all_reduce_4|all_reduce_5|all_reduce_6|all_reduce_7'"
        in row["sentence"]
    )


def test_the_option_that_names_a_kernel_runs_nothing_when_it_is_pasted():
    ops = [("mine::all_reduce';touch${IFS}pwned;'", 0, 50, 1, 31), ("gemm", 2000, 2010, 2)]
    rows = run([host_trace(ops, [LAUNCH, LAUNCH])], ["integrity"])["integrity"].rows()
    (said,) = [row["sentence"] for row in rows if row["check"] == "unknown_communication"]
    option, *others = shlex.split(said.partition("--kernel-kind ")[2])
    assert option.startswith("comm=all_reduce';touch")
    assert not [word for word in others if "pwned" in word]


STEPS = [(10, 20), (20, 30), (30, 40)]
IN_STEPS = [("compute", 12, 20, 11), ("compute", 22, 30, 21), ("compute", 32, 40, 31)]


@pytest.mark.parametrize(
    ("ops", "steps", "severity"),
    [
        ([("compute", 0, 8)] * 9 + IN_STEPS, STEPS, "info"),
        ([("compute", 0, 8)] * 9 + IN_STEPS, [], "medium"),
    ],
    ids=["before the steps", "without steps"],
)
def test_queued_operations_are_grave_only_where_headlines_hold_them(ops, steps, severity):
    trace = rank_trace(ops, steps=steps)
    rows = run([trace], ["integrity"])["integrity"].rows()
    assert {row["check"]: row["severity"] for row in rows}["operations_without_launch"] == severity


@pytest.mark.parametrize(("steps", "severity"), [(2, "info"), (1, "medium")])
def test_a_lost_launch_is_grave_only_without_a_complete_step(steps, severity):
    calls = [("cudaLaunchKernel", 10 * number, 10 * number + 1) for number in range(200)]
    ops = [("gemm", 10 * number + 2, 10 * number + 8, number + 1) for number in range(199)]
    ranges = [(f"ProfilerStep#{number}", 1_000 * number, 1_000 * (number + 1)) for number in range(2)][2 - steps :]
    rows = run([host_trace(ops, calls, ranges=ranges)], ["integrity"])["integrity"].rows()
    assert {row["check"]: row["severity"] for row in rows}["launches_without_operation"] == severity


def test_missing_ranks_are_named():
    traces = [rank_trace([("compute", 5, 9, 1)], rank=rank, world_size=4) for rank in (0, 3)]
    (row,) = [row for row in run(traces, ["integrity"])["integrity"].rows() if row["check"] == "missing_ranks"]
    assert (row["rank"], row["check"], row["count"], row["total"]) == (None, "missing_ranks", 2, 4)
    assert "missing: 1 and 2" in row["sentence"]


@pytest.mark.parametrize(("start", "is_different"), [(0, False), (5, False), (50, True), (99, True)])
def test_captures_that_differ_between_ranks(start, is_different):
    traces = [rank_trace([("compute", a, a + 100, -1)], rank=rank) for rank, a in enumerate((0, start))]
    assert ((None, "different_windows") in checks(*traces)) == is_different


def of_file(trace, name):
    return replace(trace, meta=replace(trace.meta, files=(name,)))


def test_ranks_of_different_jobs_are_named():
    """No shared time, and no call of one answers a call of the other although both are in the group."""
    one, other = (
        program(gpu=[(f"nccl{size}", start + at, start + at + 5, {"kind": "comm"}) for at in (0, 10)])
        for start, size in ((0, 1), (500, 2))
    )
    groups = [with_arguments(trace, elements) for trace, elements in ((one, 64), (other, 4096))]
    found = checks(groups[0], of_file(groups[1].renumbered(1, "test"), "other.json"))
    assert found[None, "different_jobs"] == 4


def test_calls_that_no_rank_answers_although_all_are_here():
    traces = [with_arguments(program(gpu=[("nccl", 0, 5, {"kind": "comm"})]), size) for size in (64, 4096)]
    found = checks(traces[0], traces[1].renumbered(1, "test"))
    assert found[None, "unanswered_calls"] == 2


def with_arguments(trace, elements):
    """All-reduces of this many elements, of ranks 0 and 1."""
    rows = range(len(trace.gpu_ops))
    args = pd.DataFrame([{
        "gpu_op": row, "start_ns": 0, "end_ns": 0, "thread": 1, "external_id": 0, "collective": "all_reduce", "group": "0",
        "group_ranks": "0,1", "group_size": 2, "dtype": "Float", "in_elements": elements, "out_elements": elements,
    } for row in rows])  # fmt: skip
    return select(make_trace(trace.meta, gpu_ops=trace.gpu_ops, comm_args=args), Selection())


def test_steps_that_not_every_rank_has():
    steps = [(0, 10), (10, 20)]
    full = rank_trace([("compute", 2, 10, 1), ("copy", 12, 20, 11)], steps=steps)
    short = rank_trace([("copy", 2, 10, 1)], steps=steps[:1], rank=1)
    assert checks(full, short)[None, "different_steps"] == 1


@pytest.mark.parametrize(("second", "is_different"), [(219, False), (130, True)])
def test_steps_that_are_shorter_on_one_rank(second, is_different):
    """Of rank 1 the second step ends early."""
    steps = [(10, 20), (20, 30)]
    traces = [
        rank_trace([("compute", 12, 120, 11), ("compute", 120, end, 21)], steps=steps, rank=rank)
        for rank, end in ((0, 220), (1, second))
    ]
    assert ((None, "different_step_lengths") in checks(*traces)) == is_different


@pytest.mark.parametrize("name", RUNS)
def test_every_row_names_results_that_exist_and_samples_lost_nothing(name):
    for row in once.results(name, ["integrity"])["integrity"].rows():
        assert set(row["affects"].split(", ")) <= {*ANALYSES, *SHARED, *TABLES, EVENTS}
        assert row["check"] in {
            "operations_without_launch", "different_windows", *(("no_shared_time",) if name == "streams" else ()),
        }  # fmt: skip
