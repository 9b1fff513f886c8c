"""Which phase launched what, and that phases add up to the breakdown."""

import pytest

from tests import once
from tests.host_builders import host_trace
from tests.samples import OF_EACH_KIND
from traceanalyzer.analyses import run
from traceanalyzer.analyses.phases.phases import NAMES, op_phases

CALL = ("cudaLaunchKernel", 10, 11, 1)
AUTOGRAD = "autograd::engine::evaluate_function: MmBackward0"

CASES = {
    "a range on the launching thread": ({"ranges": [("forward", 0, 20)]}, "forward"),
    "the innermost range": ({"ranges": [("forward", 0, 20), ("data", 5, 15)]}, "data"),
    "a range that has ended": ({"ranges": [("forward", 0, 10)]}, "unattributed"),
    "another thread's range": ({"ranges": [("backward", 0, 20, 2)]}, "backward"),
    "this thread's range before another's": ({"ranges": [("forward", 0, 20, 1), ("backward", 5, 20, 2)]}, "forward"),
    "an autograd node": ({"host_ops": [(AUTOGRAD, 0, 20, 1)]}, "backward"),
    "an autograd node of another thread": ({"host_ops": [(AUTOGRAD, 0, 20, 2)]}, "unattributed"),
    "recomputation: a forward range inside a node": (
        {"host_ops": [(AUTOGRAD, 0, 20, 1)], "ranges": [("forward", 5, 15)]}, "backward"),
    "an optimizer that steps inside a node": (
        {"host_ops": [(AUTOGRAD, 0, 20, 1)], "ranges": [("Optimizer.step#SGD.step", 5, 15)]}, "optimizer"),
    "an operator whose node autograd runs": (
        {"host_ops": [("aten::mm", 5, 15, 1, 42, 0), ("MmBackward0", 30, 40, 2, 42, 1)]}, "forward"),
    "an operator that only notes the next node's number": (
        {"host_ops": [("aten::div_", 5, 15, 1, 42, 0), ("aten::mm", 16, 18, 1, 42, 0), ("MmBackward0", 30, 40, 2, 42, 1)]},
        "unattributed"),
    "a plain collective makes no node": (
        {"host_ops": [("c10d::allreduce_", 5, 15, 1, 42, 0), ("MmBackward0", 30, 40, 2, 42, 1)]}, "unattributed"),
    "an operator whose node is never run": ({"host_ops": [("aten::mm", 5, 15, 1, 42, 0)]}, "unattributed"),
    "nothing": ({}, "unattributed"),
}  # fmt: skip


@pytest.mark.parametrize(("host", "phase"), CASES.values(), ids=CASES)
def test_phase_of_an_operation(host, phase):
    trace = host_trace([("gemm", 20, 30, 1)], [CALL], **host)
    assert NAMES[op_phases(trace)[0]] == phase


def test_an_operation_without_launch_is_unattributed():
    trace = host_trace([("gemm", 12, 30)], [CALL], ranges=[("forward", 0, 40)])
    assert NAMES[op_phases(trace)[0]] == "unattributed"


def test_overlapping_phases_are_attributed_once():
    """Backward's all-reduce hides under the optimizer's kernel, which counts; idle belongs to what ends it."""
    ops = [
        ("gemm", 10, 30, 1),
        ("nccl", 20, 60, 2, 17),
        ("gemm", 40, 50, 3),
        ("gemm", 45, 55, 4, 8),
        ("HtoD", 70, 80, 5),
    ]
    calls = [("cudaLaunchKernel", number, number + 1) for number in range(1, 6)]
    ranges = [("forward", 0, 2), ("backward", 2, 3), ("optimizer", 3, 4), ("forward", 4, 5), ("data", 5, 6)]
    rows = run([host_trace(ops, calls, ranges=ranges)], ["phases"])["phases"].to_frame()
    parts = ["compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"]
    assert dict(zip(rows["phase"], rows[parts].to_numpy().tolist(), strict=True)) == {
        "forward": [20 + 5, 0, 0, 0],  # 10..30, and 50..55 that the optimizer's kernel leaves
        "backward": [0, 10 + 5, 0, 0],  # 30..40 and 55..60
        "optimizer": [10, 0, 0, 0],
        "data": [0, 0, 10, 10],
    }
    assert rows["total_ns"].sum() == 70


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_phases_add_up_on_samples(name):
    results = once.results(name, ["phases", "breakdown", "steps", "comm_phases"])
    phases = results["phases"].to_frame()
    names = ["compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"]
    whole = phases[phases["step"].isna()].groupby("rank")[names].sum()
    breakdown = results["breakdown"].to_frame().set_index("rank")
    assert whole.to_numpy().tolist() == breakdown[names].to_numpy().tolist()
    assert (phases.groupby(["rank", "step"], dropna=False)["share_pct"].sum().sub(100).abs() < 1e-6).all()
    steps = results["steps"].to_frame().dropna(subset=["idle_ns"])
    by_step = phases.dropna(subset=["step"]).groupby(["rank", "step"])[names].sum()
    assert by_step.to_numpy().tolist() == steps[names].to_numpy().tolist()
    comm_phases = results["comm_phases"].to_frame()
    assert comm_phases["exposed_ns"].sum() == breakdown["exposed_comm_ns"].sum()


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_transfer_and_wait_by_phase_are_those_of_exposed_communication(name):
    results = once.results(name, ["phases", "exposed_comm"])
    parts = ["exposed_transfer_ns", "exposed_wait_ns", "exposed_unmatched_ns"]
    by_window = results["phases"].to_frame().groupby(["rank", "step"], dropna=False)[parts].sum()
    expected = results["exposed_comm"].to_frame().set_index(["rank", "step"])[parts]
    assert by_window.sort_index().to_numpy().tolist() == expected.sort_index().to_numpy().tolist()


def test_ddp_knows_its_phases():
    frame = once.results("ddp", ["phases"])["phases"].to_frame()
    whole = frame[frame["step"].isna() & (frame["rank"] == 0)].set_index("phase")["operations"]
    assert whole.to_dict() == {"forward": 828, "backward": 2736, "optimizer": 33, "data": 3, "unattributed": 3}
