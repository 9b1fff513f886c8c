"""Where each rank's time went in a multi-GPU job, from PyTorch-profiler and Nsight Systems traces.

    import traceanalyzer as ta

    traces = ta.load("profile/ddp")
    ta.breakdown(traces).to_frame()

Every analysis in `traceanalyzer.analyses.ANALYSES` is a function here: it takes a `TraceSet` and gives its
Result. Nothing heavy is imported before it is used.
"""

from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

from traceanalyzer.errors import InputError, NotATraceError, TraceAnalyzerError, UsageError

if TYPE_CHECKING:
    from traceanalyzer.findings import Findings
    from traceanalyzer.model import TraceSet

__version__ = "0.1.0"

_PLACES = {
    "Finding": "findings",
    "Findings": "findings",
    "RankTrace": "model",
    "Result": "analyses",
    "TraceSet": "model",
    "analyse": "functions",
    "compare": "report.comparison",
    "export": "export.perfetto",
    "load": "loading",
    "report": "report.writers.notebook",
    "sample": "samples",
    "to_hta": "export.hta",
    "what_if": "functions",
}
"""Modules of the public names, imported when they are asked for."""

__all__ = ["InputError", "NotATraceError", "TraceAnalyzerError", "UsageError", "__version__", "find", *_PLACES]  # noqa: PLE0604 - all of them texts


def find(traces: "TraceSet", **thresholds: Any) -> "Findings":
    """The report's findings of traces in memory, one for each cause, most to gain first.

    `thresholds` are those of analyses, as in `analyse`, by parameter name.

    Raises:
        UsageError: a threshold is unknown, or `traces` are not loaded.
    """
    from traceanalyzer.findings import Findings, results_of_kinds
    from traceanalyzer.findings import find as found
    from traceanalyzer.functions import analyse

    return Findings(found(analyse(traces, *results_of_kinds(), **thresholds)))


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    # `from traceanalyzer import kinds` asks here first: a room is no analysis, and is imported without them all.
    if PathFinder.find_spec(f"{__name__}.{name}", __path__):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r} until it is imported")
    from traceanalyzer.analyses import ANALYSES
    from traceanalyzer.functions import function_of

    if name in ANALYSES:
        return function_of(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from traceanalyzer.analyses import ANALYSES

    return sorted([*__all__, *ANALYSES])
