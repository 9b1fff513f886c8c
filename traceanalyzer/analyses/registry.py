"""Every analysis, and what they share.

An analysis is `across(parts, …) -> Result`, where `parts` maps each rank to its small table, and usually
`per_rank(trace, …) -> table`; without the latter it has no parts. The Result's
class stands for `across` where that only puts the tables under each other.
Further parameters name what is needed: of `per_rank` other analyses' tables of the same rank or what is `SHARED`, of
`across` other analyses' Results. Thresholds are keyword arguments with defaults.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import pandas as pd

from traceanalyzer.analyses import (
    breakdown,
    experts,
    integrity,
    kernels,
    memory,
    overview,
    phases,
    streams,
    timeline,
    trace,
)
from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.blame import episodes, rank_sets, slow_transfers, step_budget
from traceanalyzer.analyses.communication import calls, clocks, collectives, groups, waits
from traceanalyzer.analyses.host import api_calls, cpu_time, idle
from traceanalyzer.analyses.memory import Held
from traceanalyzer.analyses.operators import efficiency, launch_loops, operator_tree, operators
from traceanalyzer.analyses.operators.flops import OperatorWork
from traceanalyzer.analyses.operators.launch_loops import Loops
from traceanalyzer.analyses.operators.operator_tree import OperatorTree, Scopes, same_work
from traceanalyzer.analyses.phases import micro_steps
from traceanalyzer.analyses.phases.micro_steps import phases_with_reductions
from traceanalyzer.analyses.pipelines import pipeline, shape
from traceanalyzer.analyses.replay import critical_path, replay
from traceanalyzer.meaning.columns import Column


@dataclass(frozen=True, slots=True)
class Analysis:
    """The two halves of an analysis; `per_rank` is absent when it only combines other Results."""

    made_by: type[Result] | Callable[..., Result]
    per_rank: Callable[..., pd.DataFrame] | None = None
    of: tuple[str, ...] = ("gpu_ops",)
    """Event tables: a rank without rows in each of them has none here, and `per_rank` is not asked."""

    @property
    def across(self) -> Callable[..., Result]:
        """What makes the Result of all ranks' tables; a Result's own class puts them under each other."""
        made_by: Any = self.made_by
        return getattr(made_by, "of_ranks", made_by)

    @property
    def result(self) -> type[Result]:
        """The Result that it gives."""
        made_by: Any = self.made_by
        return made_by if isinstance(made_by, type) else inspect.signature(made_by).return_annotation


_NONE, _COUNTERS, _CALLS = (), ("counters",), ("api_calls",)
_OPERATORS, _HOST = ("gpu_ops", "host_ops"), ("ranges", "host_ops")

ANALYSES: Mapping[str, Analysis] = MappingProxyType(
    {
        "integrity": Analysis(integrity.across, integrity.per_rank, _NONE),
        "ranks": Analysis(trace.ranks_across, trace.ranks_per_rank, _NONE),
        "headline": Analysis(breakdown.headline_across),
        "breakdown": Analysis(breakdown.Breakdown, breakdown.breakdown_per_rank),
        "time_parts": Analysis(overview.time_parts_across),
        "unlike_ranks": Analysis(overview.unlike_ranks_across),
        "steps": Analysis(breakdown.Steps, breakdown.steps_per_rank, ("gpu_ops", "ranges")),
        "iterations": Analysis(micro_steps.Iterations, micro_steps.iterations_per_rank),
        "phases": Analysis(phases.Phases, phases.phases_per_rank),
        "micro_steps": Analysis(micro_steps.MicroSteps, micro_steps.micro_steps_per_rank, _NONE),
        "nccl": Analysis(collectives.nccl_across, collectives.per_rank),
        "by_collective": Analysis(phases.by_collective_across),
        "groups": Analysis(groups.across, groups.per_rank),
        "comm_phases": Analysis(phases.comm_phases_across),
        "idle": Analysis(idle.Idle, idle.idle_per_rank),
        "host_silences": Analysis(cpu_time.HostSilences, cpu_time.host_silences_per_rank, ("api_calls", "ranges")),
        "compilations": Analysis(cpu_time.Compilations, cpu_time.compilations_per_rank, _HOST),
        "host_work": Analysis(cpu_time.HostWork, cpu_time.per_rank, _HOST),
        "cpu_steps": Analysis(cpu_time.cpu_steps_across),
        "launches": Analysis(api_calls.Launches, api_calls.launches_per_rank),
        "first_calls": Analysis(api_calls.FirstCalls, api_calls.first_calls_per_rank, _CALLS),
        "sync_calls": Analysis(api_calls.SyncCalls, api_calls.sync_calls_per_rank, _CALLS),
        "kernels": Analysis(kernels.Kernels, kernels.kernels_per_rank),
        "kernels_over_ranks": Analysis(kernels.kernels_over_ranks_across),
        "streams": Analysis(streams.Streams, streams.streams_per_rank),
        "stream_pairs": Analysis(streams.StreamPairs, streams.stream_pairs_per_rank),
        "copies": Analysis(streams.Copies, streams.copies_per_rank),
        "block_bounds": Analysis(streams.BlockBounds, streams.block_bounds_per_rank),
        "pipelines": Analysis(pipeline.pipelines_across),
        "pipeline": Analysis(pipeline.pipeline_across),
        "memory": Analysis(memory.memory_across, memory.memory_per_rank, _COUNTERS),
        "memory_steps": Analysis(memory.MemorySteps, memory.memory_steps_per_rank, _COUNTERS),
        "memory_sources": Analysis(memory.MemorySources, memory.memory_sources_per_rank, _COUNTERS),
        "memory_categories": Analysis(memory.MemoryCategories, memory.memory_categories_per_rank, _COUNTERS),
        "memory_levels": Analysis(memory.MemoryLevels, memory.memory_levels_per_rank, _COUNTERS),
        "memory_calls": Analysis(memory.MemoryCalls, memory.memory_calls_per_rank, _CALLS),
        "memory_fit": Analysis(memory.memory_fit_across),
        "sync_copies": Analysis(streams.SyncCopies, streams.sync_copies_per_rank),
        "cuda_api": Analysis(api_calls.CudaApi, api_calls.cuda_api_per_rank, _CALLS),
        "nvtx_projection": Analysis(api_calls.NvtxProjection, api_calls.nvtx_projection_per_rank),
        "gpu_utilization": Analysis(api_calls.GpuUtilization, api_calls.gpu_utilization_per_rank),
        "gpu_metrics": Analysis(trace.GpuMetrics, trace.gpu_metrics_per_rank, _COUNTERS),
        "categories": Analysis(operators.Categories, operators.categories_per_rank),
        "mfu": Analysis(efficiency.mfu_across, efficiency.mfu_per_rank),
        "modules": Analysis(operator_tree.Modules, operator_tree.modules_per_rank),
        "operators": Analysis(operators.Operators, operators.operators_per_rank, _OPERATORS),
        "operators_over_ranks": Analysis(overview.operators_over_ranks_across),
        "operator_shapes": Analysis(operators.OperatorShapes, operators.operator_shapes_per_rank, _OPERATORS),
        "operator_kernels": Analysis(operators.OperatorKernels, operators.operator_kernels_per_rank),
        "operator_launches": Analysis(operators.OperatorLaunches, operators.operator_launches_per_rank),
        "launch_loops": Analysis(launch_loops.LaunchLoops, launch_loops.per_rank),
        "matrix_products": Analysis(micro_steps.MatrixProducts, micro_steps.matrix_products_per_rank),
        "efficiency": Analysis(efficiency.Efficiency, efficiency.efficiency_per_rank),
        "calls": Analysis(calls.across, calls.per_rank),
        "call_phases": Analysis(phases.CallPhases, phases.call_phases_per_rank),
        "exposed_calls": Analysis(phases.exposed_calls_across, phases.exposed_calls_per_rank),
        "gaps": Analysis(idle.GapTable, idle.gaps_per_rank),
        "expert_layers": Analysis(experts.expert_layers_across),
        "exchange_sends": Analysis(experts.exchange_sends_across),
        "exchanges": Analysis(experts.exchanges_across, experts.exchanges_per_rank),
        "pipeline_messages": Analysis(shape.PipelineMessages, shape.per_rank),
        "pipeline_schedule": Analysis(pipeline.PipelineSchedule, pipeline.pipeline_schedule_per_rank),
        "gpu_ranges": Analysis(trace.GpuRanges, trace.gpu_ranges_per_rank),
        "timeline": Analysis(timeline.timeline_across, timeline.timeline_per_rank),
        "host_events": Analysis(timeline.HostEvents, timeline.host_events_per_rank),
        "counter_series": Analysis(timeline.CounterSeries, timeline.counter_series_per_rank, _COUNTERS),
        "exposed_comm": Analysis(phases.exposed_comm_across),
        "places": Analysis(rank_sets.across),
        "episodes": Analysis(episodes.across),
        "what_ran": Analysis(step_budget.what_ran_across, step_budget.what_ran_per_rank),
        "step_needs": Analysis(step_budget.step_needs_across, step_budget.step_needs_per_rank),
        "stragglers": Analysis(episodes.stragglers),
        "collectives": Analysis(collectives.collectives_across),
        "replay": Analysis(replay.across, replay.per_rank),
        "critical_path": Analysis(critical_path.across),
        "bottleneck": Analysis(critical_path.bottleneck),
        "path_stretches": Analysis(critical_path.stretches),
        "clocks": Analysis(clocks.across),
        "members": Analysis(waits.members_across, waits.members_per_rank),
        "call_waits": Analysis(waits.call_waits_across),
        "slower_calls": Analysis(slow_transfers.across),
        "waits": Analysis(waits.waits_across, waits.waits_per_rank),
    }
)
"""In the order in which reports show them."""


def column_named(name: str) -> Column:
    """What Results mean by a column of this name; where none has it, what the name itself says."""
    return _by_name().get(name) or Column.of(name)


@cache
def _by_name() -> Mapping[str, Column]:
    """The first meaning of each name: Results agree in its unit."""
    pairs = [pair for analysis in ANALYSES.values() for pair in analysis.result.columns.items()]
    return dict(reversed(pairs))


SHARED: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "held": Held.of,
        "phase_of_op": phases_with_reductions,
        "parts_of_steps": step_budget.step_parts,
        "doings": step_budget.longest_doings,
        "tree": OperatorTree.of,
        "same_work": same_work,
        "category_of_op": operators.op_categories,
        "work": OperatorWork.of,
        "scopes": Scopes.of,
        "loops": Loops.of,
    }
)
"""What several analyses derive from one rank's events: built once a rank, passed to `per_rank` by name, as is what it
needs itself."""
