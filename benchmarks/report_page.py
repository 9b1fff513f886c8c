"""Size of the report's page, and how soon it paints, for many ranks.

    python benchmarks/report_page.py 2 8 64
    PYTHONPATH=. python benchmarks/report_page.py --simulated 2 8 64 512

Repeats the ranks of a sample with small shifts in time (or simulates a data-parallel job in which one rank computes
longer), writes the report, and opens it in headless Chromium (with Playwright's Python package; without it only sizes
are measured). Prints a table in Markdown.
"""

import sys
import tempfile
import time
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import pandas as pd

import traceanalyzer as ta
from traceanalyzer.analyses import ANALYSES, combine, reduce_rank
from traceanalyzer.findings import find
from traceanalyzer.model import RankTrace
from traceanalyzer.report import Report
from traceanalyzer.report.writers import html

SAMPLE = Path(__file__).parent.parent / "tests" / "captures" / "ddp"
FEW = 64
"""More simulated ranks are blocks of 16 that are alike."""

BUDGETS = {8: (2.0, 2.5), 64: (8.0, 5.0)}
"""Ranks → megabytes, seconds to the painted timeline."""
BROWSER = {
    "executable_path": "/usr/bin/chromium",
    "chromium_sandbox": False,
    "args": ["--disable-gpu", "--disable-quic"],
}


def main() -> None:
    make = simulated if "--simulated" in sys.argv else many
    ranks = [int(text) for text in sys.argv[1:] if text != "--simulated"] or [2, 8, 64]
    print("| ranks | operations | page MB | written in s | first paint s | timeline ready s | a zoom ms |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for count in ranks:
        report = make(count)
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            [page] = html.write(report, Path(folder))
            seconds = time.perf_counter() - begin
            size = page.stat().st_size / 1e6
            # The quickest of three: what else the machine does is not the page's doing.
            paint, ready, zoom = min((opened(page) for _ in range(3)), key=itemgetter(1))
        operations = len(report.results["timeline"])
        figures = f"{size:.2f} | {seconds:.1f} | {paint:.2f} | {ready:.2f} | {zoom:.0f}"
        print(f"| {count} | {operations:,} | {figures} |", flush=True)
        most_mb, most_s = BUDGETS.get(count, (float("inf"), float("inf")))
        assert size < most_mb, f"{count} ranks: {size:.2f} MB, the budget is {most_mb}"
        assert not ready > most_s, f"{count} ranks: {ready:.2f} s, the budget is {most_s}"


def many(count: int) -> Report:
    """A report of the sample's ranks, repeated and shifted by a few µs each."""
    traces = ta.load(SAMPLE).ranks
    parts = {}
    for rank in range(count):
        trace = shifted(traces[rank % len(traces)], rank, rank * 3_700)
        parts[rank] = reduce_rank(trace)
    return Report(label=f"{count} ranks", results=combine(parts), version=ta.__version__)


def simulated(count: int) -> Report:
    """A report of a simulated job whose rank after the first third computes 0.4 ms a bucket longer.

    Of hundreds only the first are simulated, and their Results repeated: of so many a page is asked for, no analysis.
    """
    from tests.simulator import scenarios  # noqa: PLC0415 - needs the repository's folder on the path
    from tests.simulator.analysed import analysed, repeated  # noqa: PLC0415 - likewise

    own = count if count <= FEW else 16
    _, results = analysed(scenarios.ddp(own, slow_compute_ns={own // 3: 400_000}), *ANALYSES)
    findings = find(results)
    shown = repeated(results, count // own) if own < count else results
    return Report(label=f"{count} ranks", results=shown, findings=findings, version=ta.__version__)


def shifted(trace: RankTrace, rank: int, by_ns: int) -> RankTrace:
    """The trace as another rank's, all its times later."""
    tables = {
        name: later(trace.table(name), by_ns) for name in ("gpu_ops", "api_calls", "host_ops", "ranges", "comm_args")
    }
    window = replace(
        trace.window, stretches=tuple((start + by_ns, end + by_ns) for start, end in trace.window.stretches)
    )
    return replace(
        trace,
        meta=replace(trace.meta, rank=rank, world_size=None),
        steps=later(trace.steps, by_ns),
        window=window,
        **tables,
    )


def later(table: pd.DataFrame, by_ns: int) -> pd.DataFrame:
    times = [name for name in ("start_ns", "end_ns", "host_start_ns", "host_end_ns") if name in table]
    return table.assign(**{name: table[name] + by_ns for name in times})


def opened(page: Path) -> tuple[float, float, float]:
    """Seconds to the first paint and to the painted timeline, milliseconds of a zoom; NaN without a browser."""
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - optional
    except ImportError:
        return (float("nan"),) * 3
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**BROWSER)
        tab = browser.new_page(viewport={"width": 1366, "height": 768})
        tab.goto(page.as_uri(), wait_until="commit")
        tab.wait_for_selector("html[data-timeline=ready]", state="attached")
        ready = tab.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
        )
        paint = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN")
        zoom = tab.evaluate(
            """() => { const times = [], v = TA.view, ctx = document.getElementById('tl-canvas').getContext('2d');
            for (let i = 0; i < 20; i++) { const t = performance.now(); v.t1 = v.t0 + (v.t1 - v.t0) * 0.8; TA.draw(ctx, v);
            ctx.getImageData(0, 0, 1, 1); times.push(performance.now() - t); } return times.sort((a, b) => a - b)[18]; }"""
        )
        browser.close()
    return paint / 1e3, ready / 1e3, zoom


if __name__ == "__main__":
    main()
