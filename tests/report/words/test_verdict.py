import pytest
from rich.console import Console

from tests import once
from tests.asked import ASKED
from tests.builders import rank_trace
from traceanalyzer.analyses import run
from traceanalyzer.findings import Finding
from traceanalyzer.report import Report
from traceanalyzer.report.words import split, verdict_sentences
from traceanalyzer.report.writers import terminal

LATE = [("compute", 0, 20), ("comm", 90, 100)]
WAITING = [("compute", 0, 20), ("comm", 20, 100)]
COPYING = [("compute", 0, 20), ("copy", 20, 100)]
BUSY = [("compute", 0, 95), ("comm", 95, 100)]


def verdict(*ranks, findings=()):
    results = run([rank_trace(ops, rank=rank) for rank, ops in enumerate(ranks)], ASKED)
    return " ".join(verdict_sentences(Report("x", results, findings), split(results)))


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        (
            (LATE, WAITING),
            "Rank 0's GPU is idle for 70\u202fns (70 %) while rank 1 sits in all-reduce for 80\u202fns (80 %).",
        ),
        pytest.param((BUSY, BUSY), "Nothing stands out", marks=pytest.mark.thorough),
        ((WAITING,), "For 80 % of the time it is in communication that no compute hides."),
        ((COPYING,), "For 80 % of the time it is in copies that neither compute nor communication hides."),
        ((LATE, LATE), "On average 70 % of the time is spent idle."),
        (([],), "nothing to split"),
    ],
)
def test_the_breakdown_alone_says_what_is_wrong_or_that_nothing_is(ranks, said):
    assert said in verdict(*ranks)


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


def test_a_run_without_faults_says_what_its_compute_is():
    report = Report("x", once.results("pytorch_ddp"), ())
    said = verdict_sentences(report, split(report.results))
    table = report.results["categories"].to_frame()
    compute = table[~table["category"].isin(["communication", "copy"])].groupby("category")["gpu_ns"].sum()
    share = 100 * compute.drop(["gemm", "attention"]).sum() / compute.sum()
    assert said[-1].startswith(f"{share:.1f} % of compute kernel time in the capture is neither matrix work nor ")
    assert not any("links" in sentence for sentence in said), "hidden communication is no fault"


def test_findings_speak_first():
    finding = Finding("high", "Rank 0 is late by 70 ns a step.", rule="straggler")
    said = verdict(LATE, WAITING, findings=(finding, Finding("info", "Nothing to do.", rule="note")))
    assert "Rank 0 is late by 70 ns a step." in said
    assert "Nothing to do." not in said
    assert "sits in all-reduce" in said, "the picture of the bars comes first"


def test_what_a_finding_has_taken_in_is_said_once_with_it():
    inner = (
        Finding("high", "Rank 1 waits.", rule="b"),
        Finding("high", "Rank 2 waits too.", rule="c"),
        Finding("high", "A third is in the card alone.", rule="d"),
    )
    said = verdict(LATE, WAITING, findings=(Finding("high", "Rank 0 is late: it idles.", also=inner, rule="a"),))
    assert "Rank 0 is late: it idles. Rank 1 waits." in said
    assert said.endswith("Rank 2 waits too.")


def test_what_a_finding_says_is_not_said_twice():
    finding = Finding("high", "Rank 1 waits 70 ns a step for rank 0.", ranks=(0,), named=(1,), rule="straggler")
    said = verdict(LATE, WAITING, findings=(finding,))
    assert finding.title in said
    assert "sits in" not in said


def test_what_a_capture_cannot_tell_leaves_the_figures_their_words():
    figures = verdict(COPYING)
    of_capture = Finding("medium", "No step is complete.", is_about_capture=True, rule="no_complete_step")
    said = verdict(COPYING, findings=(of_capture,))
    assert said.replace("No step is complete. ", "") == figures != said
    unfit = Finding("high", "Rank 1 launches no collective.", is_about_capture=True, rule="silent_rank")
    assert verdict(COPYING, findings=(unfit,)).endswith("Rank 1 launches no collective.")
