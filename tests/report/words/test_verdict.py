"""The verdict line and the first screen as text."""

import pandas as pd
import pytest
from rich.console import Console

from tests.asked import ASKED
from tests.builders import rank_trace
from traceanalyzer.analyses import run
from traceanalyzer.analyses.replay.critical_path import Bottleneck
from traceanalyzer.findings import Finding
from traceanalyzer.findings.savings import Saves
from traceanalyzer.meaning.vocabulary import HOST
from traceanalyzer.report import Report
from traceanalyzer.report.words import overlap, sentences, split, verdict
from traceanalyzer.report.writers import text as terminal

LATE = [("compute", 0, 20_000), ("comm", 90_000, 100_000)]
WAITING = [("compute", 0, 20_000), ("comm", 20_000, 100_000)]
SAVES = Saves(before_ns=100_000, likely_ns=70_000, low_ns=60_000, high_ns=80_000, is_unprofiled=True)


@pytest.fixture(scope="module")
def results():
    return run([rank_trace(ops, rank=rank) for rank, ops in enumerate((LATE, WAITING))], (*ASKED, "unlike_ranks"))


def path(at_most=None, **shares):
    return Bottleneck(
        pd.DataFrame({"category": [*shares], "path_pct": [*shares.values()]}).assign(
            path_ns=1,
            step_ns=100_000,
            step_least_ns=1,
            step_most_ns=1,
            unmatched_ns=0,
            is_unprofiled=True,
            is_hidden=False,
            bound_at_most=at_most,
        )
    )


@pytest.mark.parametrize(
    ("shares", "findings", "words"),
    [
        (
            {HOST.key: 60.0, "compute": 30.0},
            (),
            "CPU-bound: CPU work is 60% of the critical path · 100 µs recorded · GPU compute 20%",
        ),
        (
            {HOST.key: 60.0, "at_most": "GPU-bound"},
            (),
            ("CPU-bound or GPU-bound: CPU work is 60% of the critical path, unless the profiler costs more than estimated · "
            "100 µs recorded · GPU compute 20%"),
        ),
        ({"compute": 70.0}, (), "GPU-bound: compute is 70% of the critical path · 100 µs recorded · GPU compute 20%"),
        ({"compute": 30.0}, (), "Bottleneck unknown: GPUs are idle 35% of the time · 100 µs recorded · GPU compute 20%"),
        (
            {"comm": 70.0},
            (Finding("Straggler: rank 0 computes longer.", ranks=(0,), severity="high", saves=SAVES),),
            "Straggler: ranks wait for rank 0 · 100 µs recorded · GPU compute 20%",
        ),
        (
            {"comm": 70.0},
            (Finding("A rank is missing.", kind="missing_data", severity="medium", is_about_capture=True),),
            ("Bottleneck unknown: communication, or waiting for ranks, is 70% of the critical path · 100 µs recorded · "
            "GPU compute 20%"),
        ),
        (
            {"comm": 70.0},
            (Finding("Ranks were not recorded together.", severity="high", is_about_capture=True),),
            "Inconclusive: the recording lacks what conclusions need · 100 µs recorded · GPU compute 20%",
        ),
    ],
    ids=["CPU", "CPU or GPU", "GPU", "unknown", "straggler", "missing", "inconclusive"],
)  # fmt: skip
def test_the_verdict_has_the_class_the_step_and_what_the_gpus_compute(results, shares, findings, words):
    report = Report("x", {**results, "bottleneck": path(**shares)}, findings)
    assert verdict(report, split(results)).words == words


def test_the_verdict_has_the_step_that_savings_are_of(results):
    bound = Bottleneck(path(compute=70.0).table.assign(step_ns=80_000))
    words = verdict(Report("x", {**results, "bottleneck": bound}), split(results)).words
    assert " · 100 µs recorded (about 80 µs without the profiler) · " in words


def test_cpus_that_only_keep_up_with_busy_gpus_bound_nothing():
    ops = [("compute", 100_000 * number, 100_000 * number + 90_000) for number in range(10)]
    busy = run([rank_trace(ops)], ASKED)
    bound = path(**{HOST.key: 95.0, "compute": 5.0}).table.assign(is_hidden=True, step_ns=990_000)
    report = Report("x", {**busy, "bottleneck": Bottleneck(bound)})
    assert verdict(report, split(busy)).words == "GPU-bound: GPUs compute 91% of the time · 990 µs recorded"


def test_the_first_screen_as_text(results):
    nothing = Saves(before_ns=100_000, likely_ns=0, low_ns=0, high_ns=0, is_unprofiled=True)
    findings = (
        Finding("Rank 0 is a straggler.", "It computes longer.", "Balance it.", severity="high", saves=SAVES),
        Finding("A fact."),
        Finding("Rank 2 has no trace.", severity="medium", is_about_capture=True),
        Finding("Copies.", kind="exposed_copies", saves=nothing),
    )
    report = Report("x", {**results, "bottleneck": path(comm=70.0)}, findings)
    assert sentences(report, split(results)) == [
        "Communication-bound: exposed communication is 70% of the critical path · 100 µs recorded · GPU compute 20%.",
        ("Rank 0 is a straggler. It computes longer. Balance it. Saves about 70 µs/step (100 → 30 µs, 70%)."),
        "Also seen: A fact.",
        "Checked, nothing to gain: exposed copies.",
        "Rank 2 has no trace. Data quality: communication without arguments, operations without launch.",
    ]


def test_a_terminal_shows_the_verdict_first(results):
    console = Console(width=200)
    with console.capture() as held:
        terminal.show(Report("x", {**results, "bottleneck": path(comm=70.0)}), console)
    assert held.get().splitlines()[1].startswith("Communication-bound: exposed communication is 70% of")


@pytest.mark.parametrize(
    ("is_unprofiled", "start"), [(True, "Savings are of the step without"), (False, "Savings overlap")]
)
def test_savings_of_a_profiled_step_are_not_called_unprofiled(is_unprofiled, start):
    saves = Saves(before_ns=100, likely_ns=20, low_ns=20, high_ns=20, is_unprofiled=is_unprofiled)
    cards = [Finding(name, severity="high", saves=saves) for name in ("one", "two")]
    assert overlap(cards).startswith(start)
    assert not overlap(cards[:1])
