"""What is computed from traces: every analysis, and the one function that runs them.

An analysis is a module with `across(parts, …) -> Result`, where `parts` maps each rank to its small table, and
usually `per_rank(trace, …) -> table`. Further parameters name what it needs: of `per_rank` other analyses'
tables of the same rank or what is `SHARED`, of `across` other analyses' Results. Thresholds are keyword arguments
with defaults.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import pandas as pd

from traceanalyzer.analyses import (
    balance,
    block_bounds,
    blocks,
    breakdown,
    call_phases,
    call_waits,
    calls,
    categories,
    clocks,
    collectives,
    comm_phases,
    copies,
    cuda_api,
    efficiency,
    exposed_calls,
    exposed_comm,
    fusions,
    gaps,
    gpu_gaps,
    gpu_metrics,
    gpu_ranges,
    gpu_utilization,
    graphs,
    headline,
    idle,
    instances,
    integrity,
    kernels,
    launches,
    matches,
    members,
    memory,
    memory_ops,
    mfu,
    micro_steps,
    modules,
    nccl,
    nvtx_projection,
    operator_kernels,
    operator_shapes,
    operators,
    overlap,
    phase_parts,
    phases,
    pipeline,
    pipeline_schedule,
    pipelines,
    queue_depth,
    ranks,
    steps,
    stragglers,
    stream_pairs,
    streams,
    sync_calls,
    sync_copies,
    timeline,
    waits,
)
from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.op_phases import op_phases
from traceanalyzer.analyses.operator_tree import OperatorTree
from traceanalyzer.analyses.operator_work import OperatorWork
from traceanalyzer.analyses.scopes import Scopes
from traceanalyzer.errors import UsageError
from traceanalyzer.model import RankTrace

Parts = Mapping[str, pd.DataFrame]
"""One rank's small tables, by analysis."""

__all__ = ["ANALYSES", "Analysis", "Parts", "Result", "combine", "reduce_rank", "run", "thresholds_of"]


@dataclass(frozen=True, slots=True)
class Analysis:
    """The two halves of an analysis; `per_rank` is absent when it only combines other Results."""

    across: Callable[..., Result]
    per_rank: Callable[..., pd.DataFrame] | None = None


ANALYSES: Mapping[str, Analysis] = MappingProxyType(
    {
        "integrity": Analysis(integrity.across, integrity.per_rank),
        "ranks": Analysis(ranks.across, ranks.per_rank),
        "headline": Analysis(headline.across),
        "breakdown": Analysis(breakdown.across, breakdown.per_rank),
        "overlap": Analysis(overlap.across, overlap.per_rank),
        "steps": Analysis(steps.across, steps.per_rank),
        "phases": Analysis(phases.across, phases.per_rank),
        "balance": Analysis(balance.across, balance.per_rank),
        "micro_steps": Analysis(micro_steps.across, micro_steps.per_rank),
        "nccl": Analysis(nccl.across, nccl.per_rank),
        "comm_phases": Analysis(comm_phases.across),
        "idle": Analysis(idle.across, idle.per_rank),
        "launches": Analysis(launches.across, launches.per_rank),
        "sync_calls": Analysis(sync_calls.across, sync_calls.per_rank),
        "kernels": Analysis(kernels.across, kernels.per_rank),
        "streams": Analysis(streams.across, streams.per_rank),
        "stream_pairs": Analysis(stream_pairs.across, stream_pairs.per_rank),
        "copies": Analysis(copies.across, copies.per_rank),
        "block_bounds": Analysis(block_bounds.across),
        "pipelines": Analysis(pipelines.across),
        "pipeline": Analysis(pipeline.across),
        "memory": Analysis(memory.across, memory.per_rank),
        "memory_ops": Analysis(memory_ops.across, memory_ops.per_rank),
        "sync_copies": Analysis(sync_copies.across, sync_copies.per_rank),
        "cuda_api": Analysis(cuda_api.across, cuda_api.per_rank),
        "nvtx_projection": Analysis(nvtx_projection.across, nvtx_projection.per_rank),
        "gpu_gaps": Analysis(gpu_gaps.across, gpu_gaps.per_rank),
        "gpu_utilization": Analysis(gpu_utilization.across, gpu_utilization.per_rank),
        "gpu_metrics": Analysis(gpu_metrics.across, gpu_metrics.per_rank),
        "categories": Analysis(categories.across, categories.per_rank),
        "mfu": Analysis(mfu.across, mfu.per_rank),
        "modules": Analysis(modules.across, modules.per_rank),
        "fusions": Analysis(fusions.across, fusions.per_rank),
        "graphs": Analysis(graphs.across, graphs.per_rank),
        "operators": Analysis(operators.across, operators.per_rank),
        "operator_shapes": Analysis(operator_shapes.across, operator_shapes.per_rank),
        "operator_kernels": Analysis(operator_kernels.across, operator_kernels.per_rank),
        "efficiency": Analysis(efficiency.across, efficiency.per_rank),
        "calls": Analysis(calls.across, calls.per_rank),
        "call_phases": Analysis(call_phases.across, call_phases.per_rank),
        "exposed_calls": Analysis(exposed_calls.across, exposed_calls.per_rank),
        "gaps": Analysis(gaps.across, gaps.per_rank),
        "queue_depth": Analysis(queue_depth.across, queue_depth.per_rank),
        "blocks": Analysis(blocks.across, blocks.per_rank),
        "pipeline_schedule": Analysis(pipeline_schedule.across, pipeline_schedule.per_rank),
        "gpu_ranges": Analysis(gpu_ranges.across, gpu_ranges.per_rank),
        "timeline": Analysis(timeline.across, timeline.per_rank),
        "exposed_comm": Analysis(exposed_comm.across, exposed_comm.per_rank),
        "stragglers": Analysis(stragglers.across, stragglers.per_rank),
        "collectives": Analysis(collectives.across),
        "matches": Analysis(matches.across),
        "clocks": Analysis(clocks.across),
        "instances": Analysis(instances.across),
        "members": Analysis(members.across, members.per_rank),
        "call_waits": Analysis(call_waits.across),
        "waits": Analysis(waits.across, waits.per_rank),
    }
)
"""In the order in which reports show them."""


