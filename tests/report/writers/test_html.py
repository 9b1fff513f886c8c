"""The page: its figures are the JSON's, names stay text, later Results find their place."""

import base64
import hashlib
import json
import zlib
from functools import cache
from pathlib import Path

import pytest

from tests import once
from tests.builders import document, kernel, rank_trace, write
from tests.report.pages import Page
from tests.simulator.analysed import repeated
from traceanalyzer.analyses import run
from traceanalyzer.cli import run as command
from traceanalyzer.diff.captures import result_class
from traceanalyzer.findings import Finding, find
from traceanalyzer.job.run_info import Batch, RunInfo
from traceanalyzer.model import Skipped
from traceanalyzer.report import Report, assets
from traceanalyzer.report.writers import html, tables

KERNEL = (("compute", 0, 10),)


@cache
def of(ops):
    """All Results of a rank that has these operations alone."""
    return run([rank_trace(ops)])


HOSTILE = (
    "<script>document.title='owned'</script>",
    "</script><script>document.title='owned'</script>",
    '"\' onmouseover="document.title=\'owned\'" x="',
    "]]>--><!--</style></title>",
    "a\u202eevil\u2066b\u200fc",
    "{{ 7 * 7 }}{% raw %}",
    "n" * 10_000,
)


def report_of(name: str) -> Report:
    return Report(name, once.results(name))


@cache
def page_of(name: str) -> str:
    return html.page(report_of(name))


@pytest.mark.parametrize(
    "name",
    ["ddp", pytest.param("pp", marks=pytest.mark.thorough), "moe", pytest.param("streams", marks=pytest.mark.thorough)],
)
def test_every_table_shows_the_figures_of_the_json(name):
    report = report_of(name)
    shown = Page(page_of(name)).tables
    zero = min(row["window_start_ns"] for row in report.results["ranks"].rows())
    figures = tables.as_json(report)["results"]
    assert {"steps", "kernels_over_ranks"} <= set(shown)
    for analysis in set(figures) & set(shown):
        assert len(shown[analysis].rows) == len(figures[analysis])
        for row, expected in zip(shown[analysis].rows, figures[analysis], strict=True):
            for column, (text, full) in row.items():
                meant = result_class(analysis).columns[column]
                check(text, full, expected[column], zero if meant.is_moment else 0, meant.absent or "n/a")


def check(text, full, expected, zero, absent):
    if expected is None:
        assert (text, full) == (absent, None)
    elif isinstance(expected, bool):
        assert text == ("yes" if expected else "no")
    elif isinstance(expected, int | float):
        assert float(full) == expected - zero
    else:
        assert (full or text) == expected


def test_tiles_and_bars_are_the_headline():
    report = report_of("ddp")
    page = Page(page_of("ddp"))
    assert "gaps" in page.tables
    bars = [attributes for tag, attributes in page.elements if tag == "g" and "data-ns" in attributes]
    rows = report.results["headline"].rows()
    assert sum(float(bar["data-ns"]) for bar in bars) == pytest.approx(sum(row["step_mean_ns"] for row in rows))
    compute = [float(bar["data-ns"]) for bar in bars if bar["data-part"] == "compute_ns"]
    assert compute == [row["compute_ns"] / row["steps"] for row in rows]
    mean = sum(row["step_mean_ns"] for row in rows) / 2
    assert f"{mean / 1e6:.1f}\u202fms" in page.text
    assert "CPU-bound: CPU work is" in page.text


def test_the_head_says_what_ran():
    info = RunInfo(
        strategy="zero3", model={"layers": 4, "parameters": 110_118_912, "seq_len": 1024}, dtype="bf16",
        batch=Batch(global_batch=16),
    )  # fmt: skip
    text = Page(html.page(Report("x", of(KERNEL), run_info=info))).text
    for fact in ("zero3", "model of 4 layers, 110 M parameters", "batch 16 × 1,024 tokens", "bf16"):
        assert fact in text


def test_the_policy_lists_each_script_and_nothing_comes_from_elsewhere():
    text = page_of("ddp")
    page = Page(text)
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    for attributes, script in page.scripts:
        assert "src" not in attributes
        if attributes.get("type") != "application/json":
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy
        else:
            json.loads(script)
    assert not [a for _, a in page.elements for name in ("src", "href") if "//" in (a.get(name) or "")]


def test_hostile_names_stay_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [(10 * place, name) for place, name in enumerate(HOSTILE)]
    events = [kernel(start, 5, name=name) for start, name in names]
    write(Path("t/rank0.json"), document(events, rank=0, world_size=1))
    assert command(["--trace-dir", "t", "--output", "out", "--quiet"]) == 0
    text = Path("out/summary.html").read_text(encoding="utf-8")
    check_inert(text)


def test_hostile_labels_findings_and_notes_stay_text():
    results = of(KERNEL)
    findings = tuple(
        Finding(name, name, name, evidence=({"name": name, name: 1},), severity="high", caveat=name, kind=name)
        for name in HOSTILE
    )
    skipped = tuple(Skipped(name, name) for name in HOSTILE)
    for name in HOSTILE[:2]:  # a page has one label
        said = {"command": name, "created": name, "version": name, "run_info": RunInfo(strategy=name)}
        check_inert(html.page(Report(name, results, findings, skipped, HOSTILE, **said)))


def check_inert(text):
    page = Page(text)
    assert not [a for _, a in page.elements if any(key.startswith("on") for key in a)]
    hashes = {assets.script("run.js").hash}
    running = [script for attributes, script in page.scripts if attributes.get("type") != "application/json"]
    assert {assets.sha256(script) for script in running} == hashes
    assert len(running) == len(hashes)
    assert "49" not in [cell.strip() for cell in page.text.split("\n")]


@pytest.mark.parametrize("ops", [[], [("compute", 0, 10)], [("comm", 0, 10)]])
def test_a_page_of_almost_nothing(ops):
    page = Page(html.page(Report("x", of(tuple(ops)))))
    assert "nothing to split" in page.text if not ops else page.tables["kernels_over_ranks"].rows
    charts = [a for _, a in page.elements if a.get("class") == "chart"]
    assert ops or not charts


@pytest.mark.parametrize("name", ["moe", pytest.param("fsdp_full", marks=pytest.mark.thorough)])
def test_eight_ranks_are_less_than_three_megabytes(name):
    """Ranks as others that were captured, findings and all: their operators, kernels and waits are a rank's own."""
    results = repeated(once.results(name), 4)
    page = html.page(Report("x", results, find(results)))
    assert len(page.encode()) < 3_000_000


def unpacked(text):
    """A figure as the page holds it: JSON, or JSON that is deflated, in base64, a text."""
    content = json.loads(text)
    return json.loads(zlib.decompress(base64.b64decode(content))) if isinstance(content, str) else content
