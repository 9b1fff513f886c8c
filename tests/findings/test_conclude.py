"""Facts become findings: what their changes save, one for each cause, in reading order."""

from dataclasses import replace

import pytest

from tests.asked import ASKED
from tests.builders import rank_trace
from tests.simulator import kineto
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture, capture
from tests.simulator.engine import run as simulated
from tests.simulator.faults import Fault
from traceanalyzer import load
from traceanalyzer.analyses import run as analysed
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.findings.conclude import merged, ordered, weighed, with_next_bottleneck
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.findings.savings import Saves

MS = 1_000_000


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Four ranks, one of which stays 4 ms longer on its CPU in each step."""
    folder = tmp_path_factory.mktemp("traces")
    job = usual.ddp(ranks=4, steps=4, faults=(Fault("host", 4 * MS, (1,)),))
    kineto.write(capture(simulated(job), Capture()), folder)
    return Run.of(analysed(load(folder).ranks, ASKED))


def test_a_change_that_saves_is_a_finding_and_a_fact_is_none(run):
    facts = [
        Finding("rank 1 is late", changes=(Change("rank", "peers", frozenset({1})),)),
        Finding("copies are slow", changes=(Change("copy", "peers"),)),
        Finding("a fact"),
    ]
    late, nothing, fact = weighed(facts, run)
    assert late.leads
    assert late.saves.low_ns <= 4 * MS <= late.saves.high_ns + 0.4 * MS
    assert nothing.is_nothing
    assert fact.saves is None
    assert [item.headline for item in ordered([nothing, fact, late])] == ["rank 1 is late", "a fact", "copies are slow"]


def test_two_changes_of_the_same_work_are_one_finding(run):
    late = Finding("rank 1 is late", changes=(Change("rank", "peers", frozenset({1})),))
    slow = Finding("rank 1's CPU is slow", changes=(Change("cpu", "peers", frozenset({1})),))
    other = Finding("transfers", changes=(Change("comm"),), half_of="this")
    first, *rest = merged(weighed([late, slow, other], run), run)
    assert {first.headline, *(sign.headline for sign in first.also)} == {late.headline, slow.headline}
    assert [item.headline for item in rest] == ["transfers"]


def test_what_a_saving_supposes_and_what_bounds_the_step_then(run):
    late, half, none = (
        Finding("rank 1 is late", changes=(Change("rank", "peers", frozenset({1})),)),
        Finding("launches", changes=(Change("cpu"),), half_of="the launch time"),
        Finding("kernels", changes=(Change("compute"),)),
    )
    late, half, none = (with_next_bottleneck(item, run).saves for item in weighed([late, half, none], run))
    assert run.results["bottleneck"].bound == "GPU-bound"
    assert late.words.endswith("if rank 1 matched its peers")
    assert half.supposing == "if half of the launch time can be removed"
    assert none.words.endswith(" ms are CPU-bound")


def test_what_happened_once_may_not_recur(run):
    late = Finding("rank 1 is late", changes=(Change("rank", "peers", frozenset({1})),))
    once = weighed([replace(late, steps=(run.steps[0],))], run)[0]
    assert once.saves.low_ns == 0
    assert once.saves.high_ns > 0
    assert not once.leads


def test_kernels_and_copies_that_share_a_stream_are_not_one_cause():
    """One after the other without a gap, they are one edge of the graph."""
    ops = [(kind, 10 * MS * at, 10 * MS * (at + 1)) for at, kind in enumerate(("compute", "copy") * 4)]
    job = Run.of(analysed([rank_trace(ops)], ASKED))
    facts = [Finding("kernels", changes=(Change("compute", 0.5),)), Finding("copies", changes=(Change("copy", 0.5),))]
    found = merged(weighed(facts, job), job)
    assert [(item.headline, item.leads, item.also) for item in found] == [("kernels", True, ()), ("copies", True, ())]


def test_the_lower_end_of_an_ideal_counts_as_it_is():
    """It supposes half already."""
    fix, ideal = (
        Finding(name, severity="high", half_of=half_of, saves=Saves(100 * MS, low, low, low, is_unprofiled=True))
        for name, half_of, low in (("fix", "", 12 * MS), ("ideal", "the launch time", 22 * MS))
    )
    assert [item.headline for item in ordered([fix, ideal])] == ["ideal", "fix"]
