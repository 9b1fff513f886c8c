"""A comparison in words and pictures: waterfall, verdict, page, Markdown, JUnit."""

import dataclasses
import html as html_module
import re
from xml.etree import ElementTree as ET

import pandas as pd
import pytest
from rich.console import Console

from tests.diff.captured import capture, side, steady
from traceanalyzer.diff import TableDiff, compare
from traceanalyzer.gate import FAILED, PASSED, SKIPPED, UNKNOWN, Outcome
from traceanalyzer.job.run_info import Batch, RunInfo, StepTime, StepTimes
from traceanalyzer.report.comparison import DiffReport, step_parts, writers
from traceanalyzer.report.comparison import rows as comparison_rows
from traceanalyzer.report.comparison import sentences as comparison_sentences
from traceanalyzer.report.writers import gates

HOSTILE = "<img src=x onerror=alert(1)>|`a`\u202e"


def comparison(base, other, *, force=False):
    return compare([side("base", base), side("other", other)], force=force)


def test_the_waterfall_adds_up_to_the_step():
    made = comparison(capture(steady(10, 5, 5)), capture(steady(12, 3, 1)))
    parts = step_parts.parts(made, "other")
    assert [(part.metric, part.change_ns) for part in parts] == [
        ("compute_ns", 2), ("exposed_transfer_ns", -2), ("idle_ns", -4),
    ]  # fmt: skip
    assert sum(part.change_ns for part in parts) == -4


@pytest.mark.parametrize(
    ("estimates", "said"),
    [
        (
            (20, 12),
            "without it other would take an estimated 12 ns, base 20 ns: 40 % shorter.",
        ),  # as recorded, it is longer
        ((18, 20), None),  # by about as much as recorded
        pytest.param((20, None), None, marks=pytest.mark.thorough),
    ],
)
def test_steps_without_what_recording_costs_are_told_where_they_say_something_else(estimates, said):
    runs = [
        dataclasses.replace(run, tables={**run.tables, "what_ifs": pd.DataFrame({"unprofiled_ns": [estimate]})})
        for run, estimate in zip((capture(steady(10, 5, 5)), capture(steady(10, 7, 5))), estimates, strict=True)
    ]
    sentences = comparison_sentences.verdict_sentences(comparison(*runs))
    found = [one for one in sentences if one.startswith("Recording slows hosts: without it")]
    assert len(found) == (said is not None)
    assert all(one.replace("\u202f", " ").endswith(said) for one in found)


def split(run, transfer, wait, unmatched=0):
    """The capture with exposed communication told apart in both compared steps of each rank."""
    table = pd.DataFrame(
        [{"rank": rank, "step": step, "exposed_transfer_ns": transfer, "exposed_wait_ns": wait,
          "exposed_unmatched_ns": unmatched}
         for rank in (0, 1) for step in (0, 1)]
    )  # fmt: skip
    return dataclasses.replace(run, tables={**run.tables, "exposed_comm": table})


def printed(report):
    console = Console(width=200)
    with console.capture() as held:
        writers.show(report, console)
    return held.get().replace("\u202f", " ")


def test_what_is_printed_adds_up_to_the_step_with_the_words_of_the_page():
    made = comparison(split(capture(steady(10, 5, 5)), 4, 1), split(capture(steady(10, 7, 5)), 1, 1, 5))
    lines = printed(DiffReport(made)).splitlines()
    parts = (
        "compute ns",
        "exposed transfer ns",
        "exposed wait ns",
        "exposed, unmatched or not separable ns",
        "idle ns",
    )
    shown = [
        next(line.split(" a step")[1].split() for line in lines if line.strip().startswith(part)) for part in parts
    ]
    assert [sum(float(cells[column]) for cells in shown) for column in (0, 1)] == [20, 22]
    assert next(line for line in lines if line.strip().startswith("step ")).split()[:4] == ["step", "ns", "20", "22"]
    assert "exposed, unmatched or not separable" in [part.label for part in step_parts.parts(made, "other")]


def without(run, *analyses):
    return dataclasses.replace(run, tables={name: table for name, table in run.tables.items() if name not in analyses})


def test_the_waterfall_tells_transfer_from_wait_only_where_both_runs_do():
    base, other = capture(steady(10, 5, 5)), capture(steady(10, 7, 5))
    both = step_parts.parts(comparison(split(base, 4, 1), split(other, 4, 3)), "other")
    assert [(part.kind, part.change_ns) for part in both] == [("compute", 0), ("transfer", 0), ("wait", 2), ("idle", 0)]
    one = step_parts.parts(comparison(split(base, 4, 1), without(other, "exposed_comm")), "other")
    assert [part.kind for part in one] == ["compute", "comm", "idle"]
    # Of a rank that is here alone nothing is either: its transfers have not become shorter.
    alone = step_parts.parts(comparison(split(base, 4, 1), split(other, 0, 0, 7)), "other")
    assert [part.kind for part in alone] == ["compute", "comm", "idle"]
    # Parts that do not add up are not shown as if they did.
    wrong = step_parts.parts(comparison(split(base, 9, 9), split(other, 4, 3)), "other")
    assert [part.kind for part in wrong] == ["compute", "comm", "idle"]


