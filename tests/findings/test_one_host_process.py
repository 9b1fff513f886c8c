"""One process that drives several GPUs is one host, and not as many as there are GPUs."""

import pytest

import traceanalyzer as ta
from tests.asked import said_of
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
    found = said_of(*ta.load(tmp_path))
    return [finding.title for finding in found if finding.rule == "host_bound"]


def test_the_host_of_several_gpus_is_one(tmp_path):
    [title] = titles(tmp_path, 2)
    assert title.startswith("The one host process of both GPUs is late: its GPUs idle ")


def test_of_one_gpu_it_is_the_ranks_own(tmp_path):
    [title] = titles(tmp_path, 1)
    assert title.startswith("Rank 0's GPU idles ")


def data_parallel(folder, operators=("Scatter", "Broadcast", "Gather")):
    """Two GPUs of one process; a broadcast ends 400 µs later on the one than on the other."""
    held = [event for device in (0, 1) for event in events(device, device + 1)]
    for number in range(6):
        for device in (0, 1):
            one, start = 1000 * (device + 1) + number, 2200 + 900 * number
            held += [
                host(start, 9, name="cudaLaunchKernel", cat="cuda_runtime", correlation=one),
                kernel(start + 20, 300 + 400 * device, name="ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                       stream=9, device=device, correlation=one),
            ]  # fmt: skip
    held += [host(100 + 20 * place, 10, name=name) for place, name in enumerate(operators)]
    return ta.load(write(folder / "all.json", document(held)).parent)


def test_broadcasts_of_one_process_have_their_partners(tmp_path):
    traces = data_parallel(tmp_path)
    waits = ta.analyse(traces, "call_waits")["call_waits"].to_frame()
    assert waits["instance"].notna().all()
    assert set(waits["why_not_split"]) == {"has one root: its ranks do not wait alike"}
    assert "unmatched_calls" not in {finding.rule for finding in said_of(*traces)}


@pytest.mark.parametrize(
    ("operators", "is_named"),
    [(("Scatter", "Broadcast", "Gather"), True), (("Broadcast",), False)],
)
def test_data_parallel_is_named(tmp_path, operators, is_named):
    [first] = [found for found in said_of(*data_parallel(tmp_path, operators)) if found.rule == "host_bound"]
    assert first.recommendation.startswith("nn.DataParallel") is is_named
