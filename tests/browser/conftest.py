"""A headless Chromium for the browser tests; without one they are skipped, with the reason."""

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pytest

from tests import once
from tests.doctor.builders import dump, entry, write_dumps
from tests.samples import SAMPLES
from tests.snapshots.builders import STATE, History
from tests.snapshots.builders import write as snapshot
from traceanalyzer.diff import compare
from traceanalyzer.diff.sources import SourceOptions, read_sides
from traceanalyzer.diff.trend import COLUMNS
from traceanalyzer.doctor import examine
from traceanalyzer.report import Report
from traceanalyzer.report.comparison import DiffReport
from traceanalyzer.report.comparison import html as comparison
from traceanalyzer.report.examination import page as doctor
from traceanalyzer.report.snapshots import page as memory
from traceanalyzer.report.trend import page as trend
from traceanalyzer.report.writers import html
from traceanalyzer.snapshots import examine_snapshot, read_snapshot

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
    sides = read_sides([str(SAMPLES / name) for name in ("ddp", "fsdp_full")], SourceOptions())
    report = DiffReport(compare(sides), version="test")
    return comparison.write(report, tmp_path_factory.mktemp("diff"))[0]


@pytest.fixture(scope="session")
def doctor_page(tmp_path_factory):
    """Four ranks of which one never came, and the topology of their host."""
    folder = tmp_path_factory.mktemp("doctor")
    dumps = {rank: dump([entry(1), *([entry(2, state="started")] if rank != 2 else [])], range(4)) for rank in range(4)}
    topology = SAMPLES / "doctor" / "topo_2xH200_nvlink.txt"
    found = examine(flight_recorder=write_dumps(folder / "dumps", dumps), topo=topology)
    return doctor.write(found, folder)[0]


@pytest.fixture(scope="session")
def memory_page(tmp_path_factory):
    folder, history = tmp_path_factory.mktemp("memory"), History()
    history.alloc(3 << 20, STATE)
    for _ in range(6):
        history.free(history.alloc(16 << 20))
        history.alloc(8 << 20)
        history.step()
    return memory.write(
        [examine_snapshot(read_snapshot(snapshot(folder / "rank0_snapshot.pickle", history.snapshot())))], folder, "run"
    )[0]


@pytest.fixture(scope="session")
def trend_page(tmp_path_factory):
    row = {"metric": "step_ns", "saved": "2026-01-02T03:04", "repeats": 3, "std": 1.2e6, "change_pct_points": None}
    values = {"main": (66.8e6, None), "later": (70.1e6, 4.9), "last": (64e6, -8.7)}
    rows = [{**row, "baseline": name, "value": value, "change_pct": pct} for name, (value, pct) in values.items()]
    table = pd.DataFrame(rows, columns=list(COLUMNS)).convert_dtypes()
    return trend.write(table, ["main and last differ in batch size"], tmp_path_factory.mktemp("trend"))[0]


@dataclass
class _Tab:
    """A page that is kept, and what happened in it since a test took it."""

    page: Any
    wrong: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    def __post_init__(self):
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
