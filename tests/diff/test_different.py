"""The first line of a comparison: what differs besides the times, and what may be concluded."""

import dataclasses

import msgspec
import pandas as pd
import pytest

from tests.diff.captured import capture, side, steady
from traceanalyzer.diff import compare, must_exchange
from traceanalyzer.job.run_info import Batch, RunInfo, StepTime, StepTimes

TOPOLOGY = (
    "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \t{0}\t0-63\nGPU1\t{0}\t X \t0-63\n\nLegend:\n  SYS  = crossing sockets\n"
)

INFO = RunInfo(
    strategy="ddp", world_size=2, model={"layers": 2}, batch=Batch(tokens_per_step=64), dtype="bf16", compile=False,
    gpu={"name": "NVIDIA H200"}, versions={"torch": "2.11.0", "nccl": "2.28.9", "driver": "580.1"},
    parallel={"dp": 2, "tp": 1, "pp": 1}, profile={"profiler": "torch", "record_shapes": True},
    topology=TOPOLOGY.format("NV18"), environment={}, transports=("P2P/CUMEM",),
)  # fmt: skip


def run(label="run", **more):
    return capture(steady(10, 5), label, info=msgspec.structs.replace(INFO, **more))


def line(**more):
    return compare([side("base", run("base")), side("other", run("other", **more))], force=True).different


CASES = {
    "nothing": ({}, "No known difference. A time difference comes from the code, or is noise."),
    "another driver": (
        {"versions": INFO.versions | {"driver": "590.2"}},
        "Different: driver 580.1 | 590.2. A time difference may come from the environment, not the code."),
    "other links": (
        {"topology": TOPOLOGY.format("SYS")},
        "Different: links NV18 | SYS. A time difference may come from the environment, not the code."),
    "P2P off": (
        {"environment": {"NCCL_P2P_DISABLE": "1"}, "transports": ("SHM/direct/direct",)},
        ("Different: links used peer to peer | host memory; environment variables none | NCCL_P2P_DISABLE=1. "
        "A time difference may come from the environment, not the code.")),
    "another strategy": (
        {"strategy": "zero3"}, "Different: strategy ddp | zero3. A time difference may come from it."),
    "compiled, with other software": (
        {"compile": True, "versions": INFO.versions | {"torch": "2.12.0", "nccl": "2.29.1"}},
        ("Different: compiled False | True; PyTorch 2.11.0 | 2.12.0; NCCL 2.28.9 | 2.29.1. "
        "The effects of the environment and of the settings cannot be separated.")),
    "the profiler's options": (
        {"profile": {"profiler": "torch", "record_shapes": True, "with_stack": True}},
        ("Different: profiler's options record_shapes | record_shapes, with_stack. Profilers add different CPU "
        "overhead: step times, idle and waits are not comparable, kernels' durations are.")),
    "another model": (
        {"model": {"layers": 9}},
        "Different: model layers 2 | layers 9. They did not do the same work: their times are not comparable."),
    "a batch twice as large": (
        {"batch": Batch(tokens_per_step=128)},
        "Different: tokens a step 64 | 128. Figures are of unequal steps, made comparable as said below."),
    "parallel sizes": (
        {"parallel": {"dp": 1, "tp": 2, "pp": 1}},
        "Different: parallel sizes data parallel 2 | tensor parallel 2. A time difference may come from it."),
    "not known": (
        {"topology": None, "versions": None},
        ("No known difference. Not known of every run: PyTorch, NCCL, driver, links. "
        "Where those are the same, a time difference comes from the code, or is noise.")),
}  # fmt: skip


@pytest.mark.parametrize(("more", "expected"), CASES.values(), ids=CASES)
def test_what_differs(more, expected):
    assert line(**more) == expected


def test_own_step_times_remain_comparable_under_different_profilers():
    own = StepTimes(unprofiled=StepTime(mean=100, n=1, values=(100,)))
    sides = [
        side(name, run(name, step_time_ns=own, profile={"profiler": "torch", "with_stack": name == "other"}))
        for name in ("base", "other")
    ]
    assert compare(sides).different.endswith("are not comparable, the step times without a profiler are.")


def groups(*roles, ranks=2):
    return pd.DataFrame({"role": roles, "stride": 1, "group_size": ranks})


@pytest.mark.parametrize(
    ("parallel", "roles", "expected"),
    [
        ({"dp": 1, "pp": 2}, (), False),
        ({"dp": 2}, (), True),
        (None, ("pipeline",), False),
        (None, ("sharded data parallel",), True),
        (None, (None,), None),
        (None, (), None),
        ({}, ("HSDP shard", None), None),
    ],
)
def test_whether_gradients_must_be_exchanged(parallel, roles, expected):
    made = run(parallel=parallel)
    made = dataclasses.replace(made, tables={**made.tables, "groups": groups(*roles)})
    assert must_exchange(made) is expected


def test_a_run_with_traces_of_some_ranks_is_told_so():
    one = capture([steady(10, 5)[0]], "one", info=INFO)
    assert compare([side("one", one), side("both", run("both"))]).different == (
        "Different: ranks with a trace 1 of 2 (0) | all. "
        "Means over ranks, and waits for ranks without a trace, are not comparable."
    )
