# Made from the registry of analyses by `python -m tests.typed_names`.
from collections.abc import Mapping as _Mapping
from typing import Literal, TypeAlias

from traceanalyzer.analyses import Result as Result
from traceanalyzer.analyses import Results as _Results
from traceanalyzer.analyses.blame.episodes import Episodes as _Episodes
from traceanalyzer.analyses.blame.episodes import Stragglers as _Stragglers
from traceanalyzer.analyses.blame.rank_sets import Places as _Places
from traceanalyzer.analyses.blame.slow_transfers import SlowerCalls as _SlowerCalls
from traceanalyzer.analyses.blame.step_budget import StepNeeds as _StepNeeds
from traceanalyzer.analyses.blame.step_budget import WhatRan as _WhatRan
from traceanalyzer.analyses.breakdown import Breakdown as _Breakdown
from traceanalyzer.analyses.breakdown import Headline as _Headline
from traceanalyzer.analyses.breakdown import Steps as _Steps
from traceanalyzer.analyses.communication.calls import Calls as _Calls
from traceanalyzer.analyses.communication.clocks import Clocks as _Clocks
from traceanalyzer.analyses.communication.collectives import Collectives as _Collectives
from traceanalyzer.analyses.communication.collectives import Nccl as _Nccl
from traceanalyzer.analyses.communication.groups import Groups as _Groups
from traceanalyzer.analyses.communication.waits import CallWaits as _CallWaits
from traceanalyzer.analyses.communication.waits import Members as _Members
from traceanalyzer.analyses.communication.waits import Waits as _Waits
from traceanalyzer.analyses.experts import Exchanges as _Exchanges
from traceanalyzer.analyses.experts import ExchangeSends as _ExchangeSends
from traceanalyzer.analyses.experts import ExpertLayers as _ExpertLayers
from traceanalyzer.analyses.host.api_calls import CudaApi as _CudaApi
from traceanalyzer.analyses.host.api_calls import FirstCalls as _FirstCalls
from traceanalyzer.analyses.host.api_calls import GpuUtilization as _GpuUtilization
from traceanalyzer.analyses.host.api_calls import Launches as _Launches
from traceanalyzer.analyses.host.api_calls import NvtxProjection as _NvtxProjection
from traceanalyzer.analyses.host.api_calls import SyncCalls as _SyncCalls
from traceanalyzer.analyses.host.cpu_time import Compilations as _Compilations
from traceanalyzer.analyses.host.cpu_time import CpuSteps as _CpuSteps
from traceanalyzer.analyses.host.cpu_time import HostSilences as _HostSilences
from traceanalyzer.analyses.host.cpu_time import HostWork as _HostWork
from traceanalyzer.analyses.host.idle import GapTable as _GapTable
from traceanalyzer.analyses.host.idle import Idle as _Idle
from traceanalyzer.analyses.integrity import Integrity as _Integrity
from traceanalyzer.analyses.kernels import Kernels as _Kernels
from traceanalyzer.analyses.kernels import KernelsOverRanks as _KernelsOverRanks
from traceanalyzer.analyses.memory import Memory as _Memory
from traceanalyzer.analyses.memory import MemoryCalls as _MemoryCalls
from traceanalyzer.analyses.memory import MemoryCategories as _MemoryCategories
from traceanalyzer.analyses.memory import MemoryFit as _MemoryFit
from traceanalyzer.analyses.memory import MemoryLevels as _MemoryLevels
from traceanalyzer.analyses.memory import MemorySources as _MemorySources
from traceanalyzer.analyses.memory import MemorySteps as _MemorySteps
from traceanalyzer.analyses.operators.efficiency import Efficiency as _Efficiency
from traceanalyzer.analyses.operators.efficiency import Mfu as _Mfu
from traceanalyzer.analyses.operators.launch_loops import LaunchLoops as _LaunchLoops
from traceanalyzer.analyses.operators.operator_tree import Modules as _Modules
from traceanalyzer.analyses.operators.operators import Categories as _Categories
from traceanalyzer.analyses.operators.operators import OperatorKernels as _OperatorKernels
from traceanalyzer.analyses.operators.operators import OperatorLaunches as _OperatorLaunches
from traceanalyzer.analyses.operators.operators import Operators as _Operators
from traceanalyzer.analyses.operators.operators import OperatorShapes as _OperatorShapes
from traceanalyzer.analyses.overview import OperatorsOverRanks as _OperatorsOverRanks
from traceanalyzer.analyses.overview import TimeParts as _TimeParts
from traceanalyzer.analyses.overview import UnlikeRanks as _UnlikeRanks
from traceanalyzer.analyses.phases import ByCollective as _ByCollective
from traceanalyzer.analyses.phases import CallPhases as _CallPhases
from traceanalyzer.analyses.phases import CommPhases as _CommPhases
from traceanalyzer.analyses.phases import ExposedCalls as _ExposedCalls
from traceanalyzer.analyses.phases import ExposedComm as _ExposedComm
from traceanalyzer.analyses.phases import Phases as _Phases
from traceanalyzer.analyses.phases.micro_steps import Iterations as _Iterations
from traceanalyzer.analyses.phases.micro_steps import MatrixProducts as _MatrixProducts
from traceanalyzer.analyses.phases.micro_steps import MicroSteps as _MicroSteps
from traceanalyzer.analyses.pipelines.pipeline import Pipeline as _Pipeline
from traceanalyzer.analyses.pipelines.pipeline import Pipelines as _Pipelines
from traceanalyzer.analyses.pipelines.pipeline import PipelineSchedule as _PipelineSchedule
from traceanalyzer.analyses.pipelines.shape import PipelineMessages as _PipelineMessages
from traceanalyzer.analyses.replay.critical_path import Bottleneck as _Bottleneck
from traceanalyzer.analyses.replay.critical_path import CriticalPath as _CriticalPath
from traceanalyzer.analyses.replay.critical_path import PathStretches as _PathStretches
from traceanalyzer.analyses.replay.replay import Replay as _Replay
from traceanalyzer.analyses.streams import BlockBounds as _BlockBounds
from traceanalyzer.analyses.streams import Copies as _Copies
from traceanalyzer.analyses.streams import StreamPairs as _StreamPairs
from traceanalyzer.analyses.streams import Streams as _Streams
from traceanalyzer.analyses.streams import SyncCopies as _SyncCopies
from traceanalyzer.analyses.timeline import CounterSeries as _CounterSeries
from traceanalyzer.analyses.timeline import HostEvents as _HostEvents
from traceanalyzer.analyses.timeline import Timeline as _Timeline
from traceanalyzer.analyses.trace import GpuMetrics as _GpuMetrics
from traceanalyzer.analyses.trace import GpuRanges as _GpuRanges
from traceanalyzer.analyses.trace import Ranks as _Ranks
from traceanalyzer.errors import InputError as InputError
from traceanalyzer.errors import NotATraceError as NotATraceError
from traceanalyzer.errors import TraceAnalyzerError as TraceAnalyzerError
from traceanalyzer.errors import UsageError as UsageError
from traceanalyzer.export.hta import to_hta as to_hta
from traceanalyzer.export.perfetto import export as export
from traceanalyzer.findings import Finding as Finding
from traceanalyzer.findings import Findings as Findings
from traceanalyzer.functions import what_if as what_if
from traceanalyzer.job.model_state import Model as _Model
from traceanalyzer.job.run_info import Placed as _Placed
from traceanalyzer.job.run_info import StatedWork as _StatedWork
from traceanalyzer.job.run_info import Wiring as _Wiring
from traceanalyzer.loading import load as load
from traceanalyzer.model import RankTrace as RankTrace
from traceanalyzer.model import TraceSet as TraceSet
from traceanalyzer.report.comparison import compare as compare
from traceanalyzer.report.writers.notebook import NotebookReport as _NotebookReport
from traceanalyzer.samples import sample as sample

