"""Who is late, when, by what, and what mending it gains: the sentences."""

import pandas as pd
import pytest

from tests import once
from tests.findings.needed import needed_by
from tests.simulator import scenarios, workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from traceanalyzer.analyses.blame.episode_rows import cause_of
from traceanalyzer.analyses.blame.episodes import WORTH_PCT
from traceanalyzer.analyses.blame.step_parts import OWN_PARTS
from traceanalyzer.analyses.blame.transfers import TRANSFER
from traceanalyzer.analyses.host.host_work import HostWork
from traceanalyzer.findings.late import late_advice, late_hosts, late_words
from traceanalyzer.findings.late.late_words import late
from traceanalyzer.findings.late.lateness import is_said, late_ranks
from traceanalyzer.findings.late.when import Recorded, when
from traceanalyzer.meaning.vocabulary import UNKNOWN

MS = 1_000_000
NEEDED = needed_by(late_ranks)


def test_each_cause_has_its_words_and_advice_and_no_other_has():
    causes = {cause_of(part) for part in (*OWN_PARTS, TRANSFER)}
    assert {*late_advice.ADVICE} == causes
    assert {*late_words._VERBS} == causes - {UNKNOWN.key}
    assert {*late_words._OF_PARTS} <= causes


@pytest.mark.parametrize(
    ("own_ns", "says"),
    [(24_300_000, "needs 29 ms a step longer than rank 0, most of it waiting for data:"),
     (28_900_000, "waits for its data 29 ms a step longer than rank 0:")],
)  # fmt: skip
def test_what_is_beside_the_part_is_not_said_to_be_of_it(own_ns, says):
    row = {"ranks": "1", "place": None, "numbers": "2,3", "most_numbers": None, "is_in_every_step": True, "is_in_turn": False,
           "cause": "data", "name": None, "own_ns": own_ns, "peers_ns": 0, "excess_ns": 29_000_000,
           "waiting_ranks": 1, "most_waiting_rank": 0, "same_work_ratio": None, "gain_is_of_capture": False}  # fmt: skip
    assert says in late(row, Recorded((1, 2, 3), None))


def said(job):
    _, results = analysed(job, *NEEDED)
    return late_ranks(**results)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        (
            "ddp_straggler",
            (
                "Rank 1 computes 75.6 ms a step, rank 0 18.4 ms, most of it aten::mm of [8192, 8192] × [8192, 8192]: rank 0 "
                "waits 56.4 ms a step for it inside all-reduce. Mended, a mean step is 19.7 ms shorter (an estimated 45.0 ms shorter without the profiler)."
            ),
        ),
        (
            "moe",
            (
                "Rank 0 computes 6.38 ms a step, rank 1 2.84 ms, most of it aten::mm: rank 1 "
                "waits 3.54 ms a step for it inside all-to-all. Mended, a mean step is 2.08 ms shorter."
            ),
        ),
    ],
)
def test_who_is_late_and_what_mending_it_gains(name, title):
    (found,) = late_ranks(**once.results(name, NEEDED))
    assert found.title == title
    assert found.severity == "high"
    assert found.recommendation
    assert not found.gain_is_bound
    assert {row["rank"] for row in found.evidence} == {0, 1}


def test_no_one_of_two_hosts_is_blamed_for_what_two_hosts_differ_by():
    """Rank 0's needs 1.58 times as long as rank 1's; of a hundred healthy jobs one has two that differ by 1.73."""
    assert not late_ranks(**once.results("ddp", NEEDED))


LATE_HOST = {"cause": "host", "name": None, "ranks": "1", "is_in_every_step": True, "own_host_ns": 50 * MS,
             "peers_host_ns": 10 * MS}  # fmt: skip


