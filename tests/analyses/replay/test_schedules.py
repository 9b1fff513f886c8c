"""Other orders of a pipeline's passes: the orders themselves, what they take, and forecasts of simulated jobs."""

import pytest

from tests.simulator.analysed import analysed
from tests.simulator.jobs.torch_schedules import job
from traceanalyzer.analyses.pipelines.orders import order_of, read_schedule
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.schedule import Cost, Outside, SchedulePlayLengths, step_ns
from traceanalyzer.errors import UsageError
from traceanalyzer.findings.what_if import answer, needed

NOTHING = Cost(0, 0, 0)


def even(ranks, chunks, *, forward=10, backward=20, outside=NOTHING, message_ns=0, host=0):
    kinds = {"F": forward, "B": backward, "I": backward / 2, "W": backward / 2}
    of_pass = {(kind, stage): Cost(ns, host, 0) for kind, ns in kinds.items() for stage in range(ranks * chunks)}
    return SchedulePlayLengths(
        of_pass, dict.fromkeys(range(ranks), Outside(outside, False)), message_ns, has_one_channel=False
    )


@pytest.mark.parametrize(
    ("name", "ranks", "microbatches", "chunks", "length"),
    [
        ("gpipe", 4, 8, 1, (8 + 3) * 30),
        ("1f1b", 4, 8, 1, (8 + 3) * 30),
        ("1f1b", 1, 3, 1, 3 * 30),
        ("interleaved", 4, 8, 2, (2 * 8 + 3) * 30),
        ("interleaved", 2, 4, 3, (3 * 4 + 1) * 30),
        # Its bubble is (S − 1)(F + I − W), here a third of 1F1B's.
        ("zero-bubble", 4, 8, 1, 8 * 30 + 3 * 10),
    ],
)
def test_even_passes_and_free_messages_give_the_known_bubbles(name, ranks, microbatches, chunks, length):
    assert step_ns(order_of(name, ranks, microbatches, chunks), even(ranks, chunks)) == length


@pytest.mark.parametrize(("text", "meant"), [("1f1b", ("1f1b", None)), ("interleaved:4", ("interleaved", 4))])
def test_schedules_are_read(text, meant):
    assert read_schedule(text) == meant


@pytest.mark.parametrize("text", ["", "dualpipe", "1f1b:2", "interleaved:1", "interleaved:x", "gpipe:0", "gpipe:999"])
def test_what_is_no_schedule_is_refused(text):
    with pytest.raises(UsageError, match="schedule"):
        Change("schedule", text)


LENGTHS = {"F": 1_000_000, "B": 2_000_000, "I": 1_000_000, "W": 1_000_000}
NAMES = {"ScheduleInterleaved1F1B": "interleaved", "ScheduleInterleavedZeroBubble": "zero-bubble"}


@pytest.fixture(scope="module")
def recorded():
    pytest.importorskip("torch")
    names = ("replay", "pipeline", "pipeline_schedule")
    return {name: analysed(job(name, 4, 8, LENGTHS), *names)[1] for name in (*NAMES, "ScheduleZBVZeroBubble")}


@pytest.mark.parametrize("before", [*NAMES, "ScheduleZBVZeroBubble"])
@pytest.mark.parametrize("after", NAMES)
def test_one_schedule_is_forecast_from_another(recorded, before, after):
    asked = [Change("schedule", NAMES[after])]
    found = answer(recorded[before], asked)
    engine = recorded[after]["replay"].engine
    (before_ns, after_ns), *_ = found.schedule.steps_ns
    assert after_ns == pytest.approx(engine.steps(engine.costs[:1]).mean(), rel=0.03)
    assert found.error_ns < 0.03 * before_ns
    assert needed(asked) == ("replay", "pipeline", "pipeline_schedule")
    said = f"asked:    {NAMES[after]}, 4 ranks, 2 stages a rank, 8 microbatches"
    assert any(line.strip().startswith(said) for line in found.lines())
