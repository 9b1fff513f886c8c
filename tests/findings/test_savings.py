"""What changes save, as an interval over the corners of what is unknown."""

import pytest

from tests.asked import ASKED
from tests.simulator import kineto
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture, capture
from tests.simulator.engine import run as simulated
from tests.simulator.faults import Fault
from traceanalyzer import load
from traceanalyzer.analyses import run as analysed
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.findings.savings import Question, saved_ns, savings_of

MS = 1_000_000
LATE = (Change("rank", "peers", frozenset({1})),)


def engine_of(folder, **fault):
    job = usual.ddp(ranks=2, steps=5, faults=(Fault("host", 4 * MS, (1,), **fault),))
    kineto.write(capture(simulated(job), Capture()), folder)
    return analysed(load(folder).ranks, ASKED)["replay"].engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """Two ranks, one of which stays 4 ms longer on its CPU in each step."""
    return engine_of(tmp_path_factory.mktemp("traces"))


def test_the_interval_spans_every_corner(engine):
    (saves,) = savings_of(engine, [Question(LATE)])
    corners = [engine.steps([cost, (*LATE, *cost, *gone)]).mean(axis=0)
               for cost in engine.costs for gone in ((), (Change("delays"),))]  # fmt: skip
    assert all(saves.low_ns <= before - after <= saves.high_ns for before, after in corners)
    assert saves.low_ns <= saves.likely_ns == saved_ns(engine, LATE) <= saves.high_ns
    assert abs(saves.likely_ns - 4 * MS) < 0.5 * MS


def test_all_findings_speak_of_the_same_step(engine):
    questions = [Question(LATE), Question((Change("comm"),), half_of="this"), Question((Change("cpu"),))]
    every = savings_of(engine, questions)
    assert len({saves.before_ns for saves in every}) == 1
    assert every == [savings_of(engine, [question])[0] for question in questions]


def test_half_of_an_ideal_is_supposed(engine):
    whole, half = savings_of(engine, [Question((Change("compute"),)), Question((Change("compute"),), half_of="this")])
    assert half.likely_ns < half.high_ns <= whole.high_ns, "nothing takes away more than all of it"
    assert half.low_ns < whole.low_ns


def test_what_acts_in_one_step_of_several_may_not_recur(tmp_path):
    once = engine_of(tmp_path, steps=(3,))
    (saves,) = savings_of(once, [Question(LATE)])
    assert saves.severity == "info"
    assert 0 < saves.likely_ns < saves.high_ns
    assert (saves.limit, saves.remedy) == ("steps save different amounts", "Record more steps")


def test_waits_for_unknown_partners_widen_the_interval(tmp_path):
    job = usual.ddp(ranks=2, steps=5, faults=(Fault("host", 4 * MS, (1,)),))
    kineto.write(capture(simulated(job), Capture()), tmp_path)
    alone = analysed(load(tmp_path, ranks=0).ranks, ASKED)["replay"].engine
    (transfers,) = savings_of(alone, [Question((Change("comm"),))])
    assert alone.unmatched_ns > 0
    assert transfers.low_ns < 0.5 * transfers.likely_ns, "most of it may be waits for rank 1"
