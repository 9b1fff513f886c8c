"""Figures of the sample captures against NVIDIA's own tables of them, kept beside the samples."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.nsys_builders import read_all
from traceanalyzer.analyses import run
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host.api_calls import spread
from traceanalyzer.analyses.intervals import Intervals, of_rows
from traceanalyzer.analyses.streams import operations
from traceanalyzer.selection import Selection, select

SAMPLES = Path(__file__).parents[1] / "captures"
CAPTURES = ("ddp", "fsdp_full", "naive")

OPERATIONS = {
    "[CUDA memcpy Device-to-Device]": "DtoD",
    "[CUDA memcpy Host-to-Device]": "HtoD",
    "[CUDA memset]": "memset",
}


@cache
def traces(name):
    found = read_all(SAMPLES / f"nsys_{name}" / f"{name}.sqlite")
    return tuple(select(trace, Selection("step_*")) for trace in found)


def oracle(name, table):
    path = SAMPLES / f"nsys_{name}" / "oracle" / table
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


def of_all_ranks(name, table):
    return pd.concat([trace.table(table) for trace in traces(name)], ignore_index=True)


def durations(frame):
    return (frame["end_ns"] - frame["start_ns"]).to_numpy()


def table_of_spread(values, name, keys):
    groups = Groups.of({name: keys}, with_absent=True)
    return groups.table(**spread(groups, np.asarray(values))).set_index(name)


def compare_times(ours, theirs, calls):
    """Counts and nanoseconds exactly; means and the like to the tenth that NVIDIA prints."""
    ours = ours.assign(mean_ns=ours["total_ns"] / ours["calls"]).loc[theirs.index]
    assert len(ours) == len(theirs) > 0
    for mine, column in (
        ("calls", calls),
        ("total_ns", "Total Time (ns)"),
        ("min_ns", "Min (ns)"),
        ("max_ns", "Max (ns)"),
    ):
        assert ours[mine].astype("int64").tolist() == theirs[column].astype("int64").tolist(), column
    for mine, column in (("mean_ns", "Avg (ns)"), ("median_ns", "Med (ns)"), ("std_ns", "StdDev (ns)")):
        np.testing.assert_allclose(ours[mine].astype("Float64").fillna(0), theirs[column], rtol=0, atol=0.0501)
    share = 100 * ours["total_ns"] / ours["total_ns"].sum()
    np.testing.assert_allclose(share.astype(float), theirs["Time (%)"], rtol=0, atol=0.0501)


@pytest.mark.parametrize("name", CAPTURES)
def test_kernels(name):
    ops = of_all_ranks(name, "gpu_ops")
    ops = ops[ops["activity"] == "kernel"]
    ours = table_of_spread(durations(ops), "name", ops["name"].to_numpy(dtype=object))
    theirs = oracle(name, f"{name}_cuda_gpu_kern_sum.csv").set_index("Name")
    assert set(ours.index) == set(theirs.index)
    compare_times(ours, theirs, "Instances")


@pytest.mark.parametrize("name", CAPTURES)
def test_cuda_api(name):
    calls = of_all_ranks(name, "api_calls")
    ours = table_of_spread(durations(calls), "name", calls["name"].to_numpy(dtype=object))
    theirs = oracle(name, f"{name}_cuda_api_sum.csv")
    # NVIDIA takes off versions of four digits and leaves those of five; here both go.
    theirs = theirs.assign(Name=theirs["Name"].str.replace(r"_v\d{5}$", "", regex=True)).set_index("Name")
    assert set(ours.index) == set(theirs.index)
    compare_times(ours, theirs, "Num Calls")


def memory(name):
    ops = of_all_ranks(name, "gpu_ops")
    return ops[ops["activity"].isin(("memcpy", "memset"))]


@pytest.mark.parametrize("name", CAPTURES)
def test_memory_operations_by_time(name):
    ops = memory(name)
    theirs = oracle(name, f"{name}_cuda_gpu_mem_time_sum.csv")
    theirs = theirs.assign(Operation=theirs["Operation"].map(OPERATIONS)).set_index("Operation")
    ours = table_of_spread(durations(ops), "operation", operations(ops))
    assert set(ours.index) == set(theirs.index)
    compare_times(ours, theirs, "Count")


@pytest.mark.parametrize("name", CAPTURES)
def test_the_results_rows_are_those_figures_by_rank(name):
    results = run(traces(name), ["cuda_api", "copies"])
    api = results["cuda_api"].to_frame().groupby("name")[["calls", "total_ns"]].sum()
    theirs = oracle(name, f"{name}_cuda_api_sum.csv")
    assert api["calls"].sum() == theirs["Num Calls"].sum()
    assert api["total_ns"].sum() == theirs["Total Time (ns)"].sum()
    copies = results["copies"].to_frame().groupby("direction")[["copies", "size_bytes", "total_ns"]].sum()
    for table, ours, column, unit in (("time", "total_ns", "Time (ns)", 1), ("size", "size_bytes", "(MB)", 1e6)):
        theirs = oracle(name, f"{name}_cuda_gpu_mem_{table}_sum.csv")
        theirs = theirs.assign(Operation=theirs["Operation"].map(OPERATIONS)).set_index("Operation")
        assert copies["copies"].to_dict() == theirs["Count"].to_dict()
        found = copies[ours].astype(float) / unit
        np.testing.assert_allclose(found.loc[theirs.index], theirs[f"Total {column}"], rtol=0, atol=0.000501)


@pytest.mark.parametrize("name", CAPTURES)
def test_overlap_of_communication(name):
    """Mean of NVIDIA's `Compute Overlap` of each NCCL kernel, weighted by duration: within 0.1 points, by process."""
    rows = oracle(name, "nccl_gpu_overlap_trace__rank_trace.parquet").reset_index()
    rows = rows[rows["Name"].str.contains("nccl")]
    checked = 0
    for trace in traces(name):
        ops = trace.gpu_ops
        comm = ops[(ops["kind"] == "comm").to_numpy()]
        compute = of_rows(ops, (ops["kind"] == "compute").to_numpy())
        hidden = compute.covered_ns(comm["start_ns"].to_numpy(), comm["end_ns"].to_numpy())
        theirs = rows[rows["PID"] == trace.meta.process]
        assert len(theirs) == len(comm)
        weights = theirs["End"] - theirs["Start"]
        assert weights.sum() == durations(comm).sum()
        mean = (theirs["Compute Overlap"] * weights).sum() / weights.sum()
        assert 100 * hidden.sum() / durations(comm).sum() == pytest.approx(mean, abs=0.1)
        by_start = theirs.sort_values("Start")["Compute Overlap"].to_numpy()
        np.testing.assert_allclose(100 * hidden / durations(comm), by_start, atol=0.0501)
        # Within a rank NCCL kernels do not overlap each other, so the rank's own figure is the same.
        frame = run([trace], ["breakdown"])["breakdown"].to_frame()
        assert frame["overlap_pct"].iloc[0] == pytest.approx(mean, abs=0.1)
        checked += 1
    assert checked == 2


