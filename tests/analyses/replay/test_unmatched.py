"""How long calls last of which nobody knows for how long they wait."""

import dataclasses

import pytest

from tests.builders import rank_trace
from tests.simulator import Capture, scenarios
from tests.simulator.analysed import analysed
from traceanalyzer.analyses import run


def of_truth(truth, present, steps):
    """Of the ranks that are recorded, what follows in each call once the last of them has come: a rank and step."""
    total = 0
    for rank in present:
        begins = [event.start_ns for event in truth.host[rank] if event.name.startswith("ProfilerStep#")]
        for number, call in enumerate(truth.calls[rank]):
            if begins[steps[0]] <= call.op.launch_start_ns < begins[steps[-1] + 1]:
                last_ns = max(truth.calls[other][number].op.start_ns for other in present)
                total += call.op.end_ns - last_ns
    return total // (len(present) * len(steps))


@pytest.mark.parametrize("missing", [(), (2,)], ids=["all are here", "one is missing"])
def test_where_a_rank_is_missing_it_is_what_follows_the_last_of_the_others(missing):
    job = dataclasses.replace(scenarios.ddp(3, steps=4, slow_compute_ns={2: 500_000}), jitter=0.0, end_jitter_ns=0)
    truth, results = analysed(job, "replay", how=Capture(missing=missing))
    expected = of_truth(truth, (0, 1), (0, 1, 2)) if missing else 0
    assert results["replay"].engine.unmatched_ns == expected


def test_of_calls_in_no_instance_it_is_all_of_them():
    """Two calls of 30 and 10 ns of a rank that nobody answers."""
    trace = rank_trace([("comm", 5, 35, 0), ("compute", 35, 50, 1), ("comm", 50, 60, 2)])
    assert run([trace], ["replay"])["replay"].engine.unmatched_ns == 40