_ResultName: TypeAlias = Literal[
    "integrity",
    "ranks",
    "headline",
    "breakdown",
    "time_parts",
    "unlike_ranks",
    "steps",
    "iterations",
    "phases",
    "micro_steps",
    "nccl",
    "by_collective",
    "groups",
    "comm_phases",
    "idle",
    "host_silences",
    "compilations",
    "host_work",
    "cpu_steps",
    "launches",
    "first_calls",
    "sync_calls",
    "kernels",
    "kernels_over_ranks",
    "streams",
    "stream_pairs",
    "copies",
    "block_bounds",
    "pipelines",
    "pipeline",
    "memory",
    "memory_steps",
    "memory_sources",
    "memory_categories",
    "memory_levels",
    "memory_calls",
    "memory_fit",
    "sync_copies",
    "cuda_api",
    "nvtx_projection",
    "gpu_utilization",
    "gpu_metrics",
    "categories",
    "mfu",
    "modules",
    "operators",
    "operators_over_ranks",
    "operator_shapes",
    "operator_kernels",
    "operator_launches",
    "launch_loops",
    "matrix_products",
    "efficiency",
    "calls",
    "call_phases",
    "exposed_calls",
    "gaps",
    "expert_layers",
    "exchange_sends",
    "exchanges",
    "pipeline_messages",
    "pipeline_schedule",
    "gpu_ranges",
    "timeline",
    "host_events",
    "counter_series",
    "exposed_comm",
    "places",
    "episodes",
    "what_ran",
    "step_needs",
    "stragglers",
    "collectives",
    "replay",
    "critical_path",
    "bottleneck",
    "path_stretches",
    "clocks",
    "members",
    "call_waits",
    "slower_calls",
    "waits",
]
__version__: str

