from html import unescape

import plotly.graph_objects as go
import pytest

from tests.builders import rank_trace
from tests.samples import sample
from traceanalyzer.analyses import run
from traceanalyzer.model import TraceSet
from traceanalyzer.report.page.charts import FIGURES, figure
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


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_to_draw_is_no_figure(name):
    results = run([rank_trace([])])
    if name in results:
        assert figure(name, results[name]) is None


def test_in_a_notebook_the_page_may_save_files(made):
    assert 'sandbox="allow-scripts allow-popups allow-downloads"' in made._repr_html_()


def test_where_the_time_goes_is_the_first_figure(made):
    name, drawn = next(iter(made.figures().items()))
    assert name == "headline"
    rows = made.results["headline"].to_frame()
    assert sum(x for bar in drawn.data for x in bar.x) == pytest.approx(rows["window_ns"].sum() / 1e6, rel=1e-6)