def work(rank, name, host_ns, launches=0, what="operator"):
    return {"rank": rank, "role": "main", "what": what, "name": name, "threads": 1, "calls": 4, "launches": launches,
            "host_ns": 2 * host_ns, "idle_ns": 0, "seen_ns": host_ns, "steps": 2, "input_bytes": None}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "row", "named"),
    [
        ([work(1, "aten::sort", 15 * MS), work(1, "autograd::engine::evaluate_function: NllLossBackward0", 9 * MS)], {},
         {"aten::sort": 15 * MS, "NllLossBackward0": 9 * MS}),
        ([work(1, "aten::sort", 24 * MS), work(1, "aten::cat", MS)], {}, {"aten::sort": 24 * MS}),
        ([work(1, "aten::sort", 15 * MS)], {}, {}),
        ([work(1, "aten::sort", 24 * MS, launches=4)], {}, {}),
        ([work(1, "data", 24 * MS, what="range")], {}, {}),
        ([work(1, "aten::sort", 24 * MS), work(0, "aten::sort", 20 * MS)], {}, {}),
        ([work(1, "aten::sort", 24 * MS), work(0, "aten::sort", MS)], {}, {"aten::sort": 24 * MS}),
        ([work(1, "aten::sort", 24 * MS)], {"is_in_every_step": False}, {}),
        ([work(1, "aten::sort", 24 * MS)], {"name": "logging"}, {}),
        ([work(1, "aten::sort", 24 * MS)], {"ranks": "1,2"}, {}),
    ],
    ids=["two", "small", "less than half", "of the GPU", "range", "all ranks", "less of others", "some steps", "named",
         "two ranks"],
)  # fmt: skip
def test_operators_that_one_cpu_alone_runs_are_why_its_host_is_late(rows, row, named):
    table = pd.DataFrame(rows).astype({"input_bytes": "Int64", "steps": "Int64"})
    assert late_hosts.computed({**LATE_HOST, **row}, HostWork(table)) == named


def test_uneven_stages_are_not_late():
    assert late_ranks(**once.results("pp", NEEDED)) == []


@pytest.mark.parametrize(
    ("steps", "begins", "severity", "has_gain"),
    [
        pytest.param(None, "Rank 2 copies for ", "high", True, marks=pytest.mark.thorough),
        pytest.param((1,), "In step 1 rank 2 copies for ", "medium", True, marks=pytest.mark.thorough),
        ((0, 1), "In steps 0 and 1 rank 2 copies for ", "high", True),
        ((4,), "In step 4, the capture's last, rank 2 copies for ", "low", False),
    ],
)
def test_lateness_of_some_steps_names_them(steps, begins, severity, has_gain):
    (found,) = said(workloads.ddp(4, 5, (Fault("copy", 3 * MS, (2,), steps),)))
    assert found.title.startswith(begins)
    assert ("Mended" in found.title) == has_gain == (found.gain_ns is not None)
    assert found.severity == severity
    assert found.steps == steps
    if steps is None or has_gain:
        assert found.gain_ns == pytest.approx(3 * MS * len(steps or range(4)) / 4, rel=0.05)


@pytest.mark.parametrize(
    ("numbers", "most", "is_of_all", "begins"),
    [
        ("0,1,2,3,4,5,6,7,8", None, False, "in 9 of 12 steps (first in step 0) "),
        ("0,1,2,3,4,5,6,7,8", "3,7", False, "in 9 of 12 steps (nine tenths of it in steps 3 and 7) "),
        ("1,3", "3", False, "in steps 1 and 3 (nine tenths of it in step 3) "),
        ("1,3", None, True, ""),
        ("1,3", "3", True, "in every step (nine tenths of it in step 3) "),
    ],
)
def test_the_few_steps_that_hold_most_of_it_are_named(numbers, most, is_of_all, begins):
    row = {"numbers": numbers, "most_numbers": most, "is_in_every_step": is_of_all, "steps": 12}
    assert when(row, Recorded(tuple(range(11)), 11)) == begins


