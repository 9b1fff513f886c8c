"""From when to when a step of the job lasts, by times that are written out."""

from dataclasses import replace

from tests.builders import rank_trace
from traceanalyzer.analyses import run

HOST_STEPS = [(0, 90), (100, 190), (200, 290), (300, 361)]


def job(ranks, *, steps=HOST_STEPS, wanted="all", is_partial=False):
    """Ranks of operations (kind, start, end, launch), and the replay of their steps."""
    traces = [rank_trace(ops, rank=rank, steps=steps, wanted=wanted) for rank, ops in enumerate(ranks)]
    if is_partial:
        traces = [replace(trace, steps=trace.steps.assign(is_partial=True)) for trace in traces]
    engine = run(traces, ["replay"])["replay"].engine
    return engine, engine.windows


def computing(*begins, lasting=50):
    """One product a step, launched 1 ns before it begins."""
    return [("compute", begin, begin + lasting, begin - 1) for begin in begins]


RANKS = [computing(10, 110, 210, 310), computing(12, 130, 205, 315)]


def test_a_step_lasts_from_when_its_last_rank_begins_it_to_when_the_last_begins_the_next():
    engine, windows = job(RANKS)
    assert windows.steps == 4
    assert windows.of_job(engine.unchanged)[:, 0].tolist() == [130, 80, 105, 50]
    assert engine.before_ns == 91
    assert windows.lengths(engine.unchanged)[:, 0].tolist() == [110, 100, 100, 50, 130, 75, 110, 50]


def test_steps_that_are_not_complete_on_every_rank_are_left_out():
    """Of rank 1 nothing of step 3 was recorded, so nothing of the graph ends its step 2."""
    engine, windows = job([RANKS[0], RANKS[1][:3]])
    assert windows.table["step"].tolist() == [0, 1, 0, 1]
    assert windows.of_job(engine.unchanged)[:, 0].tolist() == [118, 80]


def test_a_last_step_that_ends_on_the_cpu_is_left_out():
    engine, windows = job(RANKS, steps=[*HOST_STEPS[:3], (300, 500)])
    assert windows.table["step"].tolist() == [0, 1, 2, 0, 1, 2]
    assert windows.of_job(engine.unchanged)[:, 0].tolist() == [118, 80, 105]


def test_a_capture_without_steps_lasts_from_the_first_begin_to_the_last_end():
    engine, windows = job(RANKS, steps=())
    assert (windows.steps, windows.has_steps) == (None, False)
    assert windows.of_job(engine.unchanged)[:, 0].tolist() == [365 - 10]
    assert windows.lengths(engine.unchanged)[:, 0].tolist() == [350, 353]
