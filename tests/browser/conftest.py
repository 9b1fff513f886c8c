"""A headless Chromium for the browser tests; without one they are skipped, with the reason."""

import shutil
from contextlib import contextmanager

import pytest

from tests.samples import analysed
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
            report = Report(name, analysed(name), version="test")
            made[name] = report, html.write(report, tmp_path_factory.mktemp(name))[0]
        return made[name]

    return of


@pytest.fixture(scope="session")
def contexts(browser):
    """One context for each set of options: to make one costs more than to open a page in it."""
    made = {}

    def of(**options):
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = browser.new_context(**options)
        return made[key]

    yield of
    for each in made.values():
        each.close()


@pytest.fixture
def opened(contexts):
    """A page that has painted its timeline; at the end nothing may have gone wrong in it."""

    @contextmanager
    def of(path, *, timeline=True, **options):
        wrong, requested = [], []
        with contexts(**options).new_page() as page:
            page.set_viewport_size({"width": 1366, "height": 768})
            page.on("console", lambda message: wrong.append(message.text) if message.type != "log" else None)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("request", lambda request: requested.append(request.url))
            page.add_init_script(
                "window.violations = []; document.addEventListener('securitypolicyviolation', "
                "e => window.violations.push(e.violatedDirective + ' ' + e.blockedURI))"
            )
            page.goto(path.as_uri())
            if page.evaluate("localStorage.length"):  # what an earlier test chose
                page.evaluate("localStorage.clear()")
                page.reload()
            if timeline:
                page.wait_for_selector("html[data-timeline=ready]", state="attached")
            yield page
            assert wrong == []
            assert page.evaluate("window.violations") == []
            assert [url for url in requested if not url.startswith(("file:", "blob:", "data:"))] == []

    return of
