"""Work that a loop repeats tensor by tensor."""

import pytest

from tests.asked import said_of
from tests.findings.of_job import said
from tests.host_builders import host_trace
from tests.simulator import workloads as usual
from tests.simulator.faults import Fault
from tests.simulator.jobs import optimizers, turns

LOOP = Fault("loop", 0, (0, 1))


def test_an_average_of_weights():
    (one,) = said(turns.averaged(faults=(LOOP,)), "per_tensor_work")
    assert one.headline == "Per-tensor loop: 300 launches per step in update_average."
    assert one.why == (
        "aten::mul_, aten::add_ run for one tensor after the other, 150 per step: 8.08 ms/step of rank 1's CPU."
    )
    assert one.fix == "torch._foreach_mul_, torch._foreach_add_ and the like take the list of all tensors in one call."


def test_an_optimizer_by_parameter_launches_and_reads_them_again_in_each_operator():
    (one,) = said(optimizers.looped_optimizer(), "per_tensor_work")
    assert one.fix.startswith("Optimizer with fused=True")
    assert {change.part for change in one.changes} == {"loop", "operator"}


def test_rows_picked_by_a_mask_wait_in_each_turn():
    (one,) = said(turns.picked(faults=(LOOP,)), "per_tensor_work")
    assert one.fix == "torch.where or a product with the mask, no boolean indexing."


def test_layers_are_no_loop():
    assert not said(usual.ddp(ranks=2, steps=4), "per_tensor_work")


@pytest.mark.parametrize(
    ("place", "around", "fix"),
    [
        (
            "DistributedDataParallel.forward",
            "aten::copy_",
            "DistributedDataParallel(broadcast_buffers=False), if ranks need not share buffers such as BatchNorm's.",
        ),
        (
            "backward",
            "torch.distributed.ddp.reducer::copy_bucket_to_grad",
            "DistributedDataParallel(gradient_as_bucket_view=True): gradients stay in its buckets.",
        ),
        ("load", "aten::copy_", "torch._foreach_copy_ takes the list of all tensors in one call."),
    ],
    ids=["buffers", "gradients", "others"],
)
def test_copies(place, around, fix):
    calls, ops, copies, ranges = [], [], [], []
    for step in range(3):
        begin = step * 4_000_000
        ranges += [(f"ProfilerStep#{step}", begin, begin + 4_000_000), (place, begin, begin + 3_900_000)]
        for tensor in range(150):
            start = begin + tensor * 25_000
            copies += [(around, start, start + 24_000), ("aten::copy_", start + 1_000, start + 23_000)]
            calls.append(("cudaLaunchKernel", start + 5_000, start + 20_000))
            ops.append((f"copy of {tensor % 3}", start + 21_000, start + 23_000, len(calls) - 1))
    found = said_of(host_trace(ops, calls, host_ops=copies, ranges=ranges))
    (one,) = [finding for finding in found if finding.kind == "per_tensor_work"]
    assert one.fix == fix
