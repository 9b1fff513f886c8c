"""The comparison's page in Chromium: filters, sorting, nothing blocked by its own policy."""

import pytest

from tests.samples import SAMPLES
from traceanalyzer.diff import compare
from traceanalyzer.diff.sources import SourceOptions, read_sides
from traceanalyzer.report.comparison import DiffReport, html

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    sides = read_sides([str(SAMPLES / name) for name in ("ddp", "fsdp_full")], SourceOptions())
    return html.write(DiffReport(compare(sides), version="test"), tmp_path_factory.mktemp("diff"))[0]


def shown(page, table):
    rows = page.locator(f"[data-name='{table}'] tbody tr")
    return [row.get_attribute("data-status") for row in rows.all() if row.is_visible()]


def test_statuses_filter_rows(opened, page_path):
    with opened(page_path, timeline=False) as page:
        section = page.locator(".joined", has=page.locator("[data-name='kernels__fsdp_full']"))
        if not section.locator("table").is_visible():
            section.locator("summary").click()
        assert "SAME" not in shown(page, "kernels__fsdp_full")
        section.get_by_role("button", name="new").click()
        assert set(shown(page, "kernels__fsdp_full")) == {"NEW"}
        section.get_by_role("button", name="all rows").click()
        assert {"NEW", "REMOVED", "CHANGED", "SAME"} <= set(shown(page, "kernels__fsdp_full"))
        section.get_by_label("Search in kernels__fsdp_full").fill("nccl")
        assert set(shown(page, "kernels__fsdp_full")) <= {"NEW", "REMOVED", "CHANGED"}


@pytest.mark.parametrize("width", [360, 1366, 1920])
def test_nothing_is_wider_than_the_window(opened, page_path, width):
    with opened(page_path, timeline=False) as page:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
