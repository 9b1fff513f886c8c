"""The documentation's pictures of pages, made anew where pages have changed.

    PYTHONPATH=. python experiments/pictures.py CAPTURES docs

CAPTURES holds the folders `ddp`, `ddp_straggler`, `fsdp_full`, `naive` and `zero1`, recordings of one model; the job of
`timeline_finding.png` is simulated. Needs Chromium and Playwright's Python package.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import traceanalyzer as ta
from tests.simulator import kineto
from tests.simulator.capture import Capture, capture
from tests.simulator.engine import run
from tests.simulator.jobs.context_parallel import causal_ring

SECOND = 1_000
"""Milliseconds; pages are drawn by then."""

WAIT = (840, 104)
"""Where in the timeline of `ddp_straggler` rank 0 waits for rank 1."""


def main(captures: Path, out: Path) -> None:
    """Write the pages somewhere, and their pictures into `out`."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder, browser = Path(name), playwright.chromium.launch(executable_path="/usr/bin/chromium")
        traces = {one: ta.load(captures / one) for one in ("ddp", "ddp_straggler", "fsdp_full", "naive", "zero1")}
        kineto.write(capture(run(causal_ring()), Capture()), folder / "ring")
        ta.report(traces["ddp_straggler"]).save(folder / "one")
        ta.report(ta.load(folder / "ring")).save(folder / "causal")
        ta.compare(traces["ddp"], traces["fsdp_full"]).save(folder / "two")
        ta.compare(*(traces[one] for one in ("naive", "ddp", "fsdp_full", "zero1"))).save(folder / "four")

        def page(report: str, width: int, height: int) -> Any:
            opened = browser.new_page(viewport={"width": width, "height": height})
            opened.goto((folder / report / "summary.html").as_uri())
            opened.wait_for_timeout(SECOND)
            return opened

        page("one", 1366, 860).screenshot(path=out / "report.png")
        page("two", 1366, 1560).screenshot(path=out / "comparison.png")
        page("four", 1366, 900).screenshot(path=out / "comparison_runs.png")
        timeline(page("one", 1240, 1300)).screenshot(path=out / "timeline.png")
        finding = page("causal", 1366, 768)
        finding.get_by_text("Show in the timeline").first.click()
        finding.wait_for_timeout(SECOND)
        finding.screenshot(path=out / "timeline_finding.png")


def timeline(page: Any) -> Any:
    """The section, after a click on a wait."""
    page.evaluate("document.getElementById('timeline').scrollIntoView()")
    place = page.locator("#tl-canvas").bounding_box()
    page.mouse.click(place["x"] + WAIT[0], place["y"] + WAIT[1])
    page.wait_for_timeout(SECOND)
    return page.locator("#timeline")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
