from types import SimpleNamespace

import pandas as pd
import pytest
from rich.console import Console

from tests.builders import rank_trace
from traceanalyzer.analyses import run
from traceanalyzer.findings import Finding
from traceanalyzer.report import Report, terminal
from traceanalyzer.report.parts import split
from traceanalyzer.report.verdict import sentences

LATE = [("compute", 0, 20), ("comm", 90, 100)]
WAITING = [("compute", 0, 20), ("comm", 20, 100)]
BUSY = [("compute", 0, 95), ("comm", 95, 100)]


def verdict(*ranks, findings=()):
    results = run([rank_trace(ops, rank=rank) for rank, ops in enumerate(ranks)])
    return " ".join(sentences(Report("x", results, findings), split(results)))


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        (
            (LATE, WAITING),
            "Rank 0's GPU is idle for 70\u202fns (70 %) while rank 1 sits in all-reduce for 80\u202fns (80 %).",
        ),
        ((BUSY, BUSY), "Nothing stands out"),
        ((WAITING,), "For 80 % of the time it is in communication that no compute hides."),
        ((LATE, LATE), "On average 70 % of the time is spent idle."),
        (([],), "nothing to split"),
    ],
)
def test_the_breakdown_alone_says_what_is_wrong_or_that_nothing_is(ranks, said):
    assert said in verdict(*ranks)


@pytest.mark.parametrize(("ranks", "said"), [((BUSY, BUSY), "Nothing stands out"), ((LATE, LATE), "spent idle")])
def test_without_findings_the_command_line_says_what_the_page_says(ranks, said):
    report = Report("x", run([rank_trace(ops, rank=rank) for rank, ops in enumerate(ranks)]), ())
    console = Console(width=200)
    with console.capture() as held:
        terminal.show(report, console)
    assert said in held.get()


ALL_REDUCE = {
    "collective": "all_reduce",
    "size_class": "> 256 MiB",
    "size_bytes": 10**9,
    "busbw_gbps": 300.0,
    "peak_pct": 66.7,
}
UNKNOWN = {
    "collective": "all_gather",
    "size_class": "unknown",
    "size_bytes": None,
    "busbw_gbps": None,
    "peak_pct": None,
}


@pytest.mark.parametrize(
    ("collectives", "is_said"),
    [
        ([ALL_REDUCE], True),
        ([ALL_REDUCE | {"size_class": "≤ 64 KiB", "size_bytes": 12}], False),
        ([ALL_REDUCE, UNKNOWN], False),
    ],
    ids=["large calls", "too small to fill a link", "most bytes may be the unknown ones"],
)
def test_links_are_judged_by_calls_that_can_fill_them(collectives, is_said):
    results = dict(run([rank_trace(BUSY, rank=rank) for rank in (0, 1)]))
    results["collectives"] = SimpleNamespace(to_frame=lambda: pd.DataFrame(collectives))
    report = Report("x", results, ())
    said = " ".join(sentences(report, split(results)))
    assert ("Most bytes go through all-reduces: 300 GB/s" in said) == is_said


def test_findings_speak_first():
    finding = Finding("straggler", "high", "Rank 0 is late by 70 ns a step.")
    said = verdict(LATE, WAITING, findings=(finding, Finding("note", "info", "Nothing to do.")))
    assert "Rank 0 is late by 70 ns a step." in said
    assert "Nothing to do." not in said
    assert "sits in all-reduce" in said, "the picture of the bars comes first"


def test_findings_of_one_subject_are_one_sentence():
    findings = (
        Finding("a", "high", "Rank 0 is late: it idles."),
        Finding("b", "high", "Rank 0 is late: rank 1 waits."),
    )
    assert "Rank 0 is late: it idles; rank 1 waits." in verdict(LATE, WAITING, findings=findings)


def test_what_a_finding_has_taken_in_is_said_once_with_it():
    inner = (Finding("b", "high", "Rank 0 is late: rank 1 waits."), Finding("c", "high", "Rank 2 waits too."))
    said = verdict(LATE, WAITING, findings=(Finding("a", "high", "Rank 0 is late: it idles.", also=inner),))
    assert "Rank 0 is late: it idles; rank 1 waits." in said
    assert "Rank 2" not in said


def test_what_a_finding_says_is_not_said_twice():
    finding = Finding("straggler", "high", "Rank 1 waits 70 ns a step for rank 0.")
    said = verdict(LATE, WAITING, findings=(finding,))
    assert finding.title in said
    assert "sits in" not in said
