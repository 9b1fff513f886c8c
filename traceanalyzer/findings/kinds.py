"""Every kind of finding: a function of the run and of the Results that it names, which yields what it detects.

A kind is one module; its function has the same name, which is the kind's id. Docs print its docstring.
"""

from collections.abc import Callable, Iterable
from importlib import import_module

from traceanalyzer.findings.finding import Finding

_MODULES = (
    "missing_data",
    "usable_steps",
    "profiler_overhead",
    "data_loading",
    "launch_bound",
    "blocking_calls",
    "per_tensor_work",
    "stalls",
    "straggler",
    "contention",
    "exposed_communication",
    "pipeline_bubble",
    "pipeline_stages",
    "redundant_communication",
    "slow_link",
    "small_collectives",
    "uneven_experts",
    "recomputation",
    "precision",
    "unfused",
    "sparse_as_dense",
    "low_efficiency",
    "exposed_copies",
    "allocator_retries",
    "memory_headroom",
    "memory_growth",
    "uneven_work",
)

KINDS: tuple[Callable[..., Iterable[Finding]], ...] = tuple(
    getattr(import_module(f"traceanalyzer.findings.{name}"), name) for name in _MODULES
)
