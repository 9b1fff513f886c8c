"""What a capture cannot tell is said before advice."""

import pandas as pd
import pytest
from traceanalyzer.findings.capture import missing_straggler, warm_up

from tests.host_builders import host_trace
from tests.simulator import Capture, workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from traceanalyzer.analyses import run
from traceanalyzer.analyses.integrity.integrity import Integrity
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings import capture

MS = 1_000_000

_NEEDED = ("headline", "steps", "calls", "call_waits", "exposed_calls", "ranks", "integrity")


class CallTable:
    """A Result of these rows."""

    def __init__(self, rows):
        self.table = pd.DataFrame(rows)

    def to_frame(self):
        return self.table


def told(rule, how=None, faults=(), needed=()):
    _, results = analysed(workloads.ddp(4, 5, faults), *needed, how=how)
    return rule(**results)


@pytest.mark.parametrize(
    ("missing", "late_ns", "is_said"),
    [((3,), 3 * MS, True), ((3,), 0, False), pytest.param((), 3 * MS, False, marks=pytest.mark.thorough)],
)
def test_all_wait_for_a_rank_that_is_not_here(missing, late_ns, is_said):
    faults = (Fault("compute", late_ns, (3,)),) if late_ns else ()
    found = told(
        missing_straggler,
        Capture(missing=missing),
        faults,
        _NEEDED,
    )
    assert bool(found) == is_said
    assert all("for a rank that is not here (rank 3 has no trace)" in item.title for item in found)


@pytest.mark.parametrize(
    ("by_ns", "says"), [(40 * MS, "set forward by 40.0 ms"), pytest.param(0, "", marks=pytest.mark.thorough)]
)
def test_a_clock_that_is_set(by_ns, says):
    found = told(capture.clock_step, Capture(clock_step={2: (14 * MS, by_ns)}), needed=("step_needs",))
    assert [item.title for item in found if says in item.title] == [item.title for item in found]
    assert bool(found) == bool(says)


def integrity(*checks):
    names = ("rank", "check", "severity", "count", "total")
    rows = [dict(zip(names, own, strict=False)) for own in checks if own]
    return Integrity(pd.DataFrame(rows, columns=list(Integrity.columns)))


@pytest.mark.parametrize(
    ("is_cut", "lost", "is_said"),
    [
        (False, None, True),
        (True, None, False),
        (False, (1, "lost_amid_others", "low", 3), False),
        (False, (0, "lost_amid_others", "low", 3), True),
    ],
)
def test_a_rank_without_collectives_hangs_unless_its_file_lacks_operations(is_cut, lost, is_said):
    calls = CallTable([{"rank": 0, "group_ranks": "0,1"}])
    ranks = Ranks(pd.DataFrame({"rank": [0, 1], "truncated": [False, is_cut]}))
    found = capture.silent_rank(calls, ranks, integrity(lost))
    assert [item.title.partition(" while")[0] for item in found] == ["Rank 1 launches no collective"] * is_said


@pytest.mark.parametrize(("first_ms", "is_said"), [(30, True), pytest.param(0, False, marks=pytest.mark.thorough)])
def test_a_first_step_of_many_times_the_others_is_a_warm_up(first_ms, is_said):
    faults = (Fault("host", first_ms * MS, (0, 1, 2, 3), (0,)),) if first_ms else ()
    found = told(warm_up, faults=faults, needed=("step_needs", "steps"))
    assert [item.title.startswith("Step 0 is a warm-up") for item in found] == [True] * is_said


@pytest.mark.parametrize(("numbers", "is_told"), [((1, 2, 3), False), ((-1, -1, -1), True)], ids=["launched", "not"])
def test_why_none_of_many_steps_is_complete(numbers, is_told):
    ranges = [(f"ProfilerStep#{step}", 100 * step, 100 * step + 90) for step in range(3)]
    calls = [("cudaLaunchKernel", 100 * step + 1, 100 * step + 2) for step in range(3)]
    ops = [("gemm", 100 * step + 10, 100 * step + 20, number) for step, number in enumerate(numbers)]
    results = run([host_trace(ops, calls, ranges=ranges)], ["headline", "steps", "iterations", "integrity", "ranks"])
    found = capture.no_complete_step(**results)
    assert bool(found) is is_told
    for item in found:
        assert "(3 recorded, and no operation says which call launched it)" in item.title
        assert "correlation" in item.recommendation  # the calls are here
        assert "Record" not in item.recommendation
