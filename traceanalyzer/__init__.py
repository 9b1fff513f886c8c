"""Where each rank's time went in a multi-GPU job, from PyTorch-profiler and Nsight Systems traces.

    import traceanalyzer as ta

    traces = ta.load("profile/ddp")
    ta.breakdown(traces).to_frame()

Every analysis in `traceanalyzer.analyses.ANALYSES` is a function here: it takes a `TraceSet` and gives its
Result. Nothing heavy is imported before it is used.
"""

from typing import TYPE_CHECKING, Any

from traceanalyzer.errors import InputError, NotATraceError, TraceAnalyzerError, UsageError

if TYPE_CHECKING:
    from traceanalyzer.analyses import Result
    from traceanalyzer.findings import Finding
    from traceanalyzer.functions import analyse, what_if
    from traceanalyzer.loading import load
    from traceanalyzer.model import RankTrace, TraceSet

__version__ = "0.1.0"

__all__ = [
    "Finding",
    "InputError",
    "NotATraceError",
    "RankTrace",
    "Result",
    "TraceAnalyzerError",
    "TraceSet",
    "UsageError",
    "__version__",
    "analyse",
    "find",
    "load",
    "what_if",
]


def find(traces: "TraceSet", **thresholds: Any) -> "tuple[Finding, ...]":
    """The report's findings of traces in memory, one for each cause, most to gain first; `thresholds` as in `analyse`.

    Raises:
        UsageError: a threshold is unknown, or `traces` are not loaded.
    """
    from traceanalyzer.functions import analyse
    from traceanalyzer.report.build import findings_of

    return findings_of(analyse(traces, **thresholds))


def __getattr__(name: str) -> Any:
    if name == "load":
        from traceanalyzer.loading import load

        return load
    if name in ("RankTrace", "TraceSet"):
        from traceanalyzer import model

        return getattr(model, name)
    from traceanalyzer.analyses import ANALYSES, Result
    from traceanalyzer.findings import Finding
    from traceanalyzer.functions import analyse, function_of, what_if

    named = {"Finding": Finding, "Result": Result, "analyse": analyse, "what_if": what_if}
    if name in named:
        return named[name]
    if name in ANALYSES:
        return function_of(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from traceanalyzer.analyses import ANALYSES

    return sorted([*__all__, *ANALYSES])
