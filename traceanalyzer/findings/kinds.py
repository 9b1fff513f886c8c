"""Every kind of finding: a function of the run and of the Results that it names, which yields what it detects.

A kind is one module; its function's name is the kind's id, its docstring the definition that the docs print.
"""

from collections.abc import Callable, Iterable

from traceanalyzer.findings import data_loading, missing_data, profiler_overhead, straggler, usable_steps
from traceanalyzer.findings.finding import Finding

KINDS: tuple[Callable[..., Iterable[Finding]], ...] = (
    missing_data.missing_data,
    usable_steps.usable_steps,
    profiler_overhead.profiler_overhead,
    data_loading.data_loading,
    straggler.straggler,
)