@pytest.mark.parametrize(
    ("base", "other", "said"),
    [
        ((10, 5, 5), (10, 5, 15), "other takes 30 ns a step, base 20 ns: 10 ns (50 %) longer."),
        ((10, 5, 5), (10, 5, 15), "Most of the difference is idle, +10 ns a step (5 ns → 15 ns)"),
        pytest.param(
            (10, 5, 5),
            (5, 5, 5),
            "other takes 15 ns a step, base 20 ns: 5 ns (25 %) shorter.",
            marks=pytest.mark.thorough,
        ),
        (
            (10, 0, 10),
            (30, 0, 0),
            "Contradiction: in other compute share (+50 percentage points) and idle share (−50 percentage points) look better",
        ),
        pytest.param(
            (10, 5, 5),
            (10, 5, 15),
            "One capture of each cannot tell a difference from noise",
            marks=pytest.mark.thorough,
        ),
        ((10, 5, 5), (10, 5, 5), "No figure differs."),
    ],
)
def test_the_verdict(base, other, said):
    sentences = " ".join(
        comparison_sentences.verdict_sentences(comparison(capture(steady(*base)), capture(steady(*other))))
    )
    assert said in sentences.replace("\u202f", " ")


def test_the_verdict_ranks_three_runs():
    made = compare([side(name, capture(steady(time))) for name, time in (("a", 30), ("b", 10), ("c", 20))])
    bound_by, first, second = comparison_sentences.verdict_sentences(made)[:3]
    assert bound_by == "Most of a step is compute (100 %) in every run."
    assert first.replace("\u202f", " ") == "Fastest first, by time a step: b 10 ns, c 20 ns, a 30 ns."
    assert second.startswith(
        "Read with care: it is not known that they did the same work (model, dtype, tokens a step "
    )


def test_bucketing_is_said_as_such():
    base, other = capture(steady(10, 5, 5)), capture(steady(10, 5, 5))
    tables = [
        pd.DataFrame(
            [{"rank": rank, "collective": "all_reduce", "dtype": "Float", "calls": 2 * calls, "total_ns": 10, "size_bytes": 8000}
             for rank in (0, 1)]
        )
        for calls in (100, 4)
    ]  # fmt: skip
    base, other = (
        dataclasses.replace(run, tables={**run.tables, "nccl": table})
        for run, table in zip((base, other), tables, strict=True)
    )
    said = " ".join(comparison_sentences.verdict_sentences(comparison(base, other))).replace("\u202f", " ")
    assert "all-reduce: 100 → 4 calls a step, the same 4 kB in fewer, larger calls (40 B → 1 kB each)." in said


def test_per_cent_and_points_are_never_mixed():
    made = comparison(capture(steady(10, 5, 5)), capture(steady(16, 0, 4)))
    others = {row.metric: row.cells[1] for row in comparison_rows.rows(made)}
    units = {metric: cell.change_unit for metric, cell in others.items() if cell.change}
    assert units["compute_pct"] == units["idle_pct"] == "pp"
    assert units["step_ns"] == units["compute_ns"] == "%"


def test_bars_of_a_table_are_of_its_largest_change():
    made = comparison(capture(steady(10, 5, 5)), capture(steady(8, 9, 5)))
    view = comparison_rows.table_view(next(table for table in made.tables["other"] if table.analysis == "kernels"))
    assert [(row.status, row.bar) for row in view.rows] == [
        ("CHANGED", (comparison_rows.Piece("both", 50, 50),)), ("CHANGED", (comparison_rows.Piece("compute", 25, 25),)),
    ]  # fmt: skip


def test_bars_of_communication_tell_transfer_and_wait_apart():
    frame = pd.DataFrame(
        [{"collective": "all_reduce", "status": "CHANGED", "base_calls": 1, "other_calls": 1,
          "base_transfer_ns": 30, "other_transfer_ns": 20, "change_transfer_ns": -10,
          "base_wait_ns": 10, "other_wait_ns": 30, "change_wait_ns": 20,
          "base_total_ns": 40, "other_total_ns": 50, "change_total_ns": 10, "change_total_ns_pct": 25.0,
          "change_share_pct_points": 0.0}]
    )  # fmt: skip
    view = comparison_rows.table_view(TableDiff("collectives", "Collectives", ("collective",), "total_ns", frame))
    assert view.rows[0].bar == (comparison_rows.Piece("transfer", 25, 25), comparison_rows.Piece("wait", 50, 50))
    heads = [column.label for column in view.columns]
    assert {"transfer base", "wait other"} <= set(heads)
    assert not {"total base", "total other"} & set(heads)


def hostile():
    made = compare([side("base", capture(steady(10))), side(HOSTILE, capture(steady(12)))])
    outcomes = [Outcome("idle_pct > 5", HOSTILE, FAILED, f"\x01{HOSTILE}", ({"rank": 0, "x": HOSTILE},))]
    return DiffReport(made, outcomes, command="analyze-traces <script>")


