"""CPU-bound: GPUs wait for kernel launches.

The GPU timeline is a comb: short kernels with gaps between them, and the CPU track is full. Batch size hardly changes
the step time.

**Why.** Launching takes longer than running. Python, the dispatcher and the driver need 5–20 µs for each operator.
The profiler adds to that, so compare the savings "without the profiler".

**Fix.** Launch less: `torch.compile(model)`, or `mode="reduce-overhead"` for CUDA graphs. Use a larger batch, a fused
optimizer (`AdamW(..., fused=True)`) and fewer Python-side hooks. Inference engines: leave CUDA graphs on (vLLM
without `--enforce-eager`).

**Measured.** Eager → compiled with CUDA graphs on two H200s: 19.4 → 5.7 ms/step.
"""

import re
from collections.abc import Iterator

import pandas as pd

from traceanalyzer.analyses.blame.step_budget import RANGE, StepNeeds, WhatRan
from traceanalyzer.analyses.communication.groups import SHARDED, Groups
from traceanalyzer.analyses.host.api_calls import Launches
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.kernels import Kernels
from traceanalyzer.analyses.operators.operators import OperatorLaunches
from traceanalyzer.analyses.phases.micro_steps import Iterations
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.critical_path import Bottleneck
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run, doing, launching_ns, other_work
from traceanalyzer.meaning.columns import digits, time_span, time_text
from traceanalyzer.meaning.gpus import has_triton
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import HOST, numbered

PLACE = "Input and CPU", 2

_INDUCTOR = "^triton_.*_fused"
"""Kernels that torch.compile makes."""


def launch_bound(
    run: Run,
    idle: Idle,
    step_needs: StepNeeds,
    what_ran: WhatRan,
    launches: Launches,
    operator_launches: OperatorLaunches,
    iterations: Iterations,
    kernels: Kernels,
    ranks: Ranks,
    bottleneck: Bottleneck,
    groups: Groups,
) -> Iterator[Finding]:
    """GPUs are idle until the CPU launches their next kernel.

    The change is CPUs that take no time, of which half can be reached. The headline says CPU-bound where the verdict
    does.
    """
    waits = run.per_step(idle.table, [HOST.column])[HOST.column].fillna(0).astype("float64")
    if not len(waits) or not run.is_worth(waits.max()):
        return
    rank = int(waits.idxmax())
    times = doing(run, what_ran, rank)
    own = launches.to_frame().set_index("rank").loc[rank]
    needs = launching_ns(run, step_needs).reindex(waits.index).clip(upper=run.window_ns)
    if own["awaited_kernels"] > SHARE * own["awaitable_kernels"]:
        headline = f"Launches on rank {rank} wait for their kernels: CUDA_LAUNCH_BLOCKING=1."
        why = (
            f"{own['awaited_kernels']:,} of {own['awaitable_kernels']:,} kernels had ended when their launch returned."
        )
        fix = "Unset CUDA_LAUNCH_BLOCKING; if it is not set, look for a debugger or sanitizer that serializes launches."
    elif _is_between(run, iterations, rank, float(waits[rank])):
        headline = f"Rank {rank}'s GPU is idle between iterations {_share(run, waits, rank)} of the time."
        why = "The engine waits for requests, schedules them or returns results then."
        fix = run.terms.choose(_BETWEEN)
    else:
        headline = _headline(run, waits, rank, bottleneck)
        why = f"{_takes(run, needs, rank)}{_most(run, times, operator_launches, rank)}."
        fix = _fix(run, launches, kernels, ranks, groups)
    yield Finding(
        headline=headline,
        why=why,
        fix=fix,
        changes=(Change("cpu"),),
        named=_named(f"{headline} {why}", run.ranks if len(run.ranks) == 2 else (rank,)),
        evidence=(
            *({"doing": name, "idle_ns": round(ns)} for name, ns in times.head(5).items()),
            *({"range": name, "idle_ns": round(ns)} for name, ns in doing(run, what_ran, rank, RANGE).head(5).items()),
            {name: None if pd.isna(own[name]) else float(own[name]) for name in _SMALL},
        ),
        table="gaps",
        half_of="the launch time",
        stated_ns=float(waits[rank]),
    )


