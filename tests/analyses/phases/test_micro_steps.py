import pandas as pd
import pytest

from traceanalyzer import analyses
from traceanalyzer.model import RankMeta, make_trace
from traceanalyzer.selection import Selection, select

ALL_REDUCE, ALL_GATHER = "ncclDevKernel_AllReduce_Sum_f32(args)", "ncclDevKernel_AllGather(args)"


def counted(ranges, comm, steps="all"):
    """Steps are [0, 100) and [100, 200); `ranges` (name, start, end), `comm` (kernel, launch time)."""
    steps_ranges = [("ProfilerStep#0", 0, 100), ("ProfilerStep#1", 100, 200)]
    comm = [("gemm", 1), *comm, ("gemm", 101)]
    numbers = range(1, len(comm) + 1)
    tables = {
        "gpu_ops": pd.DataFrame(
            {"start_ns": [time + 1 for _, time in comm], "end_ns": [time + 2 for _, time in comm],
             "name": [name for name, _ in comm], "kind": ["comm" if "nccl" in name else "compute" for name, _ in comm],
             "activity": "kernel", "stream": 7, "correlation": numbers}
        ),
        "api_calls": pd.DataFrame(
            {"start_ns": [time for _, time in comm], "end_ns": [time + 1 for _, time in comm], "name": "cudaLaunchKernel",
             "thread": 1, "correlation": numbers}
        ),
        "ranges": pd.DataFrame(
            [*steps_ranges, *ranges], columns=["name", "start_ns", "end_ns"]
        ).assign(thread=1),
    }  # fmt: skip
    trace = select(make_trace(RankMeta(0, "test", ("x",), "kineto"), **tables), Selection(steps=steps))
    return analyses.run([trace], ["micro_steps"])["micro_steps"].to_frame()


@pytest.mark.parametrize(
    ("ranges", "comm", "micro_steps", "synchronising", "calls"),
    [
        ([("backward", 10, 20), ("## backward ##", 30, 40)], [(ALL_REDUCE, 35)], 2, 1, 1),
        # Gradients of a hand-written strategy are exchanged after backward.
        ([("backward", 10, 20)], [(ALL_REDUCE, 25), (ALL_REDUCE, 50)], 1, 1, 2),
        ([("backward", 10, 20), ("backward", 30, 40)], [(ALL_REDUCE, 15), (ALL_REDUCE, 35)], 2, 2, 2),
        # All-gathers are of parameters.
        ([("backward", 10, 20)], [(ALL_GATHER, 15)], 1, 0, 0),
        ([("forward", 5, 9), ("forward", 20, 29)], [(ALL_REDUCE, 25)], 2, 1, 1),
        # DDP's own range inside the user's counts once.
        ([("forward", 5, 9), ("DistributedDataParallel.forward", 6, 8)], [], 1, 0, 0),
        ([("FSDP::pre_backward (blocks.11)", 5, 9), ("FSDP::backward_prefetch for x", 6, 8)], [(ALL_REDUCE, 20)], pd.NA, pd.NA, 1),
        ([], [], pd.NA, pd.NA, 0),
    ],
)  # fmt: skip
def test_micro_steps_of_a_step(ranges, comm, micro_steps, synchronising, calls):
    row = counted(ranges, comm).iloc[0]
    found = [row["micro_steps"], row["synchronising_micro_steps"], row["gradient_calls"]]
    assert [value if not pd.isna(value) else None for value in found] == [
        None if value is pd.NA else value for value in (micro_steps, synchronising, calls)
    ]


def test_only_selected_steps():
    assert counted([("backward", 10, 20)], [], steps="0")["step"].tolist() == [0]


@pytest.mark.parametrize(
    ("backwards", "updates", "counted_updates"),
    [([10], [], None), ([10], [40], 1), ([10], [40, 60], 1), ([10, 50], [40, 60], 2), ([10, 30], [40, 60], 1)],
)
def test_updates_of_a_step(backwards, updates, counted_updates):
    """Two models that are trained in turn are updated twice; two optimizers of one model update it once."""
    ranges = [("backward", start, start + 5) for start in backwards]
    ranges += [("Optimizer.step#Adam.step", start, start + 5) for start in updates]
    found = counted([*ranges, ("Optimizer.zero_grad#Adam.zero_grad", 21, 22)], [])
    row = found.iloc[0]["optimizer_steps"]
    assert (None if pd.isna(row) else row) == counted_updates
