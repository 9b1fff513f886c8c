"""Steps that do not follow each other: every figure is that of the one step and that of the other, together."""

from functools import cache

import pandas as pd
import pytest

import traceanalyzer as ta
from tests.samples import SAMPLES
from traceanalyzer.analyses import run

SUMS = {
    "breakdown": (["rank"], ["window_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"]),
    "ranks": (["rank"], ["window_ns"]),
    "exposed_comm": (["rank"], ["exposed_transfer_ns", "exposed_wait_ns", "exposed_unmatched_ns"]),
    "idle": (["rank"], ["sync_ns", "data_ns", "host_ns", "launch_ns", "unknown_ns", "between_kernels_ns"]),
    "phases": (["rank", "phase"], ["compute_ns", "exposed_comm_ns", "idle_ns", "operations"]),
    "streams": (["rank", "stream"], ["busy_ns"]),
    "stream_pairs": (["rank", "first", "second"], ["both_ns", "first_ns", "second_ns"]),
    "launches": (["rank"], ["operations", "window_ns", "empty_queue_ns"]),
    "gaps": (["rank"], ["length_ns"]),
    "gpu_utilization": (["rank"], ["length_ns", "busy_ns", "idle_ns"]),
    "exposed_calls": (["rank"], ["transfer_ns", "wait_ns", "unmatched_ns"]),
    "nccl": (["rank"], ["calls", "total_ns"]),
}
"""By what rows are summed, and the columns that are, of each analysis."""


@cache
def analysed(name, steps):
    return run(ta.load(SAMPLES / name, steps=steps).ranks, [*SUMS, "gaps", "steps", "timeline"])


def summed(name, steps, analysis):
    keys, columns = SUMS[analysis]
    frame = analysed(name, steps)[analysis].to_frame()
    if "step" in frame and analysis in ("exposed_comm", "idle", "phases"):
        frame = frame[frame["step"].isna()]
    return frame.groupby(keys)[columns].sum().astype("int64")


@pytest.mark.parametrize("name", ["ddp", pytest.param("fsdp_full", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("analysis", SUMS)
def test_two_steps_apart_are_their_sum(name, analysis):
    both, first, second = (summed(name, steps, analysis) for steps in ("2,4", "2", "4"))
    assert len(both)
    pd.testing.assert_frame_equal(both, first.add(second, fill_value=0).astype("int64"))


def test_the_step_between_is_in_no_figure():
    results = analysed("ddp", "2,4")
    row = results["breakdown"].rows()[0]
    assert row["window_ns"] == 128_853_481
    calls = results["nccl"].to_frame()
    assert calls.loc[calls["rank"] == 0, "total_ns"].sum() == row["comm_ns"]
