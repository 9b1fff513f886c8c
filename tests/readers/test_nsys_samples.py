"""The sample captures as a whole: graph nodes, GPU metrics, and both profilers on the same program."""

import re
from pathlib import Path

import pytest

from tests.nsys_builders import read_all
from traceanalyzer import load
from traceanalyzer.analyses import run

SAMPLES = Path(__file__).parents[1] / "captures"


def test_the_nodes_of_a_replayed_graph_are_kernels_of_known_kind():
    for trace in read_all(SAMPLES / "nsys_cuda_graph_node" / "cuda_graph_node.sqlite"):
        ops = trace.gpu_ops
        assert ops["activity"].value_counts().to_dict() == {"kernel": 516, "memset": 6, "memcpy": 0, "graph": 0}
        assert (ops["kind"] == "comm").sum() == 24
        assert ops.loc[ops["activity"] == "kernel", "graph_node"].notna().all()
        launches = trace.api_calls["name"].iloc[ops["launch"].unique()]
        assert set(launches) == {"cudaGraphLaunch"}
        assert not any("CUDA graph launches" in note for note in trace.meta.notes)


def test_gpu_metrics_of_a_parquet_export():
    trace_set = load(SAMPLES / "nsys_fsdp_grad_metrics")
    assert [trace.rank for trace in trace_set.ranks] == [0, 1]
    frame = run(trace_set.ranks, ["gpu_metrics"])["gpu_metrics"].to_frame()
    active = frame[frame["counter"] == "SMs Active [Throughput %]"]
    assert active["rank"].tolist() == [0, 1]
    # 10 kHz over windows of about 0.1 s.
    for trace, samples in zip(trace_set.ranks, active["samples"], strict=True):
        assert samples == pytest.approx(trace.window.length_ns / 100_000, rel=0.02)
    assert active["mean"].between(10, 90).all()
    clock = frame[frame["counter"] == "GPC Clock Frequency [MHz]"]
    assert clock["mean"].between(1000, 2000).all()


def test_samples_have_no_absolute_paths_or_machine_tables():
    for path in SAMPLES.glob("nsys_*/*.sqlite"):
        content = path.read_bytes()
        found = re.search(rb"/(?:home|root|tmp)/|TARGET_INFO_SYSTEM_ENV|META_DATA_CAPTURE|PROCESSES", content)
        assert found is None, (path.name, found)


@pytest.mark.parametrize("name", [pytest.param("ddp", marks=pytest.mark.thorough), "fsdp_full"])
def test_both_profilers_see_the_same_program(name):
    """Same steps with as many operations of each kind; durations differ, being of two runs."""
    by_kineto, by_nsys = load(SAMPLES / name), load(SAMPLES / f"nsys_{name}")
    assert [trace.rank for trace in by_kineto.ranks] == [trace.rank for trace in by_nsys.ranks] == [0, 1]
    for one, other in zip(by_kineto.ranks, by_nsys.ranks, strict=True):
        assert len(one.steps) == len(other.steps) == 3
        assert counts_by_step(one) == counts_by_step(other)


def counts_by_step(trace):
    """Kernels and copies launched in the middle step, which neither capture cuts."""
    ops = trace.gpu_ops[trace.op_step == 1]
    return ops.groupby(["activity", "kind"], observed=True).size().to_dict()
