"""In which steps a rank loses most of what it loses, and which rank loses most."""

import pandas as pd
import pytest

from traceanalyzer.findings.basis import Basis
from traceanalyzer.findings.worst import Few, as_idle, by_activity, few_steps, few_steps_of, longest, worst_rank

BASIS = Basis(5, (1, 2, 3, 4, 5), pd.Series({0: 500}))

WHOLE = Basis(None, (), pd.Series({0: 500}))


def lost_in(lost, rank=0, **more):
    """Six steps of 100 ns, the last of which is as long as what is lost in it, if that is more."""
    lengths = [100] * 5 + [max(100, lost[-1])]
    begins = [sum(lengths[:place]) for place in range(6)]
    ends = [begin + length for begin, length in zip(begins, lengths, strict=True)]
    columns = {
        "rank": rank,
        "step": range(1, 7),
        "is_partial": False,
        "host_ns": lost,
        "begin_ns": begins,
        "end_ns": ends,
    }
    return pd.DataFrame(columns | more)


@pytest.mark.parametrize(
    ("lost", "steps", "mean_ns", "share_pct"),
    [
        ([4, 2, 90, 1, 3, 2], (3,), 90.0, 15.0),
        ([20, 7, 5, 1, 0, 99], (6,), 99.0, 16.5),  # the last complete step's window ends in the step after it
        ([20, 7, 5, 1, 0, 9500], (6,), 9500.0, 95.0),  # which may be longer than all others together
        ([50, 2, 3, 60, 2, 1], (1, 4), 55.0, 110 / 6),
        ([10, 12, 9, 11, 10, 10], None, None, None),
        ([50, 2, 60, 2, 55, 1], None, None, None),  # half of them
        ([50, 10, 10, 10, 10, 10], None, None, None),  # 40 more than usual, of 100
        ([80, 10, 10, 0, 0, 10], (1,), 80.0, 80 / 6),  # 75 more of 110
    ],
)
def test_few_steps_hold_most_of_it(lost, steps, mean_ns, share_pct):
    found = few_steps(_Sized(lost_in(lost)), BASIS, 0, "host_ns")
    assert (found and (found.steps, found.mean_ns)) == (steps and (steps, mean_ns))
    assert (found and found.share_pct) == (share_pct if share_pct is None else pytest.approx(share_pct))


@pytest.mark.parametrize(
    ("beside", "basis", "steps"),
    [
        (lost_in([90, 90, 0, 90, 90, 90], rank=1), BASIS, (3,)),
        (lost_in([90, 90, 0, 90, 90, 90], is_partial=True), BASIS, (3,)),
        (lost_in([90] * 6, step=range(7, 13)), BASIS, (3,)),
        (lost_in([0] * 6, rank=1), WHOLE, None),
    ],
    ids=["another rank", "partial", "not compared", "a whole capture"],
)
def test_they_are_of_the_ranks_whole_steps_that_are_compared(beside, basis, steps):
    found = few_steps(_Sized(pd.concat([lost_in([4, 2, 90, 1, 3, 2]), beside])), basis, 0, "host_ns")
    assert (found and found.steps) == steps


@pytest.mark.parametrize(("cost_ns", "is_told"), [(9.0, True), (8.9, False)])
def test_they_are_told_where_half_of_what_they_hold_is_the_cost_of_a_mean_step(cost_ns, is_told):
    found = few_steps_of(_Sized(lost_in([4, 2, 90, 1, 3, 2])), BASIS, 0, "host_ns", cost_ns)
    assert (found is not None) is is_told
    assert few_steps_of(_Sized(lost_in([10] * 6)), BASIS, 0, "host_ns", 500) is None


def test_steps_in_words():
    one, two = Few((3,), 90e6, 1e9), Few((1, 4), 55e6, 500e6)
    assert (one.words, one.mostly, one.cost) == ("In step 3", "Mostly in step 3", "90 ms")
    assert (two.words, two.cost, two.share_pct) == ("In steps 1 and 4", "55 ms a step", 22)


@pytest.mark.parametrize(
    ("lost", "windows", "least_pct", "expected"),
    [
        ([10, 30, 20], [100, 100, 100], 30, (1, 30, 30)),
        ([10, 30, 20], [100, 100, 100], 30.1, None),
        ([10, 30, 20], [100, 400, 100], 7.5, (1, 30, 7.5)),  # by time, not by share
        ([0, 0, 0], [0, 0, 0], 1, None),
        ([], [], 0, None),
    ],
)
def test_the_worst_rank_is_the_one_that_loses_most_time(lost, windows, least_pct, expected):
    table = pd.DataFrame({"rank": range(len(lost)), "host_ns": lost, "window_ns": windows})
    headline = _Sized(table.assign(steps=pd.array([pd.NA] * len(lost), dtype="Int64")))
    idle = _Sized(pd.concat([table.assign(step=pd.NA), table.assign(step=0, host_ns=999)]))
    found = worst_rank(headline, _Sized(pd.DataFrame()), idle, "host_ns", least_pct)
    assert (found and found[:3]) == expected
    assert worst_rank(headline, _Sized(pd.DataFrame()), _Sized(table[:0]), "host_ns", least_pct) is None


def test_as_idle_is_who_loses_as_large_a_part_of_its_time():
    mean = pd.DataFrame({"host_ns": [10, 30, 20], "window_ns": [100, 400, 100]})
    assert as_idle(mean, "host_ns", 10).tolist() == [True, False, True]


GAPS = pd.DataFrame(
    [("item", 5, 100), ("empty_cache", 70, 200), ("item", 80, 300), ("load", 1, 900)],
    columns=["doing", "length_ns", "start_ns"],
).assign(end_ns=lambda gaps: gaps["start_ns"] + gaps["length_ns"])


def test_what_the_host_did_for_longest_is_told_of_a_mean_step():
    assert by_activity(GAPS, BASIS, most=2) == (
        {"doing": "item", "gaps_per_step": 0.4, "length_per_step_ns": 17},
        {"doing": "empty_cache", "gaps_per_step": 0.2, "length_per_step_ns": 14},
    )
    assert by_activity(GAPS, WHOLE, most=1) == ({"doing": "item", "gaps": 2, "length_ns": 85},)


def test_the_longest_gap_is_where_to_look():
    assert longest(GAPS) == (300, 380)
    assert longest(GAPS[:0]) is None


class _Sized:
    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)
