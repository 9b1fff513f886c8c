"""What a capture cannot tell is said before advice."""

import pandas as pd
import pytest

from tests.asked import ASKED
from tests.host_builders import host_trace
from tests.simulator import Capture, workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import host_pauses, launches, lengths, links
from traceanalyzer.analyses import run
from traceanalyzer.analyses.integrity.integrity import Integrity
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings import capture, find
from traceanalyzer.findings.capture import missing_straggler, warm_up

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


def test_nobody_is_late_who_is_not_here_where_each_rank_is_last_at_times():
    """Lengths of sequences are drawn anew: for a rank without a trace others wait as for each one that has one."""
    _, results = analysed(lengths.lengths(4, 8, spread=0.6, seed=11), *_NEEDED, how=Capture(missing=(2,)))
    assert missing_straggler(**results) == []


@pytest.mark.parametrize(
    ("by_ns", "says"), [(40 * MS, "set forward by 40.0 ms"), pytest.param(0, "", marks=pytest.mark.thorough)]
)
def test_a_clock_that_is_set(by_ns, says):
    found = told(capture.clock_step, Capture(clock_step={2: (14 * MS, by_ns)}), needed=("step_needs",))
    assert [item.title for item in found if says in item.title] == [item.title for item in found]
    assert bool(found) == bool(says)


def test_ranks_that_never_meet_take_as_long_as_they_like():
    lengths = [[10, 10, 10, 10], [40, 10, 10, 10], [10, 10, 10, 10]]
    traces = []
    for rank, own in enumerate(lengths):
        ends = [MS * sum(own[: i + 1]) for i in range(len(own))]
        starts = [end - MS * length for end, length in zip(ends, own, strict=True)]
        steps = [(f"ProfilerStep#{i}", *pair) for i, pair in enumerate(zip(starts, ends, strict=True))]
        calls = [("cudaLaunchKernel", start + 10, start + 20) for start in starts]
        ops = [("gemm", start + 30, start + MS, i + 1) for i, start in enumerate(starts)]
        traces.append(host_trace(ops, calls, ranges=steps, rank=rank))
    assert capture.clock_step(**run(traces, ["step_needs"])) == []


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


def test_a_late_rank_is_no_clock():
    assert told(capture.clock_step, faults=(Fault("host", 9 * MS, (2,), (2,)),), needed=("step_needs",)) == []


def test_ranks_for_which_others_wait_in_the_next_step_have_no_clock_that_was_set():
    """Half of the ranks exchange gradients for longer, at the end of each step: the first ends apart, without a wait."""
    job = links.slow_network(steps=4, faults=(Fault("link", 4 * MS, (1, 3, 5, 7)),))
    _, results = analysed(job, "step_needs")
    assert capture.clock_step(**results) == []


def test_a_rank_that_is_late_once_in_the_first_step_is_no_warm_up():
    faults = (Fault("host", 90 * MS, (2,), (0,)),)
    assert told(warm_up, faults=faults, needed=("step_needs", "steps")) == []


@pytest.mark.parametrize(("first_ms", "is_said"), [(30, True), pytest.param(0, False, marks=pytest.mark.thorough)])
def test_a_first_step_of_many_times_the_others_is_a_warm_up(first_ms, is_said):
    faults = (Fault("host", first_ms * MS, (0, 1, 2, 3), (0,)),) if first_ms else ()
    found = told(warm_up, faults=faults, needed=("step_needs", "steps"))
    assert [item.title.startswith("Step 0 is a warm-up") for item in found] == [True] * is_said


def test_one_step_alone_is_complete():
    trace = host_trace([("gemm", 10, 20, 1)], [("cudaLaunchKernel", 1, 2)], ranges=[("ProfilerStep#0", 0, 30)])
    results = run([trace], ["headline", "steps", "iterations", "integrity", "ranks"])
    assert capture.no_complete_step(**results) == []
    assert results["headline"].rows()[0]["step_mean_ns"] == 30


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


def test_what_one_rank_does_after_the_first_step_and_again_is_no_warm_up():
    """Its own step is longer by it, the other's next one: the median over both is longest in the first."""
    faults = (Fault("gc", 20 * MS, (0,), (0,)), Fault("gc", 60 * MS, (1,), (0,)), Fault("gc", 45 * MS, (1,), (2,)))
    _, results = analysed(host_pauses.around(2, 5, faults), "step_needs", "steps")
    assert warm_up(**results) == []


def test_of_ranks_that_were_recorded_apart_no_gain_is_promised():
    """Nor of the files of two runs in one folder: what each rank needs is said all the same."""
    job = launches.slow_at_all(2, 8, kernels=40, times=1.0)
    _, results = analysed(job, *ASKED, how=Capture(end_ns={0: 5 * MS}, start_ns={1: 6 * MS}))
    found = find(results)
    assert [item.rule for item in found[:1]] == ["recorded_apart"]
    assert "host_bound" in [item.rule for item in found]
    said = [each for item in found for each in (item, *item.also)]
    assert {(each.gain_ns, each.unprofiled_gain_ns) for each in said} == {(None, None)}
    assert not [each.title for each in said if "shorter" in each.title]
    assert results["replay"].engine is None
