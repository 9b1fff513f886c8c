"""No analysis forgets `--steps`: what other steps ran changes nothing, unless it says that it reads them too."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

from tests.host_builders import host_trace
from tests.samples import sample
from traceanalyzer.analyses import ANALYSES, reduce_rank
from traceanalyzer.selection import Selection, select

MS = 1_000_000

OF_EVENTS = [name for name, analysis in ANALYSES.items() if analysis.per_rank is not None]

SILENT_HOST = "a host of which nothing is recorded while its GPU still runs the step before"

COMPILING_HOST = "the same host, which says that it compiles"

MADE = {
    SILENT_HOST: (),
    COMPILING_HOST: [("_compile.compile_inner (dynamo_timed)", 11_010_000, 15_990_000)],
}
"""Hosts that are made here: their operators."""

LAST = "the last step of zo_offload"

CAPTURES = ("ddp", "moe", "pp_1f1b", "zo_offload", "nsys_fsdp_grad_metrics", *MADE, LAST)
"""Together they give all other analyses something to say."""

SEE_ALL = {
    "integrity": "damage lies anywhere in a capture",
    "replay": "the job is replayed from its beginning",
    **dict.fromkeys(("members", "waits"), "calls are matched between ranks over the whole capture"),
    **dict.fromkeys(
        ("idle", "gaps", "host_silences", "compilations", "host_work", "sync_calls", "copies", "modules", "step_needs"),
        "what runs on the GPU at a time may be of an earlier step",
    ),
}
"""Analyses that read operations outside the chosen steps too, and why; all others count those of `trace.counted`."""

SILENT = {
    "first_calls", "iterations", "memory", "memory_calls", "memory_categories", "memory_levels", "memory_sources",
    "memory_steps", "sync_calls", "sync_copies",
}  # fmt: skip


@cache
def tables(run_name, *, is_altered):
    """The small tables of one rank's last step but one, as it is and with all operations of other steps altered."""
    trace = host(MADE[run_name]) if run_name in MADE else sample(run_name.split()[-1]).ranks[0]
    trace = select(trace, Selection(steps=str(trace.steps["step"].iloc[-1 if run_name == LAST else -2])))
    other = ~trace.counted
    assert other.any()
    assert trace.counted.any()
    return reduce_rank(altered(trace, other) if is_altered else trace)


def host(operators):
    """Of its second step it launches nothing for 5 ms, in 3 of which its first step's last kernel runs."""
    calls = [("cudaLaunchKernel", begin * MS, begin * MS + 10_000) for begin in (1, 8, 16, 19, 23)]
    ops = [
        ("gemm", 1 * MS + 20_000, 2 * MS, 1),
        ("gemm", 9 * MS, 14 * MS, 2),
        ("gemm", 17 * MS, 18 * MS, 3),
        ("gemm", 19 * MS + 20_000, 20 * MS, 4),
        ("gemm", 24 * MS, 25 * MS, 5),
    ]
    steps = [(f"ProfilerStep#{step}", step * 11 * MS, (step + 1) * 11 * MS) for step in range(3)]
    return host_trace(ops, calls, host_ops=operators, ranges=steps)


def altered(trace, other):
    """Other names and sizes; those outside the window take half of their time."""
    ops = trace.gpu_ops
    is_outside = (
        other & ((ops["end_ns"] <= trace.window.start_ns) | (ops["start_ns"] >= trace.window.end_ns)).to_numpy()
    )
    names = ops["name"].astype("str")
    half = ops["start_ns"] + (ops["end_ns"] - ops["start_ns"]) // 2
    changed = ops.assign(
        name=names.where(~other, "altered " + names).astype("category"),
        end_ns=np.where(is_outside, half, ops["end_ns"]),
        bytes=ops["bytes"].where(~other, ops["bytes"] + 1000),
    )
    return replace(trace, gpu_ops=changed)


def plain(table):
    """The rows in an order of their own: those that tie may come in any."""
    shown = pd.DataFrame({name: table[name].astype(object).where(table[name].notna(), None) for name in table})
    texts = np.array([str(row) for row in shown.itertuples(index=False)], dtype=object)
    return shown.iloc[np.argsort(texts, kind="stable")].reset_index(drop=True)


def differs(run_name, name):
    before, after = (plain(tables(run_name, is_altered=is_altered)[name]) for is_altered in (False, True))
    try:
        return not before.equals(after)
    except TypeError:  # cells that hold tables of other names
        return True


@pytest.mark.parametrize("name", OF_EVENTS)
def test_other_steps_change_nothing_of_analyses_that_need_not_read_them(name):
    assert any(differs(run_name, name) for run_name in CAPTURES) == (name in SEE_ALL)


def test_all_but_a_few_analyses_have_something_to_say_of_these_captures():
    said = {name for run_name in CAPTURES for name, table in tables(run_name, is_altered=False).items() if len(table)}
    assert {*OF_EVENTS} - said <= SILENT


def test_an_analysis_without_the_mask_is_found():
    """The alteration reaches what a forgotten `trace.counted` lets through: names, times and sizes."""
    trace = select(sample("ddp").ranks[0], Selection(steps="last"))
    changed = altered(trace, ~trace.counted)
    assert not trace.gpu_ops["name"].equals(changed.gpu_ops["name"])
    assert (trace.gpu_ops["end_ns"] != changed.gpu_ops["end_ns"]).any()
    assert trace.gpu_ops.loc[trace.counted, "end_ns"].equals(changed.gpu_ops.loc[trace.counted, "end_ns"])
