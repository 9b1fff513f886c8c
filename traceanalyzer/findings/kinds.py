"""Every kind of finding: a function of the run and of the Results that it names, which yields what it detects.

A kind is one module; its function's name is the kind's id, its docstring the definition that the docs print.
"""

from collections.abc import Callable, Iterable

from traceanalyzer.findings import (
    allocator_retries,
    blocking_calls,
    contention,
    data_loading,
    exposed_communication,
    exposed_copies,
    launch_bound,
    low_efficiency,
    memory_growth,
    memory_headroom,
    missing_data,
    per_tensor_work,
    pipeline_bubble,
    pipeline_stages,
    precision,
    profiler_overhead,
    recomputation,
    redundant_communication,
    slow_link,
    small_collectives,
    sparse_as_dense,
    stalls,
    straggler,
    uneven_experts,
    uneven_work,
    unfused,
    usable_steps,
)
from traceanalyzer.findings.finding import Finding

KINDS: tuple[Callable[..., Iterable[Finding]], ...] = (
    missing_data.missing_data,
    usable_steps.usable_steps,
    profiler_overhead.profiler_overhead,
    data_loading.data_loading,
    launch_bound.launch_bound,
    blocking_calls.blocking_calls,
    per_tensor_work.per_tensor_work,
    stalls.stalls,
    straggler.straggler,
    contention.contention,
    exposed_communication.exposed_communication,
    pipeline_bubble.pipeline_bubble,
    pipeline_stages.pipeline_stages,
    redundant_communication.redundant_communication,
    slow_link.slow_link,
    small_collectives.small_collectives,
    uneven_experts.uneven_experts,
    recomputation.recomputation,
    precision.precision,
    unfused.unfused,
    sparse_as_dense.sparse_as_dense,
    low_efficiency.low_efficiency,
    exposed_copies.exposed_copies,
    allocator_retries.allocator_retries,
    memory_headroom.memory_headroom,
    memory_growth.memory_growth,
    uneven_work.uneven_work,
)
