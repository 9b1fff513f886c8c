"""A process that drives several GPUs does on each what it launches there."""

import pytest

import traceanalyzer as ta
from tests.builders import document, host, kernel, write

FLOPS = 2 * 64**3


@pytest.mark.parametrize(
    ("devices", "flops"), [((0, 1), [FLOPS, FLOPS]), ((0, None), [2 * FLOPS])], ids=["another GPU's", "unrecorded"]
)
def test_flops_are_of_the_gpu_that_does_them(tmp_path, devices, flops):
    """Two threads with a product each; one of which no GPU has an operation counts, for it may have been lost."""
    events = [host(0, 100, name="ProfilerStep#1", cat="user_annotation", thread=1)]
    for number, device in enumerate(devices, 1):
        shapes = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
        events += [
            host(10, 20, name="aten::mm", thread=number, **{"External id": number}, **shapes),
            host(15, 2, name="cudaLaunchKernel", cat="cuda_runtime", thread=number, correlation=number),
        ]
        events += [] if device is None else [kernel(40, 20, name="sgemm", device=device, correlation=number)]
    write(tmp_path / "rank0.json", document(events))
    assert ta.mfu(ta.load(tmp_path)).table["model_flops"].tolist() == flops
