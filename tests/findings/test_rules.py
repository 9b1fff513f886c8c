"""Each rule speaks when its case is there, with the cost of a mean step, and is silent otherwise."""

from dataclasses import replace
from functools import partial

import pytest

import traceanalyzer as ta
from tests import once
from tests.asked import said_of
from tests.findings.needed import needed_by
from tests.host_builders import host_trace
from tests.samples import SAMPLES
from traceanalyzer.analyses import run
from traceanalyzer.findings import find, pipelines, uneven_stages
from traceanalyzer.findings.devices import copies
from traceanalyzer.findings.hosts import idle, launch_bound

MS = 1_000_000


def told(rule, traces):
    return rule(**run(traces, needed_by(rule)))


def told_of(name, rule):
    return rule(**once.results(name, needed_by(rule)))


def train(gap_ms, *, steps=3, name="gemm", host=(), memory="pinned", ranges=(), blocking=None, rank=0):
    """Steps of one 10 ms operation each, with a gap before it in which the host does something.

    Beside what is no kernel one of 10 µs runs: of ranks that only copy no gain is known.
    """
    period = (10 + gap_ms) * MS
    calls, ops, marks = [], [], []
    for number in range(steps):
        start = number * period
        launch = start - MS // 10
        returns = launch + 1_000 if memory == "pinned" else start + 10 * MS
        calls.append(("cudaLaunchKernel" if name == "gemm" else "cudaMemcpyAsync", launch, returns))
        ops.append((name, start, start + 10 * MS, len(calls), 7, memory))
        if name != "gemm":
            calls.append(("cudaLaunchKernel", launch - 2_000, launch - 1_000))
            ops.append(("gemm", start, start + 10_000, len(calls), 8))
        marks.append((f"ProfilerStep#{number}", start - gap_ms * MS, start + 10 * MS))
        if blocking:
            calls.append((blocking, start + MS, start + (10 + gap_ms // 2) * MS))
    more = [(label, mark[1] + MS, mark[2] - 10 * MS - MS) for label in ranges for mark in marks]
    return host_trace(ops, calls, host_ops=host, ranges=[*marks, *more], rank=rank)


@pytest.mark.parametrize(
    ("rule", "trace", "quiet", "cost_ms"),
    [
        (launch_bound.host_bound, partial(train, 10), partial(train, 0), 9.9),
        (idle.data_loader, partial(train, 10, ranges=["## data ##"]), partial(train, 10), 8.0),
        (
            idle.synchronising_calls,
            partial(train, 10, blocking="cudaStreamSynchronize"),
            partial(train, 10, blocking="cudaEventQuery"),
            10 / 3,  # the call returns in the middle of two of three gaps
        ),
        (
            copies.pageable_copies,
            partial(train, 0, name="HtoD", memory="pageable"),
            partial(train, 0, name="HtoD"),
            5.042,  # the last step ends with its copy
        ),
    ],
)
def test_a_rule_speaks_of_its_case_only(rule, trace, quiet, cost_ms):
    (finding,) = told(rule, [trace()])
    assert finding.gain_ns / MS == pytest.approx(cost_ms, rel=0.02)
    assert finding.evidence
    assert finding.recommendation
    assert finding.caveat
    assert told(rule, [quiet()]) == []


@pytest.mark.parametrize(
    ("call", "operator", "label", "is_its_own"),
    [
        ("cudaEventSynchronize", None, "DistributedDataParallel.forward", True),
        ("cudaStreamSynchronize", None, "DistributedDataParallel.forward", False),
        ("cudaEventSynchronize", None, "evaluate", False),
        ("cudaEventSynchronize", "aten::item", "DistributedDataParallel.forward", False),
    ],
)
def test_what_ddp_waits_for_to_time_itself_is_none_of_the_programs(call, operator, label, is_its_own):
    results = {**run([train(10, blocking=call)], needed_by(idle.synchronising_calls))}
    calls = results["sync_calls"]
    table = calls.table.assign(operator=operator, range=label)
    results["sync_calls"] = replace(calls, table=table)
    (found,) = idle.synchronising_calls(**results)
    assert found.recommendation.startswith("DistributedDataParallel times its own first ten steps") == is_its_own


def test_pageable_copies_of_all_ranks_are_one_finding():
    copying = {"name": "HtoD", "memory": "pageable"}
    (both,) = told(copies.pageable_copies, [train(0, **copying), train(0, **copying, rank=1)])
    assert both.title.startswith("Both ranks copy from pageable memory: rank 0")
    assert both.title.endswith(" Pinned and behind compute, a mean step is at most 5.04 ms shorter.")
    (one,) = told(copies.pageable_copies, [train(0, rank=1), train(0, **copying)])
    assert one.title.startswith("Rank 0 copies from pageable memory:")
    assert "DataLoader(pin_memory=True)" in one.recommendation
    (back,) = told(copies.pageable_copies, [train(0, name="DtoH", memory="pageable")])
    assert back.title.startswith("Rank 0 copies to pageable memory:")
    assert "DataLoader" not in back.recommendation
    (mixed,) = told(copies.pageable_copies, [train(0, **copying), train(0, name="DtoH", memory="pageable", rank=1)])
    assert mixed.title.startswith("Both ranks copy from or to pageable memory:")
    assert "DataLoader" in mixed.recommendation
    assert "async_save" in mixed.recommendation


def test_ddp_is_host_bound_and_launch_bound_on_rank_0():
    (first,) = find(once.results("ddp"))
    found = {finding.rule: finding for finding in (first, *first.also)}
    assert "rank 0's GPU idles 45.3 ms, 68 % of a step" in found["host_bound"].title
    assert "Rank 1's waits" in found["host_bound"].title
    assert found["host_bound"].severity == "high"
    assert found["short_kernels"].title.startswith("56 % of rank 0's kernels")
    assert found["host_bound"].gain_ns > found["short_kernels"].gain_ns
    evidence = found["host_bound"].evidence
    assert sum(row["length_per_step_ns"] for row in evidence) < found["host_bound"].gain_ns, "of a mean step"
    assert len({row["doing"] for row in evidence}) == len(evidence)


def test_a_gpu_bound_run_has_none_of_these():
    results = once.results("moe")
    for rule in (launch_bound.host_bound, idle.short_kernels, idle.synchronising_calls, idle.data_loader):
        assert rule(**{name: results[name] for name in needed_by(rule)}) == []


def test_the_pipeline_sample_is_uneven_and_waits():
    (uneven,) = told_of("pp", uneven_stages.pipeline_imbalance)
    assert uneven.title.startswith("Stage 1 (rank 1) computes 107 ms a step, stage 0 65.5 ms and waits for it")
    (bubble,) = told_of("pp", pipelines.pipeline_bubble)
    assert "waits 31 % of its time (20 % expected of 2 stages and 4 microbatches), most on rank 0: 47 %" in bubble.title
    assert "Move layers from stage 1 to stage 0" in bubble.recommendation
    # At 20 % of bubble the (106.7 + 65.5) / 2 ms of compute of a mean stage would take 107.6 ms of the 125.4; what lies
    # between and after the passes is not evened out.
    assert bubble.gain_ns / MS == pytest.approx(14.9, abs=0.1)
    assert bubble.gain_is_bound
    assert "twice the microbatches, or stages a rank, at best by" in bubble.recommendation


@pytest.mark.parametrize(("name", "count"), [("offload_naive", 1), ("offload_overlap", 0)])
def test_blocks_one_after_another(name, count):
    found = told(copies.serial_blocks, ta.load([SAMPLES / "streams" / f"{name}.json.gz"]).ranks)
    assert len(found) == count
    assert all("2.45 ms of each block's 5.19 ms" in finding.title for finding in found)


@pytest.mark.parametrize("traces", [[], [host_trace()]], ids=["no rank", "an empty rank"])
def test_nothing_to_say_about_nothing(traces):
    assert said_of(*traces) == ()


def test_what_happens_after_the_last_complete_step_is_no_finding():
    """The profiler's own synchronisation at the end leaves a gap of 50 ms before a last operation."""
    ops = [("gemm", number * 10 * MS, (number + 1) * 10 * MS, number + 1) for number in range(3)]
    calls = [("cudaLaunchKernel", number * 10 * MS - 2_000, number * 10 * MS - 1_000) for number in range(3)]
    ranges = [
        (f"ProfilerStep#{number}", number * 10 * MS - 3_000, (number + 1) * 10 * MS - 3_000) for number in range(3)
    ]
    calls += [("cudaLaunchKernel", 79 * MS, 80 * MS - 1_000), ("cudaDeviceSynchronize", 25 * MS, 31 * MS)]
    ops += [("memset", 80 * MS, 81 * MS, 4)]
    trace = host_trace(ops, calls, ranges=ranges)
    assert run([trace], ["sync_calls"])["sync_calls"].rows()[0]["cost_ns"] == 1 * MS
    assert told(idle.synchronising_calls, [trace]) == []
    assert told(launch_bound.host_bound, [trace]) == []


def test_blocks_that_copy_one_way_name_that_way():
    """Kernels and copies to the host in turn: nothing is uploaded."""
    starts = [number * 10 * MS for number in range(8)]
    ops = [row for at, start in enumerate(starts) for row in (("gemm", start, start + 6 * MS, 2 * at + 1),
            ("DtoH", start + 6 * MS, start + 10 * MS, 2 * at + 2, 7, "pageable"))]  # fmt: skip
    calls = [row for start in starts for row in (("cudaLaunchKernel", start - 2_000, start - 1_000),
            ("cudaMemcpyAsync", start, start + 10 * MS))]  # fmt: skip
    (found,) = told(copies.serial_blocks, [host_trace(ops, calls)])
    assert "blocks compute and offload one after another" in found.title
    assert "upload" not in found.title + found.recommendation