@pytest.mark.parametrize("name", CAPTURES)
def test_projection_of_nccl_ranges(name):
    theirs = oracle(name, "nccl_gpu_proj_sum__rank_stats.parquet")
    ours = run(traces(name), ["nvtx_projection"])["nvtx_projection"].to_frame()
    ours = ours[(ours["domain"] == "NCCL") & ours["name"].isin(theirs.index)]
    together = ours.groupby("name").agg(
        calls=("calls", "sum"), total=("total_ns", "sum"), low=("min_ns", "min"), high=("max_ns", "max")
    )
    assert set(together.index) == set(theirs.index)
    theirs = theirs.loc[together.index]
    assert together["calls"].tolist() == theirs["Count"].tolist()
    assert together["total"].tolist() == theirs["Sum"].tolist()
    assert together["low"].tolist() == theirs["Min"].tolist()
    assert together["high"].tolist() == theirs["Max"].tolist()


@pytest.mark.parametrize("name", CAPTURES)
def test_utilisation_of_stretches(name):
    """Stretches that NVIDIA reports as little used.

    Its `In-Use` adds up durations, so operations that overlap count twice; here they count once. The sum shows that the
    same operations are seen; the union is at most that, and the same where nothing overlaps.
    """
    rows = oracle(name, "gpu_time_util__analysis.parquet")
    assert len(rows) > 0
    for pid, start, length, used in rows[["PID", "Start", "Duration", "In-Use"]].itertuples(index=False, name=None):
        (trace,) = [trace for trace in traces(name) if trace.meta.process == pid]
        starts, ends = (
            np.clip(trace.gpu_ops[column].to_numpy() - trace.meta.capture_start_ns, start, start + length)
            for column in ("start_ns", "end_ns")
        )
        summed, once = (ends - starts).sum(), Intervals.of(starts, ends).total_ns
        assert 100 * summed / length == pytest.approx(used, abs=0.0501)
        assert once <= summed


@pytest.mark.parametrize("name", CAPTURES)
def test_breakdown_against_an_independent_sweep(name):
    for trace in traces(name):
        row = run([trace], ["breakdown"])["breakdown"].to_frame().iloc[0]
        expected = sweep(trace.gpu_ops)
        assert {part: int(row[part]) for part in expected} == expected


def sweep(ops):
    """The breakdown by walking from event to event with a counter a kind: no interval arithmetic."""
    events = sorted(
        event
        for start, end, kind in zip(ops["start_ns"].tolist(), ops["end_ns"].tolist(), ops["kind"].tolist(), strict=True)
        for event in ((start, 1, kind), (end, -1, kind))
    )
    running = {"compute": 0, "comm": 0, "copy": 0}
    parts = {"compute_ns": 0, "exposed_comm_ns": 0, "exposed_copy_ns": 0, "idle_ns": 0, "comm_ns": 0}
    before = events[0][0]
    for time, change, kind in events:
        passed = time - before
        if running["compute"]:
            parts["compute_ns"] += passed
        elif running["comm"]:
            parts["exposed_comm_ns"] += passed
        elif running["copy"]:
            parts["exposed_copy_ns"] += passed
        else:
            parts["idle_ns"] += passed
        parts["comm_ns"] += passed if running["comm"] else 0
        running[kind] += change
        before = time
    parts["window_ns"] = events[-1][0] - events[0][0]
    return parts