def test_hostile_names_stay_text():
    page = writers.page(hostile())
    assert "<img" not in page
    assert "<script>\n" not in page.replace('<script>"use strict"', "")
    assert HOSTILE in html_module.unescape(page)
    text = writers.as_markdown(hostile())
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


def test_rows_of_a_gate_have_units_and_large_figures_in_full():
    rows = ({"rank": 0, "base_step_ns": 27_480_595.4, "calls": 1_234_567, "change": 0.0123456789, "is_open": True},)
    failure = ET.fromstring(gates.junit([Outcome("g", "run", FAILED, "m", rows)])).find("testcase/failure")
    assert "rank 0, base step 27.481 ms, calls 1,234,567, change 0.0123457, open True" in failure.text


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


def test_a_page_of_captures_without_anything():
    bare = capture(steady(10))
    empty = dataclasses.replace(bare, tables={name: frame.iloc[:0] for name, frame in bare.tables.items()}, steps=())
    made = compare([side("base", empty), side("other", empty)])
    report = DiffReport(made)
    assert "its time cannot be compared" in writers.page(report)
    assert writers.as_markdown(report)
    text = printed(report)
    assert "cannot be compared with base's, for GPU work is compared, and none was recorded" in text
    assert "figures" not in text, "there is no table of nothing"


def test_figures_that_no_run_has_are_not_printed():
    text = printed(DiffReport(comparison(capture(steady(10, 5, 5)), capture(steady(12, 5, 5)))))
    assert "compute ns" in text
    assert "exposed copy" not in text


def recorded(length, *, unprofiled=None, tokens=1000, tokens_per_s=None, ranks=2):
    """A capture of steps of this length whose run.json has the rest, in ns."""
    times = StepTimes(unprofiled=StepTime(mean=unprofiled))
    batch = Batch(tokens_per_step=tokens, grad_accum=1)
    return capture(
        steady(length, ranks=ranks), info=RunInfo(batch=batch, step_time_ns=times, tokens_per_s=tokens_per_s)
    )


@pytest.mark.parametrize(
    ("base", "other", "is_said"),
    [
        (recorded(20, unprofiled=18), recorded(21, unprofiled=10), True),
        (recorded(20, unprofiled=10), recorded(19, unprofiled=18), True),
        (recorded(20, unprofiled=10), recorded(21, unprofiled=18), False),
        (recorded(20, unprofiled=10), recorded(21), False),
        # Twice the tokens in 1.8 times the time: shorter for equal work with the profiler and without.
        (recorded(20, unprofiled=10), recorded(36, unprofiled=18, tokens=2000), False),
        (recorded(20, unprofiled=10), recorded(36, unprofiled=22, tokens=2000), True),
    ],
)
def test_step_times_without_the_profiler_that_rank_the_runs_otherwise_are_said(base, other, is_said):
    said = [
        one
        for one in comparison_sentences.verdict_sentences(comparison(base, other))
        if "without the profiler it is" in one
    ]
    assert bool(said) == is_said


def test_figures_of_unequal_steps_are_of_the_same_work():
    made = comparison(recorded(20, unprofiled=10), recorded(36, unprofiled=18, tokens=2000))
    changes = made.metrics[made.metrics["run"] == "other"].set_index("metric")["change_pct"]
    assert changes[["step_ns", "unprofiled_step_ns"]].tolist() == pytest.approx([-10, -10])
    assert "other processes 1.11 times as many tokens/s as base (profiled)." in " ".join(
        comparison_sentences.verdict_sentences(made)
    )


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ((None, None), "1.90 times as many tokens/s as base (profiled) with 2 ranks instead of 1: scaling efficiency 95"),
        ((100, 180), "1.80 times as many tokens/s as base (without the profiler) with 2 ranks instead of 1: scaling efficiency 90"),
    ],
)  # fmt: skip
def test_one_gpu_against_several_at_one_global_batch_reads_as_scaling(rates, said):
    base, other = recorded(380, ranks=1, tokens_per_s=rates[0]), recorded(200, tokens_per_s=rates[1])
    assert said in " ".join(comparison_sentences.verdict_sentences(comparison(base, other))).replace("\u202f", " ")


def test_the_waterfall_along_the_path_is_of_the_replays_categories():
    table = pd.DataFrame({"rank": 0, "category": ["host", "comm"], "name": ["x", "y"], "path_ns": [40, 20]})
    base, other = (
        dataclasses.replace(run, tables={**run.tables, "critical_path": own})
        for run, own in ((capture(steady(10)), table), (capture(steady(12)), table[:1].assign(path_ns=80)))
    )
    made = comparison(base, other)
    per = made.fairness.scale.divisor(base)
    assert [(part.metric, part.kind, part.change_ns) for part in step_parts.path_parts(made, "other")] == [
        ("comm", "transfer", -20 / per), ("host", "idle-host", 40 / per),
    ]  # fmt: skip
    assert step_parts.path_parts(comparison(capture(steady(10)), other), "other") == []
