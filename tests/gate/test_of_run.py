import pytest

from tests.builders import rank_trace
from traceanalyzer import analyses
from traceanalyzer.gate import FAILED, PASSED, SKIPPED, UNKNOWN, check_run, gravest, lack_of_ranks, parse
from traceanalyzer.model import Skipped

STEPS = [(100, 120), (120, 140)]


def rank(number, idle):
    """Two complete steps of 10 ns compute, then communication of 10 − idle, then nothing."""
    ops = []
    for step in range(2):
        start = 100 + 20 * step
        ops.append(("compute", start, start + 10, start))
        if idle < 10:
            ops.append(("comm", start + 10, start + 20 - idle, start))
    return rank_trace(ops, rank=number, steps=STEPS, world_size=2)


@pytest.fixture(scope="module")
def results():
    return analyses.run([rank(0, 2), rank(1, 8)])  # idle 10% and 40%


@pytest.fixture(scope="module")
def one_rank():
    return analyses.run([rank(0, 2)])


@pytest.mark.parametrize(
    ("text", "status", "rows"),
    [
        ("idle_pct > 24", FAILED, 2), ("idle_pct > 25", PASSED, 0), ("idle_pct >= 25", FAILED, 2),
        ("idle_pct > 25 @ any rank", FAILED, 1), ("idle_pct > 25 @ all ranks", PASSED, 0), ("idle_pct > 9 @ all ranks", FAILED, 2),
        ("idle_pct > 39 @ max", FAILED, 2), ("idle_pct < 11 @ min", FAILED, 2), ("idle_pct > 40 @ any rank", PASSED, 0),
        ("step_ns == 20", FAILED, 2), ("step_ns != 20", PASSED, 0), ("step_us > 0.019", FAILED, 2), ("step_ns > 1 µs", PASSED, 0),
        ("headline.idle_ns > 9", FAILED, 2), ("breakdown.window_ns > 0", FAILED, 2),
        ("steps.window_ns > 20 @ any rank", PASSED, 0),
        ("nccl.calls[collective=all_reduce] > 1", UNKNOWN, 2),  # its calls have no arguments
    ],
)  # fmt: skip
def test_limits(results, text, status, rows):
    (outcome,) = check_run([parse(text)], results, "run")
    assert (outcome.status, len(outcome.rows)) == (status, rows), outcome
    assert gravest([outcome]) == status


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("idle_pct > 5", "idle_pct is 25% (limit 5%)"), ("idle_pct < 50 @ max", "max idle_pct is 40% (minimum 50%)"),
        ("step_us > 0.01", "step_us is 0.02 us (limit 0.01 us)"), ("step_ns == 20", "step_ns is 20 ns (must not be 20 ns)"),
        ("idle_pct > 25 @ any rank", "idle_pct is 10% to 40% (limit 25%), violated by 1 of 2"),
    ],
)  # fmt: skip
def test_a_message_has_the_figure_and_the_limit(results, text, message):
    assert check_run([parse(text)], results, "run")[0].message == message


@pytest.mark.parametrize(("text", "status"), [("overlap_pct < 50", UNKNOWN), ("overlap_pct? < 50", SKIPPED)])
def test_a_figure_that_is_not_there_fails_unless_optional(text, status):
    results = analyses.run([rank(0, 10)])
    (outcome,) = check_run([parse(text)], results, "run")
    assert outcome.status == status
    assert "not available" in outcome.message
    assert gravest([outcome]) == (UNKNOWN if status == UNKNOWN else PASSED)


def test_a_figure_that_one_rank_lacks_fails_unless_optional():
    results = analyses.run([rank(0, 10), rank(1, 2)])
    (outcome,) = check_run([parse("overlap_pct >= 0 @ any rank")], results, "run")
    assert (outcome.status, "rank 0" in outcome.message) == (UNKNOWN, True)
    undoubted = {name: result for name, result in results.items() if name != "integrity"}
    (outcome,) = check_run([parse("overlap_pct? > 50 @ any rank")], undoubted, "run")
    assert outcome.status == PASSED
    (outcome,) = check_run([parse("overlap_pct? > 50 @ any rank")], results, "run")  # `?` is of what is not there
    assert (outcome.status, "nothing in the capture is known as communication" in outcome.message) == (UNKNOWN, True)


def test_no_row_is_not_available():
    (outcome,) = check_run([parse("nccl.calls > 2")], analyses.run([rank(0, 10)]), "run")
    assert outcome.status == UNKNOWN


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("idle_pct > 25 @ any rank", UNKNOWN), ("idle_pct > 25", UNKNOWN), ("idle_pct? > 25", SKIPPED),
        ("idle_pct > 9 @ any rank", FAILED), ("idle_pct < 50 @ max", FAILED),
    ],
)  # fmt: skip
def test_a_rank_that_is_gone_passes_no_gate(one_rank, text, status):
    (outcome,) = check_run([parse(text)], one_rank, "run", lack=lack_of_ranks(one_rank["ranks"].to_frame(), None, ()))
    assert (outcome.status, "1 of 2 ranks is missing (1)" in outcome.message) == (status, True)


FILE = Skipped("rank1.json", "cut off")


@pytest.mark.parametrize(
    ("world_size", "wanted", "skipped", "lack"),
    [
        (1, None, [], None), (1, None, [FILE], None), (None, None, [], None), (2, {0}, [FILE], None),
        (2, None, [], "1 of 2 ranks is missing (1)"),
        (2, None, [FILE], "1 of 2 ranks is missing (1); skipped rank1.json: cut off"),
        (2, {0, 1}, [], "1 of 2 ranks is missing (1)"), (None, None, [FILE], "skipped rank1.json: cut off"),
    ],
)  # fmt: skip
def test_what_a_gate_does_not_see(world_size, wanted, skipped, lack):
    results = analyses.run([rank_trace([("compute", 0, 1)], world_size=world_size)], ["ranks"])
    assert lack_of_ranks(results["ranks"].to_frame(), wanted, skipped) == lack


def test_a_rank_whose_times_cannot_be_true_passes_no_gate():
    results = analyses.run([rank_trace([("compute", 0, 0), ("compute", 9, 9)])], ["ranks", "integrity"])
    ranks, integrity = (results[name].to_frame() for name in ("ranks", "integrity"))
    assert "cannot be true: operations take no time" in str(lack_of_ranks(ranks, None, (), integrity))


@pytest.mark.parametrize("text", ["exposed_comm_pct > 1", "exposed_comm_pct < 1", "breakdown.compute_ns > 0"])
def test_a_doubtful_figure_cannot_be_judged(text):
    """A rank of two without any known communication: its kernels may communicate under names that no rule knows."""
    trace = rank_trace([("compute", 0, 10, 1), ("compute", 10, 20, 2)], world_size=2)
    (outcome,) = check_run([parse(text)], analyses.run([trace]), "run")
    assert (outcome.status, "known as communication" in outcome.message) == (UNKNOWN, True)