@pytest.mark.parametrize(
    ("numbers", "gain_ns", "begins"),
    [
        ("2,4", MS, "in steps 2 and 4 (step 4 is not complete on all ranks, and in no mean) "),
        ("0,2,4", MS, "in steps 0, 2 and 4 (steps 0 and 4 are not complete on all ranks, and in no mean) "),
        ("2,4", None, "in steps 2 and 4 "),
        ("0,4", MS, "in steps 0 and 4 "),
        ("1,3", MS, "in steps 1 and 3 "),
        ("4", MS, "in step 4, the capture's last, "),
    ],
)
def test_steps_that_no_mean_holds_are_named_beside_a_gain(numbers, gain_ns, begins):
    row = {"numbers": numbers, "most_numbers": None, "is_in_every_step": False, "steps": 5, "gain_ns": gain_ns}
    assert when(row, Recorded((1, 2, 3), 4)) == begins


def test_a_little_lateness_in_most_steps_does_not_hide_where_the_time_goes():
    faults = (Fault("compute", MS // 2, (1,), (0, 1, 3, 4)), Fault("compute", 30 * MS, (1,), (2,)))
    (found,) = said(workloads.ddp(2, 6, faults))
    assert found.title.startswith("In every step (nine tenths of it in step 2) rank 1 computes ")


@pytest.mark.parametrize(("ranks", "steps"), [(4, 9), pytest.param(8, 9, marks=pytest.mark.thorough)])
def test_ranks_that_take_turns_are_one_finding(ranks, steps):
    (found,) = said(scenarios.ddp(ranks, steps, in_turn_ns=2_000_000))
    assert found.title.startswith(f"Ranks 0 to {ranks - 1} in turn, each in other steps, compute ")
    assert "most of it forward_gemm" in found.title  # no shapes: it may be unequal work
    assert found.gain_ns == pytest.approx(2 * MS, rel=0.05)


def test_two_causes_of_one_rank_are_two_episodes():
    faults = (Fault("data", 6 * MS, (1,), (1, 2)), Fault("eval", 8 * MS, (1,), (4,)))
    first, second = said(workloads.ddp(4, 7, faults))
    assert (first.cause, first.steps, second.cause, second.steps) == ("data", (1, 2), "compute", (4,))
    assert first.about == second.part_of, "one card"


@pytest.mark.parametrize(
    ("own", "others", "name", "gain", "cost", "expected"),
    [
        (120, 100, None, 10, 10, True),
        (105, 100, None, 10, 10, False),
        (105, 100, "gc.collect", 10, 10, True),
        (None, None, None, 10, 10, True),
        (120, 100, None, 0, 10, False),
        (120, 100, None, None, 10, True),
        (120, 100, None, None, 7, False),
    ],
    ids=["slower", "as slow as others", "named", "not known", "gains nothing", "gain not known", "not worth it"],
)
def test_hosts_that_need_what_others_need_are_nobodys_fault(own, others, name, gain, cost, expected):
    row = {
        "cause": "host",
        "own_host_ns": own,
        "apart_host_ns": others and 1.1 * others,
        "name": name,
        "gain_ns": gain,
        "cost_ns": cost,
        "step_ns": 200,
        "steps": 4,
    }
    row |= {
        "gain_is_of_capture": False,
        "unprofiled_gain_ns": None,
        "joint_gain_ns": None,
        "joint_unprofiled_gain_ns": None,
    }
    assert is_said(row, WORTH_PCT) == expected


def test_many_that_hide_each_other_by_the_same_are_told_by_the_latest():
    faults = tuple(
        Fault("data", ms * MS, (rank,), steps)
        for rank, ms, steps in ((0, 8, (1, 2, 3, 4)), (1, 7, (2, 3, 4)), (2, 6, (1, 3, 4, 5)))
    )
    found = said(workloads.ddp(4, 7, faults))[0]
    assert found.ranks == (0, 1, 2)
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    start = "In steps 1 and 2 rank 0 waits for its data 8.0"
    end = f", most of it {loader}; likewise ranks 1 and 2, in steps of their own, by "
    assert found.title.startswith(start)
    assert end in found.title
    assert found.recommendation.startswith(f"Load ahead on ranks 0 to 2 ({loader}): one alone gains less than half")
    assert found.recommendation.count("More workers") == 1
    two = said(workloads.ddp(4, 7, faults[:2]))[0].title
    assert "likewise" not in two, "two are told one after the other"


def test_equal_ranks_are_left_alone():
    assert said(workloads.ddp(4, 4)) == []


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("calls for GPU memory", "empty_cache"),
        ("(nothing recorded)", "record_function"),
        ("tokenize", "Take tokenize out"),
    ],
)
def test_the_advice_is_about_what_the_host_did(name, advice):
    row = {
        "ranks": "1", "set": "rank", "place": None, "is_in_turn": False, "cause": "host", "name": name, "what": "doing",
        "same_work_ratio": None,
    }  # fmt: skip
    assert advice in late_advice.advice(row)
    assert "ank 1" in late_advice.advice(row)


