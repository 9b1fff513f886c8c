"""The report for who works in Python: the same page in a frame, Results as tables, figures as plotly objects."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceanalyzer.analyses import Results
from traceanalyzer.files.whole import made
from traceanalyzer.findings import Findings, find
from traceanalyzer.functions import analyse
from traceanalyzer.model import TraceSet
from traceanalyzer.model.tables import pandas_set_up
from traceanalyzer.report import words
from traceanalyzer.report.charts import CHARTS, figure
from traceanalyzer.report.contents import LAYOUT, Report
from traceanalyzer.report.words import split
from traceanalyzer.report.writers import WRITERS, html, write
from traceanalyzer.validation import formats_of

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, repr=False)
class NotebookReport:
    """A report that a notebook shows as a page; its Results are tables and its figures plotly's."""

    report: Report

    @property
    def results(self) -> Results:
        """Every Result, by its analysis."""
        return self.report.results

    @property
    def findings(self) -> Findings:
        """What to change, most to gain first."""
        return Findings(self.report.findings)

    @cached_property
    def page(self) -> str:
        """The page, as `summary.html` holds it."""
        with pandas_set_up():
            return html.page(self.report)

    @pandas_set_up()
    def figures(self) -> "dict[str, go.Figure]":
        """Every figure of which the traces have data, by Result; where each rank's time goes comes first."""
        made = {name: figure(name, self.report.results[name]) for name in CHARTS if name in self.report.results}
        return {name: drawn for name, drawn in made.items() if drawn is not None}

    @pandas_set_up()
    def save(self, folder: str | PathLike[str], formats: Sequence[str] = ("html", "csv", "json")) -> list[Path]:
        """Write it as `analyze-traces` does; returns the files.

        Args:
            folder: it is made.
            formats: of `html`, `csv`, `json`, `parquet`, `md`, `xlsx`.

        Raises:
            UsageError: a format is unknown, or the folder cannot be written.
        """
        names = formats_of(formats, WRITERS)
        with made(folder, "save takes a folder") as target:
            return write(self.report, target, names)

    def __repr__(self) -> str:
        lines = words.sentences(self.report, split(self.report.results))
        return "\n".join([f"Report of {self.report.label}", *(f"- {one}" for one in lines)])

    def _repr_html_(self) -> str:
        # In a frame of its own neither the notebook's style nor its scripts meet the page's.
        title = escape(self.report.label)
        return (
            f'<iframe srcdoc="{escape(self.page)}" sandbox="allow-scripts allow-popups allow-downloads" '
            f'title="{title}" style="width:100%;height:{LAYOUT.notebook_height}px;border:0"></iframe>'
        )


@pandas_set_up()
def report(traces: TraceSet, **thresholds: Any) -> NotebookReport:
    """The whole report of traces in memory; `thresholds` are those of analyses, by parameter name.

    Raises:
        UsageError: a threshold is unknown, or `traces` are not loaded.
    """
    from traceanalyzer import __version__  # noqa: PLC0415 - the package imports this module lazily

    results = analyse(traces, **thresholds)
    findings = find(results)
    return NotebookReport(Report(traces.label, results, findings, traces.skipped, traces.notes, version=__version__))
