"""The comparison's page in Chromium: filters, sorting, nothing blocked by its own policy."""

import pytest

from tests.browser.frames import settled

pytestmark = pytest.mark.browser


def shown(page, table):
    return page.eval_on_selector_all(
        f"[data-name='{table}'] tbody tr",
        "rows => rows.filter(row => row.getClientRects().length).map(row => row.dataset.status)",
    )


def test_statuses_filter_rows(opened, comparison_page):
    with opened(comparison_page, timeline=False) as page:
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


def test_nothing_is_wider_than_the_window(opened, comparison_page):
    with opened(comparison_page, timeline=False) as page:
        for width in (360, 1366, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            settled(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, width
