"""Peaks, steps and sources of memory, from `[memory]` events."""

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


def test_the_peak_names_step_phase_operator_and_module(tmp_path):
    around = [
        host("cpu_op", "aten::mm", 205, 10), host("user_annotation", "forward", 204, 20), host("python_function", "nn.Module: Linear_0", 203, 30),
        host("cpu_op", "aten::add", 200, 50, tid=2),
    ]  # fmt: skip
    (row,) = ta.memory(traces(tmp_path, memory(150, 10), memory(210, 90), memory(260, 20), *around)).rows()
    told = tuple(row[name] for name in ("peak_allocated_bytes", "step", "phase", "operator", "module"))
    assert told == (90, 2, "forward", "aten::mm", "Linear_0")


def test_what_a_step_holds_at_most(tmp_path):
    found = traces(tmp_path, memory(150, 10), memory(210, 90, 2000), memory(260, 20), memory(310, 30))
    told = [
        (row["step"], row["peak_allocated_bytes"], row["peak_reserved_bytes"]) for row in ta.memory_steps(found).rows()
    ]
    assert told == [(1, 10, 1000), (2, 90, 2000), (3, 30, 1000)]


def test_a_recorded_run_adds_up():
    found = ta.load(RUNNERS / "pytorch_ddp_memory")
    levels = ta.memory(found).to_frame().set_index("rank")
    assert (
        ta.memory_steps(found)
        .to_frame()
        .groupby("rank")["peak_allocated_bytes"]
        .max()
        .le(levels["peak_allocated_bytes"])
        .all()
    )
