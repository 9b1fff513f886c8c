"""GPUs that another process has when work could start."""

from tests.asked import said_of
from tests.host_builders import host_trace
from traceanalyzer.model import RankMeta

US = 1_000


def stragglers(*delays_us):
    """What is said of stragglers in three steps of a GPU whose operations start so late in turn."""
    calls, ops, steps, now = [], [], [], 0
    for step in range(3):
        began = now
        for place in range(12):
            calls.append(("cudaLaunchKernel", now, now + 10 * US))
            start = now + 20 * US + delays_us[place % len(delays_us)] * US
            ops.append((f"kernel {place % 4}", start, start + 200 * US, len(calls)))
            calls.append(("cudaStreamSynchronize", now + 15 * US, start + 210 * US))
            now = start + 300 * US
        steps.append((f"ProfilerStep#{step}", began, now))
    meta = RankMeta(0, "test", ("test.json",), "kineto", device=0, device_name="NVIDIA H200")
    every = said_of(host_trace(ops, calls, ranges=steps, meta=meta))
    return [(item.headline, item.severity) for item in every if item.kind == "straggler"]


def test_operations_of_any_kind_start_late_by_a_slice():
    assert stragglers(0, 2_200, 0, 2_390, 5, 2_280, 2_150) == [
        ("Straggler: rank 0 shares its GPU with another process.", "high")
    ]


def test_a_clock_that_is_off_shares_no_gpu():
    assert stragglers(2_200, 2_204, 2_202, 2_207, 2_201) == []


def test_delays_of_unlike_length_have_other_causes():
    assert stragglers(0, 400, 0, 1_390, 5, 2_900, 750) == []
