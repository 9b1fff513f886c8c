"""A headless Chromium for the browser tests; without one they are skipped, with the reason."""

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests import once
from tests.report import small_pages as pages
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


@pytest.fixture(scope="session")
def comparison_page(tmp_path_factory):
    return pages.comparison(tmp_path_factory.mktemp("diff"))


@pytest.fixture(scope="session")
def doctor_page(tmp_path_factory):
    return pages.doctor(tmp_path_factory.mktemp("doctor"))


@pytest.fixture(scope="session")
def memory_page(tmp_path_factory):
    return pages.memory(tmp_path_factory.mktemp("memory"))


@pytest.fixture(scope="session")
def trend_page(tmp_path_factory):
    return pages.trend(tmp_path_factory.mktemp("trend"))


@dataclass
class _Tab:
    """A page that is kept, and what happened in it since a test took it."""

    page: Any
    wrong: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.page.set_default_timeout(120_000)  # a busy machine is no failure
        heard = self.page.on
        heard("console", lambda message: self.wrong.append(message.text) if message.type != "log" else None)
        heard("pageerror", lambda error: self.wrong.append(str(error)))
        heard("request", lambda request: self.requested.append(request.url))
        self.page.add_init_script(
            "window.violations = []; document.addEventListener('securitypolicyviolation', "
            "e => window.violations.push(e.violatedDirective + ' ' + e.blockedURI))"
        )


@pytest.fixture(scope="session")
def tabs(browser):
    """One context and one page in it for each set of options: to make them costs more than to load a report."""
    made = {}

    @contextmanager
    def of(**options):
        key = repr(sorted(options.items()))
        tab = made.pop(key, None) or _Tab(browser.new_context(**options).new_page())
        yield tab
        # Not after a failure: its page is not used again.
        tab.page.evaluate(
            "localStorage.clear(), sessionStorage.clear()"
        )  # no later test begins with what this one chose
        tab.page.emulate_media(media="null")
        tab.page.mouse.move(0, 0)
        tab.page.goto("about:blank")
        tab.wrong.clear()
        tab.requested.clear()
        made[key] = tab

    yield of
    for each in made.values():
        each.page.context.close()


@pytest.fixture
def opened(tabs):
    """A page that has painted its timeline; at the end nothing may have gone wrong in it."""

    @contextmanager
    def of(path, *, timeline=True, width=1366, height=768, **options):
        with tabs(**options) as tab:
            page = tab.page
            page.set_viewport_size({"width": width, "height": height})
            page.goto(path.as_uri())
            if timeline:
                page.wait_for_selector("html[data-timeline=ready]", state="attached")
            yield page
            assert tab.wrong == []
            assert page.evaluate("window.violations") == []
            assert [url for url in tab.requested if not url.startswith(("file:", "blob:", "data:"))] == []

    return of
