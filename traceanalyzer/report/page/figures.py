"""Figures of Results as plotly draws them: plain dictionaries for the page, `Figure` objects for a notebook."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from traceanalyzer.analyses import Result
from traceanalyzer.report.page.breakdown_bars import breakdown_bars
from traceanalyzer.report.page.call_scatter import call_scatter
from traceanalyzer.report.page.icicle import icicle
from traceanalyzer.report.page.queue_lines import queue_lines
from traceanalyzer.report.page.roofline import roofline

if TYPE_CHECKING:
    import plotly.graph_objects as go

FIGURES: Mapping[str, Callable[[Result], dict[str, Any] | None]] = MappingProxyType(
    {
        "headline": breakdown_bars,
        "breakdown": breakdown_bars,
        "calls": call_scatter,
        "queue_depth": queue_lines,
        "efficiency_over_ranks": roofline,
        "operator_kernels": icicle,
    }
)
"""By the Result that each is of."""


def figure(name: str, result: Result) -> "go.Figure | None":
    """The figure of the Result called `name` as a plotly object; `None` where there is nothing to draw.

    Raises:
        KeyError: no figure is made of that Result.
    """
    import plotly.graph_objects as go  # noqa: PLC0415 - slow, and the page does without

    made = FIGURES[name](result)
    return None if made is None else go.Figure(made)
