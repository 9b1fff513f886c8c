import pytest
from rich.console import Console

from tests.asked import ASKED
from tests.builders import rank_trace
from traceanalyzer.analyses import run
from traceanalyzer.findings import Finding
from traceanalyzer.report import Report
from traceanalyzer.report.words import split, verdict_sentences
from traceanalyzer.report.writers import terminal

LATE = [("compute", 0, 20), ("comm", 90, 100)]
WAITING = [("compute", 0, 20), ("comm", 20, 100)]
BUSY = [("compute", 0, 95), ("comm", 95, 100)]


def verdict(*ranks, findings=()):
    results = run([rank_trace(ops, rank=rank) for rank, ops in enumerate(ranks)], ASKED)
    return " ".join(verdict_sentences(Report("x", results, findings), split(results)))


@pytest.mark.parametrize(
    ("world_size", "said"), [(1, "Nothing stands out"), (2, "cannot be told without their traces.")]
)
def test_nothing_stands_out_only_where_all_ranks_are_here(world_size, said):
    results = run([rank_trace(BUSY, rank=0, world_size=world_size)], ASKED)
    found = verdict_sentences(Report("x", results, ()), split(results))
    assert [said in sentence for sentence in found].count(True) == 1
    assert ("What there is to gain" in " ".join(found), len(found)) == (False, 3 if world_size == 2 else len(found))


@pytest.mark.parametrize(
    ("ranks", "said"),
    [((BUSY, BUSY), "Nothing stands out"), pytest.param((LATE, LATE), "spent idle", marks=pytest.mark.thorough)],
)
def test_without_findings_the_command_line_says_what_the_page_says(ranks, said):
    report = Report("x", run([rank_trace(ops, rank=rank) for rank, ops in enumerate(ranks)], ASKED), ())
    console = Console(width=200)
    with console.capture() as held:
        terminal.show(report, console)
    assert said in held.get()


def test_findings_speak_first():
    finding = Finding("high", "Rank 0 is late by 70 ns a step.", rule="straggler")
    said = verdict(LATE, WAITING, findings=(finding, Finding("info", "Nothing to do.", rule="note")))
    assert "Rank 0 is late by 70 ns a step." in said
    assert "Nothing to do." not in said
    assert "sits in all-reduce" in said, "the picture of the bars comes first"
