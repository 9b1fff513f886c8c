from html import unescape

import plotly.graph_objects as go
import pytest

from tests.builders import rank_trace
from tests.samples import sample
from traceanalyzer.model import TraceSet
from traceanalyzer.report.writers.notebook import report


@pytest.fixture(scope="module")
def made():
    return report(sample("moe"))


def test_a_notebook_shows_the_whole_page_in_a_frame(made):
    shown = made._repr_html_()
    inside = unescape(shown.split('srcdoc="')[1].split('" sandbox')[0])
    assert inside == made.page
    assert "allow-same-origin" not in shown


def test_a_hostile_label_does_not_leave_the_frame():
    shown = report(TraceSet('"><script>alert(1)</script>', (rank_trace([("compute", 0, 1)]),)))._repr_html_()
    assert "<script" not in shown


def test_figures_are_plotly_objects_of_the_results(made):
    drawn = made.figures()["calls"]
    assert isinstance(drawn, go.Figure)
    calls = made.report.results["calls"].to_frame()
    known = calls[calls["size_bytes"] > 0]
    assert sorted(y for trace in drawn.data for y in trace.y) == sorted(known["end_ns"] - known["start_ns"])