def analyse(
    traces: TraceSet,
    *names: _ResultName,
    integrity_common_pct: float = 90,
    wanted_ranks: frozenset[int] | None = None,
    run_world_size: int | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    unlike_points: float = 2.0,
    unlike_deviations: float = 5.0,
    wiring: _Wiring | None = None,
    idle_short_ns: int = 5000,
    idle_launch_ns: int = 50000,
    silent_ns: int = 1000000,
    stream_role_pct: float = 90,
    block_repeats: int = 4,
    run_memory: _Mapping[int, _Mapping[str, int]] | None = None,
    memory_points: int = 600,
    trained_model: _Model | None = None,
    bins: int = 200,
    unprofiled_step_ns: int | None = None,
    stated_work: _StatedWork | None = None,
    most_host_events: int = 16000,
    counter_bins: int = 300,
    most_replayed: int = 8000000,
    least_times: float = 1.2,
) -> _Results: ...
def find(
    traces: TraceSet,
    *,
    integrity_common_pct: float = 90,
    wanted_ranks: frozenset[int] | None = None,
    run_world_size: int | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    unlike_points: float = 2.0,
    unlike_deviations: float = 5.0,
    wiring: _Wiring | None = None,
    idle_short_ns: int = 5000,
    idle_launch_ns: int = 50000,
    silent_ns: int = 1000000,
    stream_role_pct: float = 90,
    block_repeats: int = 4,
    run_memory: _Mapping[int, _Mapping[str, int]] | None = None,
    memory_points: int = 600,
    trained_model: _Model | None = None,
    bins: int = 200,
    unprofiled_step_ns: int | None = None,
    stated_work: _StatedWork | None = None,
    most_host_events: int = 16000,
    counter_bins: int = 300,
    most_replayed: int = 8000000,
    least_times: float = 1.2,
) -> Findings: ...
def report(
    traces: TraceSet,
    *,
    integrity_common_pct: float = 90,
    wanted_ranks: frozenset[int] | None = None,
    run_world_size: int | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    unlike_points: float = 2.0,
    unlike_deviations: float = 5.0,
    wiring: _Wiring | None = None,
    idle_short_ns: int = 5000,
    idle_launch_ns: int = 50000,
    silent_ns: int = 1000000,
    stream_role_pct: float = 90,
    block_repeats: int = 4,
    run_memory: _Mapping[int, _Mapping[str, int]] | None = None,
    memory_points: int = 600,
    trained_model: _Model | None = None,
    bins: int = 200,
    unprofiled_step_ns: int | None = None,
    stated_work: _StatedWork | None = None,
    most_host_events: int = 16000,
    counter_bins: int = 300,
    most_replayed: int = 8000000,
    least_times: float = 1.2,
) -> _NotebookReport: ...
def integrity(
    traces: TraceSet,
    *,
    integrity_common_pct: float = 90,
    wanted_ranks: frozenset[int] | None = None,
    run_world_size: int | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    wiring: _Wiring | None = None,
) -> _Integrity: ...
def ranks(
    traces: TraceSet, *, hosts: _Mapping[int, _Placed] | None = None, run_hosts: _Mapping[int, str] | None = None
) -> _Ranks: ...
def headline(
    traces: TraceSet, *, hosts: _Mapping[int, _Placed] | None = None, run_hosts: _Mapping[int, str] | None = None
) -> _Headline: ...
def breakdown(traces: TraceSet) -> _Breakdown: ...
def time_parts(
    traces: TraceSet,
    *,
    idle_short_ns: int = 5000,
    idle_launch_ns: int = 50000,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    least_times: float = 1.2,
    wiring: _Wiring | None = None,
) -> _TimeParts: ...
def unlike_ranks(
    traces: TraceSet,
    *,
    unlike_points: float = 2.0,
    unlike_deviations: float = 5.0,
    idle_short_ns: int = 5000,
    idle_launch_ns: int = 50000,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    least_times: float = 1.2,
    wiring: _Wiring | None = None,
) -> _UnlikeRanks: ...
def steps(traces: TraceSet) -> _Steps: ...
def iterations(traces: TraceSet) -> _Iterations: ...
def phases(traces: TraceSet) -> _Phases: ...
def micro_steps(traces: TraceSet) -> _MicroSteps: ...
def nccl(
    traces: TraceSet,
    *,
    wiring: _Wiring | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _Nccl: ...
def by_collective(
    traces: TraceSet,
    *,
    wiring: _Wiring | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _ByCollective: ...
def groups(
    traces: TraceSet,
    *,
    wiring: _Wiring | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _Groups: ...
def comm_phases(
    traces: TraceSet,
    *,
    wiring: _Wiring | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _CommPhases: ...
def idle(traces: TraceSet, *, idle_short_ns: int = 5000, idle_launch_ns: int = 50000) -> _Idle: ...
def host_silences(traces: TraceSet, *, silent_ns: int = 1000000) -> _HostSilences: ...
def compilations(traces: TraceSet) -> _Compilations: ...
def host_work(traces: TraceSet) -> _HostWork: ...
def cpu_steps(
    traces: TraceSet, *, hosts: _Mapping[int, _Placed] | None = None, run_hosts: _Mapping[int, str] | None = None
) -> _CpuSteps: ...
def launches(traces: TraceSet) -> _Launches: ...
def first_calls(traces: TraceSet) -> _FirstCalls: ...
def sync_calls(traces: TraceSet) -> _SyncCalls: ...
def kernels(traces: TraceSet) -> _Kernels: ...
def kernels_over_ranks(traces: TraceSet) -> _KernelsOverRanks: ...
def streams(traces: TraceSet, *, stream_role_pct: float = 90) -> _Streams: ...
def stream_pairs(traces: TraceSet) -> _StreamPairs: ...
def copies(traces: TraceSet) -> _Copies: ...
def block_bounds(traces: TraceSet, *, block_repeats: int = 4) -> _BlockBounds: ...
def pipelines(
    traces: TraceSet,
    *,
    wiring: _Wiring | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _Pipelines: ...
def pipeline(
    traces: TraceSet,
    *,
    wiring: _Wiring | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _Pipeline: ...
def memory(
    traces: TraceSet,
    *,
    run_memory: _Mapping[int, _Mapping[str, int]] | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _Memory: ...
def memory_steps(traces: TraceSet) -> _MemorySteps: ...
def memory_sources(traces: TraceSet) -> _MemorySources: ...
def memory_categories(traces: TraceSet) -> _MemoryCategories: ...
def memory_levels(traces: TraceSet, *, memory_points: int = 600) -> _MemoryLevels: ...
def memory_calls(traces: TraceSet) -> _MemoryCalls: ...
def memory_fit(
    traces: TraceSet,
    *,
    trained_model: _Model | None = None,
    run_memory: _Mapping[int, _Mapping[str, int]] | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _MemoryFit: ...
def sync_copies(traces: TraceSet) -> _SyncCopies: ...
def cuda_api(traces: TraceSet) -> _CudaApi: ...
def nvtx_projection(traces: TraceSet) -> _NvtxProjection: ...
def gpu_utilization(traces: TraceSet, *, bins: int = 200) -> _GpuUtilization: ...
def gpu_metrics(traces: TraceSet) -> _GpuMetrics: ...
def categories(traces: TraceSet) -> _Categories: ...
def mfu(
    traces: TraceSet,
    *,
    unprofiled_step_ns: int | None = None,
    stated_work: _StatedWork | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _Mfu: ...
def modules(traces: TraceSet) -> _Modules: ...
def operators(traces: TraceSet) -> _Operators: ...
def operators_over_ranks(traces: TraceSet) -> _OperatorsOverRanks: ...
def operator_shapes(traces: TraceSet) -> _OperatorShapes: ...
def operator_kernels(traces: TraceSet) -> _OperatorKernels: ...
def operator_launches(traces: TraceSet) -> _OperatorLaunches: ...
def launch_loops(traces: TraceSet) -> _LaunchLoops: ...
def matrix_products(traces: TraceSet) -> _MatrixProducts: ...
def efficiency(traces: TraceSet) -> _Efficiency: ...
def calls(traces: TraceSet) -> _Calls: ...
def call_phases(traces: TraceSet) -> _CallPhases: ...
def exposed_calls(
    traces: TraceSet, *, hosts: _Mapping[int, _Placed] | None = None, run_hosts: _Mapping[int, str] | None = None
) -> _ExposedCalls: ...
def gaps(traces: TraceSet, *, idle_short_ns: int = 5000, idle_launch_ns: int = 50000) -> _GapTable: ...
def expert_layers(
    traces: TraceSet,
    *,
    wiring: _Wiring | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _ExpertLayers: ...
def exchange_sends(
    traces: TraceSet,
    *,
    wiring: _Wiring | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _ExchangeSends: ...
def exchanges(
    traces: TraceSet, *, hosts: _Mapping[int, _Placed] | None = None, run_hosts: _Mapping[int, str] | None = None
) -> _Exchanges: ...
def pipeline_messages(
    traces: TraceSet,
    *,
    wiring: _Wiring | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _PipelineMessages: ...
def pipeline_schedule(
    traces: TraceSet,
    *,
    wiring: _Wiring | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _PipelineSchedule: ...
def gpu_ranges(traces: TraceSet) -> _GpuRanges: ...
def timeline(traces: TraceSet) -> _Timeline: ...
def host_events(traces: TraceSet, *, most_host_events: int = 16000) -> _HostEvents: ...
def counter_series(traces: TraceSet, *, counter_bins: int = 300) -> _CounterSeries: ...
def exposed_comm(
    traces: TraceSet, *, hosts: _Mapping[int, _Placed] | None = None, run_hosts: _Mapping[int, str] | None = None
) -> _ExposedComm: ...
def places(
    traces: TraceSet,
    *,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    wiring: _Wiring | None = None,
) -> _Places: ...
def episodes(
    traces: TraceSet,
    *,
    least_times: float = 1.2,
    most_replayed: int = 8000000,
    unprofiled_step_ns: int | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    wiring: _Wiring | None = None,
) -> _Episodes: ...
def what_ran(traces: TraceSet) -> _WhatRan: ...
def step_needs(
    traces: TraceSet,
    *,
    least_times: float = 1.2,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    wiring: _Wiring | None = None,
) -> _StepNeeds: ...
def stragglers(
    traces: TraceSet,
    *,
    most_replayed: int = 8000000,
    unprofiled_step_ns: int | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    least_times: float = 1.2,
    wiring: _Wiring | None = None,
) -> _Stragglers: ...
def collectives(
    traces: TraceSet,
    *,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    wiring: _Wiring | None = None,
) -> _Collectives: ...
def replay(
    traces: TraceSet,
    *,
    most_replayed: int = 8000000,
    unprofiled_step_ns: int | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    wiring: _Wiring | None = None,
) -> _Replay: ...
def critical_path(
    traces: TraceSet,
    *,
    most_replayed: int = 8000000,
    unprofiled_step_ns: int | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    wiring: _Wiring | None = None,
) -> _CriticalPath: ...
def bottleneck(
    traces: TraceSet,
    *,
    most_replayed: int = 8000000,
    unprofiled_step_ns: int | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    wiring: _Wiring | None = None,
) -> _Bottleneck: ...
def path_stretches(
    traces: TraceSet,
    *,
    most_replayed: int = 8000000,
    unprofiled_step_ns: int | None = None,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
    wiring: _Wiring | None = None,
) -> _PathStretches: ...
def clocks(
    traces: TraceSet, *, hosts: _Mapping[int, _Placed] | None = None, run_hosts: _Mapping[int, str] | None = None
) -> _Clocks: ...
def members(
    traces: TraceSet, *, hosts: _Mapping[int, _Placed] | None = None, run_hosts: _Mapping[int, str] | None = None
) -> _Members: ...
def call_waits(
    traces: TraceSet, *, hosts: _Mapping[int, _Placed] | None = None, run_hosts: _Mapping[int, str] | None = None
) -> _CallWaits: ...
def slower_calls(
    traces: TraceSet,
    *,
    least_times: float = 1.2,
    hosts: _Mapping[int, _Placed] | None = None,
    run_hosts: _Mapping[int, str] | None = None,
) -> _SlowerCalls: ...
def waits(
    traces: TraceSet, *, hosts: _Mapping[int, _Placed] | None = None, run_hosts: _Mapping[int, str] | None = None
) -> _Waits: ...
