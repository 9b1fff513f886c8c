"""Every strategy trains on GPUs like `single` does: `pytest -m gpu tests/runners`, on a host with two of them."""

import pytest

from traceanalyzer.runners.strategies import STRATEGIES

torch = pytest.importorskip("torch", reason="the runners need torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="needs two GPUs"),
]

BASE = "--device cuda --model tiny --profiler none --warmup 0 --steps 6 --lr 0.1 --out unused --strategy"
PIPELINES = {
    "pp_naive": "--batch 16",
    "pp_gpipe": "--batch 16 --microbatches 4 --split 3,1",
    "pp_1f1b": "--batch 16 --microbatches 8 --split 1,3",
    "tp": "--batch 16",
}
NOT_TRAINING_ALIKE = {"single", "zo_offload", "broadcast1", "broadcast2", "broadcast3", "pytorch_ddp_powersgd"}
NAMES = [name for name in STRATEGIES if name not in NOT_TRAINING_ALIKE and "deepspeed" not in name]
# Two GPUs add in another order than one, and choose other kernels for half a batch.
TOLERANCES = {"fp32": 2e-3, "bf16": 3e-2}


def line(name, dtype):
    halves = "--batch 4 --accumulate 2" if name == "simple_ddp_ga" else "--batch 8"
    return f"{BASE} {name} --dtype {dtype} {PIPELINES.get(name, halves)}"


@pytest.fixture(scope="module", params=TOLERANCES)
def losses(request, runs_of):
    """By strategy, of one element type; `single` on one GPU."""
    (single,) = runs_of([f"{BASE} single --dtype {request.param} --batch 16"], ranks=1)
    others = runs_of([line(name, request.param) for name in NAMES], ranks=2)
    found = {name: run["losses"] for name, run in zip(NAMES, others, strict=True)}
    return found | {"single": single["losses"], "tolerance": TOLERANCES[request.param]}


@pytest.mark.parametrize("name", NAMES)
def test_two_gpus_have_the_losses_of_one(losses, name):
    assert losses["single"][-1] != pytest.approx(losses["single"][0], abs=losses["tolerance"])
    assert losses[name] == pytest.approx(losses["single"], abs=losses["tolerance"])
