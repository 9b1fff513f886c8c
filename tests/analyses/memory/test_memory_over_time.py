"""Peaks, steps and sources of memory, from `[memory]` events."""

import pandas as pd
import pytest

import traceanalyzer as ta
from tests.builders import document, kernel, write
from tests.samples import RUNNERS


def memory(time_us, allocated, reserved=1000, tid=1):
    args = {"Total Allocated": allocated, "Total Reserved": reserved, "Device Id": 0, "Device Type": 1}
    return {"ph": "i", "name": "[memory]", "ts": time_us, "tid": tid, "args": args}


def host(cat, name, start, length, tid=1):
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": length, "pid": 1, "tid": tid, "args": {}}


def traces(folder, *events):
    steps = [host("user_annotation", f"ProfilerStep#{number}", 100 * number, 90) for number in (1, 2, 3)]
    write(folder / "rank0.json", document([kernel(0, 500), *steps, *events], rank=0, world_size=1))
    return ta.load(folder)


LEAK = [
    memory(50, 100), memory(110, 400), memory(120, 150), memory(210, 450), memory(220, 200), memory(310, 500, 2000), memory(320, 250),
]  # fmt: skip


def test_steps_that_leave_more_than_they_found(tmp_path):
    rows = ta.memory_steps(traces(tmp_path, *LEAK)).to_frame()
    assert rows["growth_bytes"].tolist() == [50, 50, 50]
    assert rows["start_bytes"].tolist() == [100, 150, 200]
    assert rows["peak_allocated_bytes"].tolist() == [400, 450, 500]
    assert rows["peak_reserved_bytes"].tolist() == [1000, 1000, 2000]


def test_a_step_that_only_frees_peaks_at_its_start(tmp_path):
    rows = ta.memory_steps(traces(tmp_path, memory(110, 300), memory(210, 200))).to_frame()
    assert rows["peak_allocated_bytes"].tolist() == [300, 300]
    assert rows["start_bytes"].tolist() == [pd.NA, 300]


def test_the_peak_names_step_phase_operator_and_module(tmp_path):
    around = [
        host("cpu_op", "aten::mm", 205, 10), host("user_annotation", "forward", 204, 20), host("python_function", "nn.Module: Linear_0", 203, 30),
        host("cpu_op", "aten::add", 200, 50, tid=2),
    ]  # fmt: skip
    (row,) = ta.memory_peaks(traces(tmp_path, memory(150, 10), memory(210, 90), memory(260, 20), *around)).rows()
    told = tuple(row[name] for name in ("peak_allocated_bytes", "step", "phase", "operator", "module"))
    assert told == (90, 2, "forward", "aten::mm", "Linear_0")


def test_sources_add_up_to_the_change(tmp_path):
    around = [host("cpu_op", "aten::mm", 108, 4), host("cpu_op", "aten::mm", 208, 4)]
    rows = ta.memory_sources(traces(tmp_path, *LEAK, *around)).to_frame()
    assert rows["stays_bytes"].sum() == 250 - 100
    product = rows[rows["operator"] == "aten::mm"].iloc[0]
    assert (product["events"], product["allocated_bytes"], product["freed_bytes"]) == (2, 600, 0)


def test_a_recorded_run_adds_up():
    found = ta.load(RUNNERS / "pytorch_ddp_memory")
    levels = ta.memory(found).to_frame().set_index("rank")
    sources = ta.memory_sources(found).to_frame()
    assert ta.memory_peaks(found).to_frame()["peak_allocated_bytes"].tolist() == levels["peak_allocated_bytes"].tolist()
    assert (
        ta.memory_steps(found)
        .to_frame()
        .groupby("rank")["peak_allocated_bytes"]
        .max()
        .le(levels["peak_allocated_bytes"])
        .all()
    )
    assert sources.groupby("rank")["highest_bytes"].max().tolist() == levels["peak_allocated_bytes"].tolist()


def test_a_trace_without_memory_has_no_rows(tmp_path):
    found = traces(tmp_path)
    assert not any(analysis(found).rows() for analysis in (ta.memory_steps, ta.memory_sources, ta.memory_peaks))


@pytest.mark.parametrize("name", ["memory_peaks", "memory_steps"])
def test_columns_that_are_sizes_are_whole_numbers(tmp_path, name):
    frame = getattr(ta, name)(traces(tmp_path, *LEAK)).to_frame()
    assert {str(frame[column].dtype) for column in frame if column.endswith("_bytes")} == {"Int64"}
