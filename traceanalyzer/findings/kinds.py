"""Every kind of finding: a function of the run and of the Results that it names, which yields what it detects.

A kind is one module; its function has the same name, which is the kind's id. Docs print the module's docstring as the
kind's page of the cookbook.
"""

from collections.abc import Callable, Iterable
from importlib import import_module

from traceanalyzer.findings.finding import Finding

GROUPS = {
    "Input and CPU": ("data_loading", "launch_bound", "blocking_calls", "per_tensor_work", "stalls"),
    "Uneven ranks": ("straggler", "uneven_work", "pipeline_stages", "pipeline_bubble", "uneven_experts"),
    "Communication": (
        "exposed_communication",
        "redundant_communication",
        "slow_link",
        "small_collectives",
        "contention",
    ),
    "Compute": ("recomputation", "precision", "unfused", "sparse_as_dense", "low_efficiency"),
    "Memory and copies": ("exposed_copies", "allocator_retries", "memory_headroom", "memory_growth"),
    "The capture": ("missing_data", "usable_steps", "profiler_overhead"),
}
"""The names of the kinds, as the cookbook groups them."""

KINDS: tuple[Callable[..., Iterable[Finding]], ...] = tuple(
    getattr(import_module(f"traceanalyzer.findings.{name}"), name) for names in GROUPS.values() for name in names
)
