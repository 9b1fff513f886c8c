"""The report inside a notebook: the same page in a frame, Results as tables, figures as plotly objects."""

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from traceanalyzer.analyses import run
from traceanalyzer.model import TraceSet
from traceanalyzer.report.build import findings_of
from traceanalyzer.report.contents import Report
from traceanalyzer.report.page.figures import FIGURES, figure
from traceanalyzer.report.writers import html

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT_PX = 800


@dataclass(frozen=True)
class NotebookReport:
    """A report that a notebook shows as a page; its Results are tables and its figures plotly's."""

    report: Report

    @cached_property
    def page(self) -> str:
        """The page, as `summary.html` holds it."""
        return html.page(self.report)

    def figures(self) -> "dict[str, go.Figure]":
        """Every figure of which the traces have data, by Result."""
        made = {name: figure(name, self.report.results[name]) for name in FIGURES if name in self.report.results}
        return {name: drawn for name, drawn in made.items() if drawn is not None}

    def _repr_html_(self) -> str:
        # In a frame of its own neither the notebook's style nor its scripts meet the page's.
        title = escape(self.report.label)
        return (
            f'<iframe srcdoc="{escape(self.page)}" sandbox="allow-scripts allow-popups allow-downloads" '
            f'title="{title}" style="width:100%;height:{HEIGHT_PX}px;border:0"></iframe>'
        )


def report(traces: TraceSet, **thresholds: Any) -> NotebookReport:
    """The report of traces in memory, to show in a notebook."""
    from traceanalyzer import __version__  # noqa: PLC0415 - the package imports this module lazily

    results = run(traces.ranks, **thresholds)
    return NotebookReport(
        Report(traces.label, results, findings_of(results), traces.skipped, traces.notes, version=__version__)
    )
