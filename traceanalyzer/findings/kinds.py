"""Every kind of finding: a function of the run and of the Results that it names, which yields what it detects.

A kind is one module; its function's name is the kind's id, its docstring the definition that the docs print.
"""

from collections.abc import Callable, Iterable

from traceanalyzer.findings import (
    contention,
    data_loading,
    exposed_communication,
    missing_data,
    pipeline_bubble,
    pipeline_stages,
    profiler_overhead,
    redundant_communication,
    slow_link,
    small_collectives,
    straggler,
    uneven_experts,
    usable_steps,
)
from traceanalyzer.findings.finding import Finding

KINDS: tuple[Callable[..., Iterable[Finding]], ...] = (
    missing_data.missing_data,
    usable_steps.usable_steps,
    profiler_overhead.profiler_overhead,
    data_loading.data_loading,
    straggler.straggler,
    contention.contention,
    exposed_communication.exposed_communication,
    pipeline_bubble.pipeline_bubble,
    pipeline_stages.pipeline_stages,
    redundant_communication.redundant_communication,
    slow_link.slow_link,
    small_collectives.small_collectives,
    uneven_experts.uneven_experts,
)
