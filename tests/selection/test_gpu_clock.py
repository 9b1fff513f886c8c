"""A GPU whose clock is not its host's is set by it; a long queue is none."""

import numpy as np
import pytest

import traceanalyzer as ta
from tests.host_builders import host_trace
from tests.simulator import capture, kineto, run, spoiled
from tests.simulator.jobs import launches
from traceanalyzer.selection import clock_ahead_ns

OPS = 300


@pytest.fixture(scope="module")
def recorded():
    return capture(run(launches.small_kernels()))


def results(recorded, folder, by_us, ranks):
    kineto.write(recorded, folder)
    spoiled.gpu_clock(by_us, *ranks)(folder)
    return ta.analyse(ta.load(folder), "ranks", "idle")


@pytest.mark.parametrize(("by_us", "ranks"), [(1_000, range(4)), (5_000, [1]), (-5_000, [1])])
def test_a_shifted_gpu_clock_changes_no_cause_of_idle_time(by_us, ranks, recorded, tmp_path):
    plain, shifted = (
        results(recorded, tmp_path / str(by), by, own) for by, own in ((0, ()), (by_us, ranks))
    )  # an operation starts some 8 µs after its launch, which is not known
    columns = ["host_ns", "sync_ns", "unknown_ns", "between_kernels_ns"]
    table = plain["idle"].table
    apart = (shifted["idle"].table[columns] - table[columns]).abs().to_numpy(dtype=float)
    assert (apart <= 8_000 * table["gaps"].to_numpy(dtype=float)[:, None]).all()
    said = shifted["ranks"].table.set_index("rank")["notes"].dropna()
    assert set(said.index) == set(ranks)
    assert said.str.contains("ahead of" if by_us > 0 else "behind").all()


def behind(delays):
    """Operations with gaps before them that start so long after the calls that launched them."""
    starts = 10**9 + 20_000 * np.arange(len(delays))
    ops = [("gemm", int(start), int(start) + 10_000, number) for number, start in enumerate(starts, 1)]
    calls = [
        ("cudaLaunchKernel", int(start - delay) - 5_000, int(start - delay))
        for start, delay in zip(starts, delays, strict=True)
    ]
    return host_trace(ops, calls)


@pytest.mark.parametrize(
    "delays",
    [
        np.linspace(10**6, 9 * 10**6, OPS),  # a queue
        np.full(OPS, 40_000),  # launch latency can be so long
        np.append(np.full(OPS, 10**6), 3_000),  # one that starts at once
        np.full(50, 10**6),  # no sample
    ],
)
def test_what_is_no_clock(delays):
    assert clock_ahead_ns(behind(delays)) == 0
