"""The summary that the command line prints, on terminals of any width."""

from functools import cache

import pytest
from rich.console import Console

from tests.asked import ASKED
from tests.builders import rank_trace
from tests.simulator.analysed import repeated
from traceanalyzer.analyses import run
from traceanalyzer.findings import Finding
from traceanalyzer.report import Report
from traceanalyzer.report.writers import terminal

OPS = [("compute", 0, 250_000), ("comm", 250_000, 1_000_000)]


@cache
def results_of(ranks):
    return run([rank_trace(OPS, rank=rank) for rank in range(ranks)], ASKED)


def printed(width, times=1):
    """What is printed of two ranks, or of one that is there so many times."""
    console = Console(width=width)
    with console.capture() as held:
        terminal.show(Report("ddp", results_of(2) if times == 1 else repeated(results_of(1), times)), console)
    return held.get()


@pytest.mark.parametrize(
    ("width", "is_table"), [(20, False), (40, False), (50, False), (60, True), (80, True), (200, True)]
)
def test_every_figure_is_readable_at_any_width(width, is_table):
    text = printed(width)
    assert "…" not in text
    assert ("───" in text) == is_table
    words = " ".join(text.split())
    if not is_table:
        assert (
            "rank 1: window 1.00 ms, compute 25.0 %, exposed comm 75.0 %, exposed copy 0.0 %, idle 0.0 %, overlap 0.0 %"
            in words
        )
    assert max(map(len, text.splitlines())) <= width


def test_headings_stand_in_one_line_of_a_usual_terminal():
    heading = "Rank  Window ms  Compute %  Exposed comm %  Exposed copy %  Idle %  Overlap %"
    assert heading in printed(80).splitlines()[2]


def test_of_many_ranks_the_late_the_middle_and_the_victims_are_shown_and_the_remedy():
    ranks = [
        rank_trace(
            [("compute", 0, 700_000 if rank in (20, 21) else 250_000 + rank), ("comm", 700_000, 1_000_000)], rank=rank
        )
        for rank in range(24)
    ]
    finding = Finding(
        "high", "Ranks 20 and 21 are late.", ranks=(20, 21), recommendation="Give them less.", rule="late_ranks"
    )
    report = Report("ddp", run(ranks, ASKED), (finding,))
    console = Console(width=100)
    with console.capture() as held:
        terminal.show(report, console)
    lines = [line.split() for line in held.get().splitlines()]
    which = {
        line[0]: line[1] for line in lines if line and line[0].isdigit() and line[1] in ("late", "median", "waits")
    }
    assert which == {"20": "late", "21": "late", "11": "median", **{str(rank): "waits" for rank in range(4)}}
    assert "→ Give them less." in held.get()


def shown(*findings):
    console = Console(width=100)
    with console.capture() as held:
        terminal.show(Report("ddp", results_of(2), findings), console)
    return held.get()


@pytest.mark.parametrize(
    ("findings", "advised"),
    [
        (({"recommendation": "Fuse them. Else wait."}, {"recommendation": "Sleep."}), "Fuse them."),
        (({}, {"recommendation": "Sleep."}), "Sleep."),
        (({"recommendation": "Time it first. Then think."},), "Time it."),
        (({},), None),
    ],
    ids=["a sentence of the first", "the first that advises", "first is said once", "none"],
)
def test_what_to_do_first_is_said_as_on_the_page(findings, advised):
    text = shown(*(Finding("high", f"{place}.", **said) for place, said in enumerate(findings)))
    assert ("What to do first" in text) == (advised is not None)
    assert advised is None or f"What to do first: {advised}\n" in text
