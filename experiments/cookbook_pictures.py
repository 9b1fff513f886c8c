"""A picture of each kind of finding for the cookbook: its card above the timeline of a capture that has it.

    PYTHONPATH=. python experiments/cookbook_pictures.py docs/cookbook CAPTURE…

Of several captures one is drawn whose page leads with the kind, else the first whose page has it. Needs Chromium and
Playwright's Python package.
"""

import re
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import traceanalyzer as ta

SECOND = 1_000
"""Milliseconds; pages are drawn by then."""

VIEW = {"width": 1000, "height": 1400}

HEIGHT = 640
"""Pixels of a picture at most."""


def main(out: Path, captures: list[Path]) -> None:
    """Write `KIND.png` for every kind that the page of one of the captures shows."""
    places: list[tuple[int, int, str, str]] = []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        for at, capture in enumerate(captures):
            report = ta.report(ta.load(capture))
            report.save(Path(name) / str(at))
            places += [(min(rank, 1), at, one.kind, one.headline) for rank, one in enumerate(report.findings)]
        out.mkdir(exist_ok=True)
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium")
        drawn: set[str] = set()
        for _, at, kind, headline in sorted(places):
            if kind not in drawn:
                page = browser.new_page(viewport=VIEW)
                page.goto((Path(name) / str(at) / "summary.html").as_uri())
                page.wait_for_timeout(SECOND)
                drawn |= {kind} if draw(page, headline, out / f"{kind}.png") else set()
                page.close()


def draw(page: Page, headline: str, out: Path) -> bool:
    """The finding's card, above the timeline where it has a place in it; whether the page has the card."""
    words = re.compile(r"\s+".join(map(re.escape, headline.split())))
    card = page.locator("article.finding", has_text=words).first
    shows = card.locator("button.show-interval")
    if not card.count():
        return False
    card.evaluate("one => { for (let up = one; up; up = up.parentElement) if ('open' in up) up.open = true }")
    if not shows.count():
        card.screenshot(path=out)
        return True
    shows.first.click()
    page.wait_for_timeout(SECOND)
    section = page.locator("#timeline")
    section.evaluate("(section, card) => section.prepend(card.cloneNode(true))", card.element_handle())
    section.evaluate(f"section => Object.assign(section.style, {{ maxHeight: '{HEIGHT}px', overflow: 'hidden' }})")
    section.screenshot(path=out)
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(one) for one in sys.argv[2:]])
