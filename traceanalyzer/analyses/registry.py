"""Every analysis, and what they share.

An analysis is a module with `across(parts, …) -> Result`, where `parts` maps each rank to its small table, and
usually `per_rank(trace, …) -> table`. Further parameters name what it needs: of `per_rank` other analyses'
tables of the same rank or what is `SHARED`, of `across` other analyses' Results. Thresholds are keyword arguments
with defaults.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.blame import episodes, places, slower_calls, step_needs, step_parts, stragglers, what_ran
from traceanalyzer.analyses.communication import (
    call_waits,
    calls,
    clocks,
    collective_waits,
    collectives,
    exposed_comm,
    groups,
    instances,
    matches,
    members,
    nccl,
    waits,
)
from traceanalyzer.analyses.experts import (
    dispatch_loads,
    exchange_receivers,
    exchange_sends,
    exchanges,
    expert_layers,
    split_sizes,
)
from traceanalyzer.analyses.host import (
    compilations,
    cpu_steps,
    cuda_api,
    first_calls,
    gaps,
    host_meetings,
    host_silences,
    host_work,
    idle,
    launches,
    nvtx_projection,
    queue_depth,
    sync_calls,
)
from traceanalyzer.analyses.integrity import integrity
from traceanalyzer.analyses.kernels import fusions, graphs, kernels, kernels_over_ranks, time_slices
from traceanalyzer.analyses.memory import (
    memory,
    memory_calls,
    memory_categories,
    memory_fit,
    memory_levels,
    memory_peaks,
    memory_sources,
    memory_steps,
)
from traceanalyzer.analyses.memory.held import Held
from traceanalyzer.analyses.operators import (
    categories,
    efficiency,
    launch_loops,
    mfu,
    modules,
    operator_kernels,
    operator_launches,
    operator_shapes,
    operators,
)
from traceanalyzer.analyses.operators.launch_loops import Loops
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.operators.operator_work import OperatorWork
from traceanalyzer.analyses.operators.same_work import same_work
from traceanalyzer.analyses.operators.scopes import Scopes
from traceanalyzer.analyses.overview import (
    efficiency_over_ranks,
    host_steps,
    host_work_over_ranks,
    operators_over_ranks,
    over_ranks,
    path_over_ranks,
    steps_over_ranks,
    time_parts,
    unlike_ranks,
)
from traceanalyzer.analyses.phases import (
    by_collective,
    call_phases,
    comm_phases,
    exposed_calls,
    iterations,
    matrix_products,
    micro_steps,
    phase_parts,
    phases,
)
from traceanalyzer.analyses.phases.gradient_reductions import phases_with_reductions
from traceanalyzer.analyses.pipelines import pipeline, pipeline_messages, pipeline_schedule, pipelines
from traceanalyzer.analyses.replay import even_experts, path, replay, slack, slowdown, what_ifs
from traceanalyzer.analyses.streams import block_bounds, blocks, copies, memory_ops, stream_pairs, streams, sync_copies
from traceanalyzer.analyses.time import (
    balance,
    breakdown,
    gpu_gaps,
    gpu_utilization,
    headline,
    overlap,
    steps,
)
from traceanalyzer.analyses.timeline import counter_series, host_events, timeline
from traceanalyzer.analyses.trace import gpu_metrics, gpu_ranges, ranks
from traceanalyzer.meaning.columns import Column


@dataclass(frozen=True, slots=True)
class Analysis:
    """The two halves of an analysis; `per_rank` is absent when it only combines other Results."""

    across: Callable[..., Result]
    per_rank: Callable[..., pd.DataFrame] | None = None
    of: tuple[str, ...] = ()
    """Event tables: a rank without rows in each of them has none here, and `per_rank` is not asked."""
    sees_all: str = ""
    """Why `per_rank` reads operations outside the chosen steps too; all others count those of `trace.counted`."""

    @property
    def result(self) -> type[Result]:
        """The Result that it gives."""
        made: type[Result] = inspect.signature(self.across).return_annotation
        return made


_GPU, _COUNTERS, _CALLS = ("gpu_ops",), ("counters",), ("api_calls",)
_OPERATORS, _HOST = ("gpu_ops", "host_ops"), ("ranges", "host_ops")

_MATCHED = "calls are matched between ranks over the whole capture"
_REPLAYED = "the job is replayed from its beginning"
_ON_THE_GPU = "what runs on the GPU at a time may be of an earlier step"

ANALYSES: Mapping[str, Analysis] = MappingProxyType(
    {
        "integrity": Analysis(integrity.across, integrity.per_rank),
        "ranks": Analysis(ranks.across, ranks.per_rank, sees_all="the span of all recorded events is theirs"),
        "headline": Analysis(headline.across),
        "breakdown": Analysis(breakdown.across, breakdown.per_rank, _GPU),
        "time_parts": Analysis(time_parts.across),
        "step_time_parts": Analysis(time_parts.of_steps),
        "over_ranks": Analysis(over_ranks.across),
        "unlike_ranks": Analysis(unlike_ranks.across),
        "steps_over_ranks": Analysis(steps_over_ranks.across),
        "host_steps": Analysis(host_steps.across),
        "overlap": Analysis(overlap.across, overlap.per_rank, _GPU),
        "steps": Analysis(steps.across, steps.per_rank, ("gpu_ops", "ranges")),
        "iterations": Analysis(iterations.across, iterations.per_rank, _GPU),
        "phases": Analysis(phases.across, phases.per_rank, _GPU),
        "balance": Analysis(balance.across, balance.per_rank, _COUNTERS),
        "micro_steps": Analysis(micro_steps.across, micro_steps.per_rank),
        "nccl": Analysis(nccl.across, nccl.per_rank, _GPU),
        "by_collective": Analysis(by_collective.across),
        "groups": Analysis(groups.across, groups.per_rank, _GPU),
        "comm_phases": Analysis(comm_phases.across),
        "idle": Analysis(idle.across, idle.per_rank, _GPU, sees_all=_ON_THE_GPU),
        "host_meetings": Analysis(host_meetings.across, host_meetings.per_rank, _HOST),
        "host_silences": Analysis(host_silences.across, host_silences.per_rank, _HOST, sees_all=_ON_THE_GPU),
        "compilations": Analysis(compilations.across, compilations.per_rank, _HOST, sees_all=_ON_THE_GPU),
        "host_work": Analysis(host_work.across, host_work.per_rank, _HOST, sees_all=_ON_THE_GPU),
        "host_work_over_ranks": Analysis(host_work_over_ranks.across),
        "cpu_steps": Analysis(cpu_steps.across),
        "cpu_step_parts": Analysis(cpu_steps.of_parts),
        "launches": Analysis(launches.across, launches.per_rank, _GPU),
        "first_calls": Analysis(first_calls.across, first_calls.per_rank, _CALLS),
        "sync_calls": Analysis(sync_calls.across, sync_calls.per_rank, _CALLS, sees_all=_ON_THE_GPU),
        "kernels": Analysis(kernels.across, kernels.per_rank, _GPU),
        "kernels_over_ranks": Analysis(kernels_over_ranks.across),
        "time_slices": Analysis(time_slices.across, time_slices.per_rank, _GPU),
        "streams": Analysis(streams.across, streams.per_rank, _GPU, sees_all=_ON_THE_GPU),
        "stream_pairs": Analysis(stream_pairs.across, stream_pairs.per_rank, _GPU),
        "copies": Analysis(copies.across, copies.per_rank, _GPU, sees_all=_ON_THE_GPU),
        "block_bounds": Analysis(block_bounds.across),
        "pipelines": Analysis(pipelines.across),
        "pipeline": Analysis(pipeline.across),
        "memory": Analysis(memory.across, memory.per_rank, _COUNTERS),
        "memory_peaks": Analysis(memory_peaks.across, memory_peaks.per_rank, _COUNTERS),
        "memory_steps": Analysis(memory_steps.across, memory_steps.per_rank, _COUNTERS),
        "memory_sources": Analysis(memory_sources.across, memory_sources.per_rank, _COUNTERS),
        "memory_categories": Analysis(memory_categories.across, memory_categories.per_rank, _COUNTERS),
        "memory_levels": Analysis(memory_levels.across, memory_levels.per_rank, _COUNTERS),
        "memory_calls": Analysis(memory_calls.across, memory_calls.per_rank, _CALLS),
        "memory_fit": Analysis(memory_fit.across),
        "memory_ops": Analysis(memory_ops.across, memory_ops.per_rank, _GPU),
        "sync_copies": Analysis(sync_copies.across, sync_copies.per_rank, _GPU),
        "cuda_api": Analysis(cuda_api.across, cuda_api.per_rank, _CALLS),
        "nvtx_projection": Analysis(nvtx_projection.across, nvtx_projection.per_rank, _GPU),
        "gpu_gaps": Analysis(gpu_gaps.across, gpu_gaps.per_rank, _GPU, sees_all=_ON_THE_GPU),
        "gpu_utilization": Analysis(gpu_utilization.across, gpu_utilization.per_rank, _GPU),
        "gpu_metrics": Analysis(gpu_metrics.across, gpu_metrics.per_rank, _COUNTERS),
        "categories": Analysis(categories.across, categories.per_rank, _GPU),
        "mfu": Analysis(mfu.across, mfu.per_rank, _GPU),
        "modules": Analysis(modules.across, modules.per_rank, _GPU, sees_all=_ON_THE_GPU),
        "fusions": Analysis(fusions.across, fusions.per_rank, _GPU),
        "graphs": Analysis(graphs.across, graphs.per_rank, _GPU),
        "operators": Analysis(operators.across, operators.per_rank, _OPERATORS),
        "operators_over_ranks": Analysis(operators_over_ranks.across),
        "operator_shapes": Analysis(operator_shapes.across, operator_shapes.per_rank, _OPERATORS),
        "operator_kernels": Analysis(operator_kernels.across, operator_kernels.per_rank, _GPU),
        "operator_launches": Analysis(operator_launches.across, operator_launches.per_rank, _GPU),
        "launch_loops": Analysis(launch_loops.across, launch_loops.per_rank, _GPU),
        "matrix_products": Analysis(matrix_products.across, matrix_products.per_rank, _GPU),
        "efficiency": Analysis(efficiency.across, efficiency.per_rank, _GPU),
        "efficiency_over_ranks": Analysis(efficiency_over_ranks.across),
        "calls": Analysis(calls.across, calls.per_rank, _GPU),
        "call_phases": Analysis(call_phases.across, call_phases.per_rank, _GPU),
        "exposed_calls": Analysis(exposed_calls.across, exposed_calls.per_rank, _GPU),
        "gaps": Analysis(gaps.across, gaps.per_rank, _GPU, sees_all=_ON_THE_GPU),
        "queue_depth": Analysis(queue_depth.across, queue_depth.per_rank, _GPU),
        "blocks": Analysis(blocks.across, blocks.per_rank, _GPU, sees_all=_ON_THE_GPU),
        "expert_layers": Analysis(expert_layers.across),
        "exchange_receivers": Analysis(exchange_receivers.across),
        "dispatch_loads": Analysis(dispatch_loads.across),
        "exchange_sends": Analysis(exchange_sends.across, exchange_sends.per_rank, _GPU),
        "exchanges": Analysis(exchanges.across, exchanges.per_rank, _GPU),
        "pipeline_messages": Analysis(pipeline_messages.across, pipeline_messages.per_rank, _GPU),
        "pipeline_schedule": Analysis(pipeline_schedule.across, pipeline_schedule.per_rank, _GPU),
        "gpu_ranges": Analysis(gpu_ranges.across, gpu_ranges.per_rank, _GPU),
        "timeline": Analysis(timeline.across, timeline.per_rank, _GPU),
        "host_events": Analysis(host_events.across, host_events.per_rank, _GPU),
        "counter_series": Analysis(counter_series.across, counter_series.per_rank, _COUNTERS),
        "exposed_comm": Analysis(exposed_comm.across, exposed_comm.per_rank, _GPU, sees_all=_MATCHED),
        "places": Analysis(places.across),
        "episodes": Analysis(episodes.across),
        "what_ran": Analysis(what_ran.across, what_ran.per_rank, _GPU),
        "step_needs": Analysis(step_needs.across, step_needs.per_rank, _GPU, sees_all=_ON_THE_GPU),
        "stragglers": Analysis(stragglers.across, stragglers.per_rank, _GPU, sees_all=_MATCHED),
        "collectives": Analysis(collectives.across),
        "collective_waits": Analysis(collective_waits.across),
        "replay": Analysis(replay.across, replay.per_rank, _GPU, sees_all=_REPLAYED),
        "even_experts": Analysis(even_experts.across),
        "what_ifs": Analysis(what_ifs.across),
        "slowdown": Analysis(slowdown.across),
        "critical_path": Analysis(path.across),
        "path_over_ranks": Analysis(path_over_ranks.across),
        "slack": Analysis(slack.across),
        "path_stretches": Analysis(path.stretches),
        "matches": Analysis(matches.across),
        "clocks": Analysis(clocks.across),
        "instances": Analysis(instances.across),
        "members": Analysis(members.across, members.per_rank, _GPU, sees_all=_MATCHED),
        "call_waits": Analysis(call_waits.across),
        "slower_calls": Analysis(slower_calls.across),
        "waits": Analysis(waits.across, waits.per_rank, _GPU, sees_all=_MATCHED),
    }
)
"""In the order in which reports show them."""


def column_named(name: str) -> Column:
    """What Results mean by a column of this name; where none has it, what the name itself says."""
    return _by_name().get(name) or Column.named(name)


@cache
def _by_name() -> Mapping[str, Column]:
    """The first meaning of each name: Results agree in its unit."""
    pairs = [pair for analysis in ANALYSES.values() for pair in analysis.result.columns.items()]
    return dict(reversed(pairs))


SHARED: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "held": Held.of,
        "all_to_alls": split_sizes.of_calls,
        "phase_of_op": phases_with_reductions,
        "shares": phase_parts.shares,
        "parts_of_steps": step_parts.step_parts,
        "doings": what_ran.longest_doings,
        "tree": OperatorTree.of,
        "same_work": same_work,
        "category_of_op": categories.op_categories,
        "work": OperatorWork.of,
        "scopes": Scopes.of,
        "loops": Loops.of,
    }
)
"""What several analyses derive from one rank's events: built once a rank, passed to `per_rank` by name, as is what it
needs itself."""
