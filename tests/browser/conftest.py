"""A headless Chromium for the browser tests; without one they are skipped, with the reason."""

import shutil
from contextlib import contextmanager

import pytest

from tests import once
from traceanalyzer.report import Report
from traceanalyzer.report.writers import html

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

ARGUMENTS = [
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    api = pytest.importorskip("playwright.sync_api", reason="Playwright's Python package is not installed")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, chromium_sandbox=False, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Reports of samples, each written once: `written("ddp")` is (report, page)."""
    made = {}

    def of(name):
        if name not in made:
            report = Report(name, once.results(name), version="test")
            made[name] = report, html.write(report, tmp_path_factory.mktemp(name))[0]
        return made[name]

    return of


@pytest.fixture
def opened(browser):
    """A page that has painted its timeline; at the end nothing may have gone wrong in it."""

    @contextmanager
    def of(path, *, timeline=True, **context):
        wrong, requested = [], []
        with browser.new_context(viewport={"width": 1366, "height": 768}, **context) as tab:
            page = tab.new_page()
            page.on("console", lambda message: wrong.append(message.text) if message.type != "log" else None)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("request", lambda request: requested.append(request.url))
            page.add_init_script(
                "window.violations = []; document.addEventListener('securitypolicyviolation', "
                "e => window.violations.push(e.violatedDirective + ' ' + e.blockedURI))"
            )
            page.goto(path.as_uri())
            if timeline:
                page.wait_for_selector("html[data-timeline=ready]", state="attached")
            yield page
            assert wrong == []
            assert page.evaluate("window.violations") == []
            assert [url for url in requested if not url.startswith(("file:", "blob:", "data:"))] == []

    return of