SHARED: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "tree": OperatorTree.of,
        "work": OperatorWork.of,
        "scopes": Scopes.of,
        "category_of_op": categories.op_categories,
        "phase_of_op": op_phases,
        "shares": phase_parts.shares,
    }
)
"""What several analyses derive from one rank's events: built once a rank, passed to `per_rank` by name, as is what it
needs itself."""


def run(ranks: Iterable[RankTrace], names: Iterable[str] = ANALYSES, **options: Any) -> dict[str, Result]:
    """The named analyses of some ranks in this process; `options` are thresholds, by parameter name.

    Raises:
        UsageError: an option is no threshold of these analyses.
    """
    wanted = tuple(names)
    known = thresholds_of(wanted)
    unknown = [name for name in options if name not in known]
    if unknown:
        there_are = f"there are {', '.join(known)}" if known else f"{', '.join(wanted)} has none"
        raise UsageError(f"no threshold is called {unknown[0]!r}; {there_are}")
    parts = {trace.rank: reduce_rank(trace, wanted, **options) for trace in ranks}
    return combine(parts, wanted, **options)


def thresholds_of(names: Iterable[str]) -> dict[str, Any]:
    """Thresholds of the named analyses and of all that they need, by parameter name, with their defaults."""
    parameters = [
        parameter
        for name in _with_needed(names)
        for function in (ANALYSES[name].across, ANALYSES[name].per_rank)
        if function is not None
        for parameter in _parameters(function)
    ]
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def reduce_rank(trace: RankTrace, names: Iterable[str] = ANALYSES, **options: Any) -> dict[str, pd.DataFrame]:
    """One rank's small tables: all that analyses need of its events."""
    done: dict[str, pd.DataFrame] = {}
    shared: dict[str, Any] = {}

    def table(name: str) -> Any:
        if name in SHARED:
            if name not in shared:
                shared[name] = SHARED[name](trace, **_needed(SHARED[name], table, options))
            return shared[name]
        per_rank = ANALYSES[name].per_rank
        if name not in done and per_rank is not None:
            done[name] = per_rank(trace, **_needed(per_rank, table, options))
        return done[name]

    for name in _with_needed(names):
        if ANALYSES[name].per_rank is not None:
            table(name)
    return done


def combine(parts: Mapping[int, Parts], names: Iterable[str] = ANALYSES, **options: Any) -> dict[str, Result]:
    """Results from all ranks' small tables; each is computed once."""
    done: dict[str, Result] = {}

    def result(name: str) -> Result:
        if name not in done:
            own = {rank: tables[name] for rank, tables in parts.items() if name in tables}
            across = ANALYSES[name].across
            done[name] = across(own, **_needed(across, result, options))
        return done[name]

    return {name: result(name) for name in names}


def _needed(function: Callable[..., Any], source: Callable[[str], Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments after the first: tables or Results by name, and options where they are given."""
    parameters = _parameters(function)
    given = {p.name: options[p.name] for p in parameters if p.name in options}
    wanted = [p.name for p in parameters if p.default is p.empty and (p.name in ANALYSES or p.name in SHARED)]
    return given | {name: source(name) for name in wanted}


def _with_needed(names: Iterable[str]) -> list[str]:
    """The names and all that they need, directly or not."""
    found: list[str] = []
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name in found:
            continue
        found.append(name)
        for function in (ANALYSES[name].across, ANALYSES[name].per_rank):
            if function is not None:
                waiting += [p.name for p in _parameters(function) if p.name in ANALYSES]
    return found


@cache
def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """Those after the first."""
    return tuple(inspect.signature(function).parameters.values())[1:]