def test_what_only_recording_makes_late_is_not_said():
    row = {
        "cause": "host",
        "own_host_ns": 120,
        "apart_host_ns": 110,
        "name": None,
        "gain_ns": 10,
        "step_ns": 200,
        "steps": 1,
    }
    row |= {
        "gain_is_of_capture": False,
        "unprofiled_gain_ns": 0,
        "joint_gain_ns": None,
        "joint_unprofiled_gain_ns": None,
    }
    assert not is_said(row, WORTH_PCT)
    assert is_said(row | {"unprofiled_gain_ns": 9}, WORTH_PCT)


def test_of_graded_loads_the_rank_that_has_most_is_named_and_what_even_ones_gain():
    faults = (Fault("compute", 1 * MS, (1,)), Fault("compute", 3 * MS, (2,)), Fault("compute", 5 * MS, (3,)))
    (found,) = said(workloads.ddp(4, 4, faults))
    assert found.worst_rank == 3
    assert "; rank 3 most, " in found.title
    assert "Dealt out evenly over all ranks, a mean step is about 2." in found.recommendation


def test_the_worst_of_some_ranks_is_a_whole_number_beside_ranks_that_have_none():
    more = (Fault("compute", 5 * MS, (3,)), Fault("compute", 3 * MS, (2,)), Fault("data", 7 * MS, (0,), (1,)))
    _, results = analysed(workloads.ddp(4, 4, more), *NEEDED)
    assert sorted(map(str, results["episodes"].table["worst_rank"])) == ["3", "<NA>"]


@pytest.mark.parametrize(
    ("steps", "all_ms", "waits"),
    [
        ("", None, "17 ms for it inside all-reduce"),
        ("0", 17, "17 ms for it inside all-reduce"),
        ("0,1", 17.5, "17 ms a step for it inside all-reduce"),
        ("0,1", 16, "16 ms a step for it inside all-reduce"),
        ("0,1", 40, "40 ms a step inside all-reduce, 17 ms of it for this difference"),
    ],
)
def test_a_wait_is_what_its_bar_shows_at_a_rate_of_several_steps(steps, all_ms, waits):
    row = {
        "ranks": "0", "numbers": steps, "is_in_every_step": True, "gain_is_of_capture": False, "cost_ns": 17 * MS,
        "collective": "all_reduce", "is_in_turn": False, "waiting_ranks": 1, "most_waiting_rank": 1,
        "wait_ns": None if all_ms is None else all_ms * MS,
    }  # fmt: skip
    assert late_words.waited(row) == f"rank 1 waits {waits}"


@pytest.mark.parametrize(
    ("is_of_capture", "complete", "said"),
    [(False, 2, "a mean step"), (False, 1, "the step"), (False, None, "a mean step"), (True, None, "the capture")],
)
def test_a_gain_is_of_a_mean_step_of_the_only_one_or_of_the_capture(is_of_capture, complete, said):
    assert late_words.whole_of({"gain_is_of_capture": is_of_capture, "steps": 4}, complete) == said