def _named(text: str, ranks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(rank for rank in ranks if re.search(rf"\brank {rank}\b", text, re.IGNORECASE))


_SMALL = ("kernels_under_10us_pct", "kernel_median_ns")
"""Signs of launch overhead, of `launches`."""

_BETWEEN = {
    "torch": "Send more requests at once if none were waiting; else schedule the next iteration while this one runs.",
    "vLLM": "If vllm:num_requests_waiting was above 0 then, use --async-scheduling; else record under load.",
    "SGLang": "If sglang:num_queue_reqs was above 0 then, leave the overlap scheduler on; else record under load.",
    "TensorRT-LLM": "If requests were queued then, leave overlap scheduling on; else record under load.",
}


def _headline(run: Run, waits: pd.Series, rank: int, bottleneck: Bottleneck) -> str:
    """CPU-bound where the critical path without the profiler says so; the share is of what was profiled."""
    is_bound = bottleneck.bounds == ("CPU-bound",) if len(bottleneck) else waits[rank] >= SHARE * run.window_ns[rank]
    many = len(waits) > 1 and waits.min() >= SHARE * waits.max()
    who = "the GPUs wait for kernel launches" if many else f"rank {rank}'s GPU waits for launches"
    is_slowed = run.engine is not None and run.engine.has_cost_of_recording
    of = f"{'profiled ' if is_slowed else ''}{'step' if run.steps else 'trace'}"
    return f"{'CPU-bound' if is_bound else 'Launch gaps'}: {who} {_share(run, waits, rank)} of the {of}."


def _share(run: Run, waits: pd.Series, rank: int) -> str:
    return f"{100 * waits[rank] / run.window_ns[rank]:.0f}%"


def _takes(run: Run, needs: pd.Series, rank: int) -> str:
    """What launching a step takes the CPUs, and how long the GPU computes what they launch."""
    if needs.isna().any():
        return f"The GPU finishes before rank {rank}'s CPU launches more"
    others = needs.drop(rank)
    who = numbered("rank", [*map(int, others.index)]) if len(others) == 1 else "other ranks"
    beside = f" ({who}: {time_span(others.min(), others.max())})" if len(others) else ""
    compute_ns = run.results["headline"].table.set_index("rank")["compute_ns"][rank] / run.count
    whole = "the whole " if needs[rank] >= run.window_ns[rank] else ""
    return (
        f"Launching a step takes rank {rank}'s CPU {whole}{time_text(needs[rank])}{beside} for "
        f"{time_text(compute_ns)} of GPU compute"
    )


def _most(run: Run, times: pd.Series, operator_launches: OperatorLaunches, rank: int) -> str:
    """What the CPU does while the GPU is idle, where one thing takes most of that; else what launches most."""
    name = other_work(times)
    if name:
        return f", most of it in {short_name(name)}"
    table = operator_launches.table
    own = table[(table["rank"] == rank) & ~table["operator"].astype("str").str.startswith("(")]
    counts = own.groupby("operator", observed=True)["launches"].sum().sort_values(ascending=False) / run.recorded_each
    if not len(counts):
        return ""
    return f": {digits(round(counts.sum()))} launches, {short_name(counts.index[0])} most often ({counts.iloc[0]:,.0f})"


def _is_between(run: Run, iterations: Iterations, rank: int, idle_ns: float) -> bool:
    """Whether a rank's GPU is idle mostly while its CPU is between an engine's iterations."""
    if not run.terms.is_serving or not len(iterations.table):
        return False
    own = run.within(iterations.table)
    between = own.loc[own["rank"] == rank, "between_ns"].iloc[1:]
    return bool(between.sum() >= SHARE * idle_ns * run.count)


def _fix(run: Run, launches: Launches, kernels: Kernels, ranks: Ranks, groups: Groups) -> str:
    """How to launch less, without what is in use already."""
    table, names = launches.table, kernels.table["name"].astype("str")
    graphs = run.terms.graphs
    if table["graph_operations"].fillna(0).sum() >= SHARE * table["operations"].sum():
        return f"{graphs} launch most operations already: use larger batches, and move Python work out of the step."
    if names.str.contains(_INDUCTOR).any():
        less = f'torch.compile(mode="reduce-overhead") ({graphs})'
    elif all(map(has_triton, ranks.table["device_name"].dropna())):
        whole = f'torch.compile(model, mode="reduce-overhead"), or {graphs} around the repeated part'
        is_sharded = bool((groups.table["role"] == SHARDED).any())
        less = "torch.compile each block (FSDP2: before fully_shard())" if is_sharded else whole
    else:
        less = f"{graphs} around the repeated part (torch.cuda.make_graphed_callables)"
    first = "One process per GPU (torchrun); " if ranks.is_one_process else ""
    return run.terms.choose(
        {
            "torch": f"{first}{less}; if that fails, larger micro-batches.",
            "jax": "jax.jit around the whole step, jax.lax.scan over layers and steps; no host callbacks.",
            "vLLM": f"Leave --enforce-eager off ({graphs}); --async-scheduling; larger batches.",
            "SGLang": f"Leave --disable-cuda-graph off ({graphs}); larger batches.",
            "TensorRT-LLM": f"Set cuda_graph_config ({graphs}); larger batches.",
            "native": f"{graphs} around the repeated launches, or fewer and larger kernels.",
        }
    )
