"""One process that drives several GPUs is one host, and not as many as there are GPUs."""

import traceanalyzer as ta
from tests.builders import document, host, kernel, write


def events(device, thread):
    """Kernels of 5 µs, each launched 95 µs after the one before has ended."""
    numbers = range(1, 21)
    ids = [100 * (device + 1) + number for number in numbers]
    calls = [
        host(100 * n, 3, name="cudaLaunchKernel", cat="cuda_runtime", thread=thread, correlation=one)
        for n, one in zip(numbers, ids, strict=True)
    ]
    return calls + [kernel(100 * n + 4, 5, device=device, correlation=one) for n, one in zip(numbers, ids, strict=True)]


def titles(tmp_path, devices):
    held = [event for device in range(devices) for event in events(device, device + 1)]
    write(tmp_path / "all.json", document(held))
    found = ta.find(ta.load(tmp_path))
    return [finding.title for finding in found if finding.rule == "host_bound"]


def test_the_host_of_several_gpus_is_one(tmp_path):
    [title] = titles(tmp_path, 2)
    assert title.startswith("The one host process of both GPUs is late: its GPUs idle ")


def test_of_one_gpu_it_is_the_ranks_own(tmp_path):
    [title] = titles(tmp_path, 1)
    assert title.startswith("Rank 0's host is late: ")
