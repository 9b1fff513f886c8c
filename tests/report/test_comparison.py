"""A comparison in words and pictures: waterfall, verdict, page, Markdown, JUnit."""

import dataclasses
import html as html_module
import re
from xml.etree import ElementTree as ET

import pandas as pd
import pytest
from rich.console import Console

from tests.diff.captured import capture, side, steady
from traceanalyzer.diff import compare
from traceanalyzer.gate import FAILED, PASSED, SKIPPED, UNKNOWN, Outcome
from traceanalyzer.job.run_info import Batch, RunInfo, StepTime, StepTimes
from traceanalyzer.report.comparison import DiffReport, as_markdown, rows, show
from traceanalyzer.report.comparison import page as page_of
from traceanalyzer.report.comparison import sentences as comparison_sentences
from traceanalyzer.report.writers import gates

HOSTILE = "<img src=x onerror=alert(1)>|`a`\u202e"


def comparison(base, other, *, force=False):
    return compare([side("base", base), side("other", other)], force=force)


def test_the_waterfall_adds_up_to_the_step():
    made = comparison(capture(steady(10, 5, 5)), capture(steady(12, 3, 1)))
    change = rows.step_change(made, "other")
    assert change.basis == "mean over ranks"
    assert change.by_part.to_dict() == {"compute_ns": 2, "exposed_transfer_ns": -2, "between_kernels_ns": -4}
    bars = rows.waterfall(made, change, "other")
    assert [bar.end.replace("\u202f", " ") for bar in bars] == ["20 ns", "+2 ns", "−2 ns", "−4 ns", "16 ns"]


def split(run, transfer, wait, unmatched=0):
    """The capture with exposed communication told apart in both compared steps of each rank."""
    table = pd.DataFrame(
        [{"rank": rank, "step": step, "exposed_transfer_ns": transfer, "exposed_wait_ns": wait,
          "exposed_unmatched_ns": unmatched}
         for rank in (0, 1) for step in (0, 1)]
    )  # fmt: skip
    times = run.tables["time_parts"].assign(
        exposed_transfer_ns=transfer, exposed_wait_ns=wait, exposed_unmatched_ns=unmatched
    )
    return dataclasses.replace(run, tables={**run.tables, "exposed_comm": table, "time_parts": times})


def printed(report):
    console = Console(width=200)
    with console.capture() as held:
        show(report, console)
    return held.get().replace("\u202f", " ")


def test_what_is_printed_adds_up_to_the_step_with_the_words_of_the_page():
    made = comparison(split(capture(steady(10, 5, 5)), 4, 1), split(capture(steady(10, 7, 5)), 1, 1, 5))
    lines = printed(DiffReport(made)).splitlines()
    parts = (
        "compute ns/step",
        "exposed transfer ns/step",
        "exposed wait ns/step",
        "exposed, unattributed ns/step",
        "idle ns/step",
    )
    shown = [next(line.split("/step")[1].split() for line in lines if line.strip().startswith(part)) for part in parts]
    assert [sum(float(cells[column]) for cells in shown) for column in (0, 1)] == [20, 22]
    assert next(line for line in lines if line.strip().startswith("step ")).split()[:4] == ["step", "ns", "20", "22"]
    assert "exposed_unmatched_ns" in rows.step_change(made, "other").by_part


def without(run, *analyses):
    return dataclasses.replace(run, tables={name: table for name, table in run.tables.items() if name not in analyses})


def test_the_verdict_ranks_three_runs():
    made = compare([side(name, capture(steady(time))) for name, time in (("a", 30), ("b", 10), ("c", 20))])
    first, second = comparison_sentences.verdict_sentences(made)[:2]
    assert first.replace("\u202f", " ") == "Fastest first, time per step: b 10 ns, c 20 ns, a 30 ns."
    assert second.startswith("The runs may not have done the same work (model, dtype, tokens a step ")


def test_per_cent_and_points_are_never_mixed():
    made = comparison(capture(steady(10, 5, 5)), capture(steady(16, 0, 4)))
    others = {row.metric: row.cells[1] for row in rows.figures(made)}
    assert others["compute_pct"].change.endswith(" pp")
    assert others["idle_pct"].change.endswith(" pp")
    assert others["compute_ns"].change == "+60%"


def hostile():
    made = compare([side("base", capture(steady(10))), side(HOSTILE, capture(steady(12)))])
    outcomes = [Outcome("idle_pct > 5", HOSTILE, FAILED, f"\x01{HOSTILE}", ({"rank": 0, "x": HOSTILE},))]
    return DiffReport(made, outcomes, command="analyze-traces <script>")


def test_hostile_names_stay_text():
    page = page_of(hostile())
    assert "<img" not in page
    assert "<script>\n" not in page.replace('<script>"use strict"', "")
    assert HOSTILE in html_module.unescape(page)
    text = as_markdown(hostile())
    assert "<img" not in text
    assert not [line for line in text.splitlines() if line.startswith("|") and HOSTILE in line]  # pipes are escaped
    suite = ET.fromstring(gates.junit(hostile().outcomes))
    assert suite.find("testcase").get("classname") == HOSTILE


@pytest.mark.parametrize(
    "name", ["![x](http://e.st/a.png)", "[x](y)", "@everyone", "see https://e.st/", "www.e.st", "a@e.st"]
)
def test_markdown_makes_no_image_link_or_mention_of_a_name(name):
    text = gates.as_markdown([Outcome("g", name, FAILED, "m", ({"rank": 0, "x": name},))])
    assert not re.search(r"\]\(|@\w|://|www\.", text)
    assert html_module.unescape(text).replace("\u200b", "").count(name) == 3


def test_junit_counts():
    outcomes = [Outcome("g", "run", status, "m") for status in (PASSED, FAILED, FAILED, UNKNOWN, SKIPPED)]
    suite = ET.fromstring(gates.junit(outcomes))
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5", "failures": "2", "errors": "1", "skipped": "1",
    }  # fmt: skip
    assert [case[0].tag if len(case) else None for case in suite] == [
        "system-out",
        "failure",
        "failure",
        "error",
        "skipped",
    ]


def recorded(length, *, unprofiled=None, tokens=1000, tokens_per_s=None, ranks=2):
    """A capture of steps of this length whose run.json has the rest, in ns."""
    times = StepTimes(unprofiled=StepTime(mean=unprofiled))
    batch = Batch(tokens_per_step=tokens, grad_accum=1)
    return capture(
        steady(length, ranks=ranks), info=RunInfo(batch=batch, step_time_ns=times, tokens_per_s=tokens_per_s)
    )
