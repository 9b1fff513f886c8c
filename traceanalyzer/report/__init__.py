"""Reports: what one holds, and the forms in which it can be written."""

from typing import Any

from traceanalyzer.callable_package import call_by_name
from traceanalyzer.report.contents import FORMAT_VERSION, Report
from traceanalyzer.report.writers import WRITERS, Writer

call_by_name(__name__, "writers.notebook")

__all__ = ["FORMAT_VERSION", "WRITERS", "Report", "Writer"]


def __getattr__(name: str) -> Any:
    if name == "report":  # from traceanalyzer.report import report: what a notebook shows
        from traceanalyzer.report.writers.notebook import report

        return report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
