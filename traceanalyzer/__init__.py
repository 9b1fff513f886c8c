"""Where each rank's time went in a multi-GPU job, from PyTorch-profiler and Nsight Systems traces.

    import traceanalyzer as ta

    traces = ta.load("profile/ddp")
    ta.breakdown(traces).to_frame()

Every analysis in `traceanalyzer.analyses.ANALYSES` is a function here: it takes a `TraceSet` and gives its
Result. Nothing heavy is imported before it is used.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from traceanalyzer.errors import InputError, NotATraceError, TraceAnalyzerError, UsageError

if TYPE_CHECKING:
    from traceanalyzer.analyses import Result
    from traceanalyzer.loading import load
    from traceanalyzer.model import RankTrace, TraceSet

__version__ = "0.1.0"

__all__ = [
    "InputError",
    "NotATraceError",
    "RankTrace",
    "Result",
    "TraceAnalyzerError",
    "TraceSet",
    "UsageError",
    "__version__",
    "analyse",
    "load",
]


def analyse(traces: "TraceSet", *names: str, **thresholds: Any) -> "dict[str, Result]":
    """The named analyses of traces in memory, or all of them; `thresholds` are passed by parameter name."""
    from traceanalyzer.analyses import ANALYSES, run

    unknown = [name for name in names if name not in ANALYSES]
    if unknown:
        raise UsageError(f"no analysis is called {unknown[0]!r}; there are {', '.join(ANALYSES)}")
    return run(traces.ranks, names or tuple(ANALYSES), **thresholds)


def _one(name: str, traces: "TraceSet", **thresholds: Any) -> "Result":
    return analyse(traces, name, **thresholds)[name]


def __getattr__(name: str) -> Any:
    if name == "load":
        from traceanalyzer.loading import load

        return load
    if name in ("RankTrace", "TraceSet"):
        from traceanalyzer import model

        return getattr(model, name)
    from traceanalyzer.analyses import ANALYSES, Result

    if name == "Result":
        return Result
    if name in ANALYSES:
        return partial(_one, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from traceanalyzer.analyses import ANALYSES

    return sorted([*__all__, *ANALYSES])
