"""The summary that the command line prints, on terminals of any width."""

from functools import cache

import pytest
from rich.console import Console

from tests.asked import ASKED
from tests.builders import rank_trace
from tests.simulator.analysed import repeated
from traceanalyzer.analyses import run
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.findings import Finding
from traceanalyzer.findings.savings import Saves
from traceanalyzer.report import Report
from traceanalyzer.report.contents import LAYOUT
from traceanalyzer.report.writers import text as terminal
from traceanalyzer.report.writers.text import as_markdown

SHOWN = (*ASKED, "unlike_ranks")

OPS = [("compute", 0, 250_000), ("comm", 250_000, 1_000_000)]


@cache
def results_of(ranks):
    return run([rank_trace(OPS, rank=rank) for rank in range(ranks)], SHOWN)


def printed(width, times=1):
    """What is printed of two ranks, or of one that is there so many times."""
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as held:
        terminal.show(Report("ddp", results_of(2) if times == 1 else repeated(results_of(1), times)), console)
    return held.get()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_every_figure_is_readable_or_named_at_any_width(width):
    text = printed(width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    for head, name in (("window ms", "window_ns"), ("compute %", "compute_pct"), ("overlap %", "overlap_pct")):
        assert (head in words) != (name in words.partition("not shown:")[2])


def test_headings_stand_in_one_line_of_a_usual_terminal():
    heading = "rank  window ms  compute %  transfer %  wait %  copy %  idle %  overlap %"
    assert any(heading in line for line in printed(80).splitlines())


def test_of_many_ranks_those_unlike_the_others_and_the_median_are_shown():
    ranks = [
        rank_trace(
            [("compute", 0, 700_000 if rank in (20, 21) else 250_000 + rank), ("comm", 700_000, 1_000_000)], rank=rank
        )
        for rank in range(LAYOUT.many_ranks)
    ]
    console = Console(width=100)
    with console.capture() as held:
        terminal.show(Report("ddp", run(ranks, SHOWN)), console)
    lines = [line.split() for line in held.get().splitlines()]
    assert [line[0] for line in lines if line and line[0].isdigit()][:3] == ["15", "20", "21"]
    assert "3 of 32 ranks: those unlike the others and the median, 15" in held.get()


def test_a_summary_for_a_pull_request_has_less_than_80_lines():
    findings = tuple(
        Finding(f"Cause {number}.", "It is.", "Mend.", severity="high", saves=SAVES) for number in range(30)
    )
    facts = tuple(Finding(f"Fact {number}.") for number in range(30))
    ranks = [rank_trace(OPS, rank=rank) for rank in range(LAYOUT.many_ranks - 1)]
    notes = tuple(f"Note {number}." for number in range(30))
    lines = as_markdown(Report("ddp", run(ranks, SHOWN), (*findings, *facts), notes=notes)).splitlines()
    assert len(lines) < 80
    assert [line for line in lines if "19 more ranks" in line]


def shown(*findings):
    console = Console(width=100)
    with console.capture() as held:
        terminal.show(Report("ddp", results_of(2), findings), console)
    return held.get()


SAVES = Saves(before_ns=10_000_000, likely_ns=3_000_000, low_ns=2_000_000, high_ns=4_000_000, is_unprofiled=True)


def test_a_card_has_its_fields_in_order():
    text = shown(
        Finding(
            "Rank 1 is slow.",
            "It waits.",
            "Fuse.",
            (Change("rank", "peers", frozenset({1})),),
            severity="high",
            saves=SAVES,
        )
    )
    fields = [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2] in "WFSC"]
    assert fields == ["Why", "Fix", "Saves", "Confidence", "What-if"]
    assert "1 Rank 1 is slow." in text
    assert "about 3 ms/step (10 → 7 ms, 30%)" in text
    assert "high (between 2 and 4 ms)" in text
    assert "analyze-traces what-if FOLDER --rank 1=peers" in text


def test_a_fact_saves_at_most_what_was_seen_or_says_nothing():
    unsure = Saves(before_ns=10_000_000, likely_ns=50_000, low_ns=0, high_ns=400_000, is_unprofiled=True)
    text = shown(Finding("Held.", saves=unsure, stated_ns=500_000), Finding("Beyond.", saves=unsure, stated_ns=300_000))
    assert "Held. Saves up to 400 µs/step." in text
    assert "Beyond.\n" in text


def test_three_cards_are_shown_then_a_line_for_each_other_one():
    text = shown(*(Finding(f"Cause {number}.", severity="high", saves=SAVES) for number in range(5)))
    assert "3 Cause 2." in text
    assert "4 Cause 3. Saves about 3 ms/step" in text
    assert "They overlap; don't add them up." in text


def test_facts_and_what_gains_nothing_have_a_line_each_and_the_capture_the_foot():
    nothing = Saves(before_ns=10_000_000, likely_ns=0, low_ns=0, high_ns=0, is_unprofiled=True)
    text = shown(
        Finding("Cause.", severity="high", saves=SAVES),
        Finding("Fact."),
        Finding("A rank is missing.", severity="medium", is_about_capture=True),
        Finding("Slow links.", kind="low_bandwidth", saves=nothing),
    )
    assert "Also seen: Fact." in text
    assert "Checked, nothing to gain: low bandwidth." in text
    assert text.index("! A rank is missing.") > text.index("rank  window ms")


def test_what_the_capture_is_unfit_for_leads_where_nothing_saves():
    text = shown(Finding("It is alone.", fix="Record all.", severity="high", is_about_capture=True))
    assert "1 It is alone." in text
    assert "  Fix        Record all." in text
