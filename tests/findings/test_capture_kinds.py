"""What findings say about a capture that lacks something."""

from dataclasses import replace

import pytest

from tests.asked import ASKED
from tests.builders import document, kernel, write
from tests.findings.of_job import said
from tests.simulator import kineto
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture, capture
from tests.simulator.engine import run as simulated
from tests.simulator.faults import Fault
from tests.simulator.program import Program
from tests.simulator.workloads import job_of
from traceanalyzer import load
from traceanalyzer.analyses import run as analysed
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.findings import find
from traceanalyzer.findings.conclude import believable
from traceanalyzer.findings.finding import Finding

MS = 1_000_000


def results_of(folder, how, ranks=4, steps=4, faults=(), **options):
    kineto.write(capture(simulated(usual.ddp(ranks=ranks, steps=steps, faults=faults, **options)), how), folder)
    return analysed(load(folder).ranks, ASKED)


def about_capture(results):
    return [item for item in find(results) if item.is_about_capture]


@pytest.mark.parametrize(
    ("how", "options", "kind", "severity", "words"),
    [
        ({}, {}, None, None, None),
        (
            {"missing": (2,)},
            {"ranks": 4, "faults": (Fault("compute", 3 * MS, (2,)),)},
            "missing_data",
            "medium",
            (
                "No trace of rank 2: 3.14 ms/step of communication is unattributed. The others may wait for a rank that "
                "is missing. Put the traces of all ranks into one folder."
            ),
        ),
        (
            {"cut": {2: 0.6}},
            {},
            "missing_data",
            "medium",
            (
                "Trace cut off: rank 2. What the profiler wrote last, mostly GPU work, is missing. Record again, and let "
                "the profiler finish its export."
            ),
        ),
        (
            {"end_ns": {0: 35 * MS}, "start_ns": {1: 45 * MS}},
            {"ranks": 2, "steps": 10},
            "missing_data",
            "high",
            (
                "Ranks were not recorded together: their traces share no time. No rank's communication calls match another "
                "rank's. Record the same steps on every rank, and analyze the traces of one job at a time."
            ),
        ),
        (
            {"clock_step": {3: (14 * MS, 40 * MS)}},
            {"ranks": 8, "steps": 6},
            "usable_steps",
            "medium",
            (
                "Rank 3's clock jumps by 40.0 ms in step 2. No other rank's step is longer, and no rank waits. Leave the "
                "step out (--steps); record without a time service that sets the host's clock."
            ),
        ),
    ],
)
def test_what_a_capture_lacks(tmp_path, how, options, kind, severity, words):
    found = about_capture(results_of(tmp_path, Capture(**how), **options))
    if kind is None:
        assert found == []
        return
    assert (found[0].kind, found[0].severity, found[0].text) == (kind, severity, words)


def test_a_capture_whose_copies_fill_it_allows_conclusions():
    def step(program: Program, _: int) -> None:
        program.copy("HtoD", 1 << 20, MS)

    assert said(job_of(1, 3, step, (), ()), "missing_data") == []


def test_a_capture_of_memsets_alone_allows_no_conclusion(tmp_path):
    write(tmp_path / "rank0.json", document([kernel(0, 100, name="Memset (Device)", cat="gpu_memset")], rank=0))
    (one,) = about_capture(analysed(load(tmp_path).ranks, ASKED))
    assert (one.headline, one.severity) == ("No kernels were recorded, only copies and memsets.", "high")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return results_of(tmp_path_factory.mktemp("traces"), Capture(cut={2: 0.6}))


def test_what_may_be_concluded(results):
    late = [Finding("late", ranks=(rank,), changes=(Change("rank", "peers", frozenset({rank})),)) for rank in (1, 2)]
    caveat = Finding("Ranks are missing.", is_about_capture=True, severity="medium")
    first, kept = believable([caveat, *late], results)
    assert (first, kept.ranks, kept.caveat) == (caveat, (1,), "Upper bound: Ranks are missing.")
    _, fact = believable([replace(caveat, severity="high"), late[0]], results)
    assert fact.changes == ()
