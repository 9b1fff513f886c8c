"""The timeline's lane of memory by category: stacked to what the trace says, its peak marked and told at a click."""

import pytest

import traceanalyzer as ta
from tests.samples import SAMPLES
from traceanalyzer.report import Report
from traceanalyzer.report.writers import html

pytestmark = pytest.mark.browser

LANE = "() => TA.view.data.ranks[0].counters.find(c => c.parts)"

PLACE = """() => { const v = TA.view, row = v.layout.rows.find(r => r.counter?.parts), c = row.counter;
row && v.scroller.scrollIntoView();
const box = document.getElementById('tl-canvas').getBoundingClientRect();
return [box.left + TA.xOf(v, c.start[c.peak]), box.top + TA.AXIS + row.y + row.height / 2 - v.scroll]; }"""


@pytest.fixture(scope="module")
def page_of_memory(tmp_path_factory):
    traces = ta.load(SAMPLES / "fsdp_memory" / "rank0.json.gz")
    results = ta.analyse(traces, "timeline", "ranks", "breakdown", "headline", "steps", "counter_series", "memory_levels",
                         "memory_categories", "memory", "clocks")  # fmt: skip
    report = Report("memory", results, [], version="test")
    return report, html.write(report, tmp_path_factory.mktemp("memory"), failures=[])[0]


def test_the_peak_is_marked_and_a_click_tells_what_is_held(page_of_memory, opened):
    report, path = page_of_memory
    own = report.results["memory_categories"].to_frame().set_index("category")["peak_bytes"]
    with opened(path) as page:
        page.wait_for_function("() => TA.view?.data.ranks[0].counters?.length")
        page.locator("[data-show=counters]").first.check()
        lane = page.evaluate(LANE)
        at_peak = {name: lane["levels"][place][lane["peak"]] for place, name in enumerate(lane["parts"])}
        assert at_peak == {name: size for name, size in own.items() if name in at_peak}
        assert sum(at_peak.values()) == lane["most"] == 717_576_192
        page.evaluate("() => TA.show(...TA.view.whole)")
        x, y = page.evaluate(PLACE)
        page.mouse.click(x, y)
        told = page.locator("#tl-details").inner_text()
        assert "Memory at the peak" in told
        assert "activations" in told
