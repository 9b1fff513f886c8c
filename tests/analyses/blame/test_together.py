"""Which episodes hide each other, held against jobs whose gains are worked out by hand; in ns."""

from types import SimpleNamespace

import pandas as pd
import pytest

from traceanalyzer.analyses.blame import together as asked
from traceanalyzer.analyses.replay.gain import Gain

STEP_NS = 1_000


def job_of(late, alone=(), unmatched_ns=0, error_ns=0):
    """What mending episodes gains where those `late` are so beside each other, and those `alone` after one another."""

    def gains_of(_replay, scenarios):
        found = []
        for mended in scenarios:
            left = [ns for name, ns in {**late}.items() if name not in mended]
            gain = max(late.values(), default=0) - max(left, default=0)
            gain += sum(ns for name, ns in {**dict(alone)}.items() if name in mended)
            known = STEP_NS, STEP_NS - gain, error_ns, unmatched_ns, (900, 900 - gain)
            found.append(Gain(*known))
        return found

    return gains_of


def told(monkeypatch, rows, gains_of, engine=True):
    """The columns of each episode: (set, place, then, joint, joint without the profiler), `None` of those in none."""
    table = pd.DataFrame(
        [{"changes": (name,) if name else (), "total_ns": total, "cause": "compute", "name": None, "own_host_ns": pd.NA,
          "apart_host_ns": pd.NA} | dict(*more) for name, total, *more in rows]
    )  # fmt: skip
    monkeypatch.setattr(asked, "gains_of", gains_of)
    found = asked.together(table, SimpleNamespace(engine=engine or None))[list(asked.COLUMNS)]
    return [None if row.isna().all() else tuple(None if pd.isna(each) else int(each) for each in row)
            for _, row in found.iterrows()]  # fmt: skip


@pytest.mark.parametrize(
    ("late", "alone", "expected"),
    [
        # Alone A gains 10 and B nothing; the last of them 30 and 20.
        ({"A": 30, "B": 20}, {"C": 40}, [(0, 0, 10, 30, 30), (0, 1, 20, 30, 30), None]),
        ({"B": 30, "A": 20}, {"C": 40}, [(0, 1, 20, 30, 30), (0, 0, 10, 30, 30), None]),
        ({"A": 30, "B": 20, "C": 30}, {}, [(0, 0, 0, 30, 30), (0, 2, 20, 30, 30), (0, 1, 10, 30, 30)]),
        # B gains 9 as the last one: less than a hundredth of a step.
        ({"A": 30, "B": 9}, {"C": 40}, [None, None, None]),
        ({"A": 30, "B": 10}, {"C": 40}, [(0, 0, 20, 30, 30), (0, 1, 10, 30, 30), None]),
        ({}, {"A": 30, "B": 20, "C": 40}, [None, None, None]),
    ],
    ids=["the second behind the first", "the other way", "three", "too little", "just enough", "after one another"],
)
def test_what_gains_more_once_others_are_mended_is_hidden_by_them(monkeypatch, late, alone, expected):
    rows = [(name, total) for name, total in (("A", 50), ("B", 40), ("C", 30))]
    assert told(monkeypatch, rows, job_of(late, alone)) == expected


def test_two_pairs_are_two_sets(monkeypatch):
    def gains_of(replay, scenarios):
        pairs = [job_of({"A": 30, "B": 20})(replay, scenarios), job_of({"C": 60, "D": 50})(replay, scenarios)]
        return [Gain(STEP_NS, STEP_NS - one.gain_ns - other.gain_ns, 0) for one, other in zip(*pairs, strict=True)]

    rows = [(name, total) for name, total in (("A", 50), ("B", 40), ("C", 30), ("D", 20))]
    assert told(monkeypatch, rows, gains_of) == [
        (0, 0, 10, 30, None), (0, 1, 20, 30, None), (1, 0, 10, 60, None), (1, 1, 50, 60, None),
    ]  # fmt: skip


def test_what_only_a_profiler_makes_late_hides_nobody(monkeypatch):
    """Without it A is late by 30 and B by nothing."""

    def gains_of(replay, scenarios):
        recorded, without = (job_of(late)(replay, scenarios) for late in ({"A": 30, "B": 20}, {"A": 30, "B": 0}))
        pairs = zip(recorded, without, strict=True)
        return [Gain(STEP_NS, one.after_ns, 0, 0, (STEP_NS, other.after_ns)) for one, other in pairs]

    assert told(monkeypatch, [("A", 50), ("B", 40)], gains_of) == [None, None]


EVERY_HOSTS = {"cause": "host", "own_host_ns": 9, "apart_host_ns": 10}


@pytest.mark.parametrize(
    ("rows", "gains_of", "engine", "is_told"),
    [
        ([("A", 50), ("B", 40)], job_of({"A": 30, "B": 20}), True, True),
        ([("A", 50), ("B", 40)], job_of({"A": 30, "B": 20}), False, False),
        ([("A", 50), ("B", 40)], job_of({"A": 30, "B": 20}, unmatched_ns=31), True, False),  # partners are not known
        ([("A", 50), (None, 40)], job_of({"A": 30, "B": 20}), True, False),  # no replay mends it
        ([("A", 50), ("B", 40, EVERY_HOSTS)], job_of({"A": 30, "B": 20}), True, False),
        ([("A", 50)], job_of({"A": 30, "B": 20}), True, False),
        (
            [("A", 50), *((name, 40) for name in "CDEFG"), ("B", 30)],
            job_of({"A": 30, "B": 20}),
            True,
            False,
        ),  # the seventh
        ([("A", 50), *((name, 40) for name in "CDEF"), ("B", 30)], job_of({"A": 30, "B": 20}), True, True),
    ],
    ids=["both", "no replay", "unmatched", "not replayed", "every host's", "one", "seventh", "sixth"],
)
def test_who_hides_whom_is_told_of_the_six_costliest_that_a_replay_mends(monkeypatch, rows, gains_of, engine, is_told):
    assert any(told(monkeypatch, rows, gains_of, engine)) is is_told


def test_of_a_bound_the_gain_without_the_profiler_is_not_told(monkeypatch):
    found = told(monkeypatch, [("A", 50), ("B", 40)], job_of({"A": 30, "B": 20}, error_ns=31))
    assert found == [(0, 0, 10, 30, None), (0, 1, 20, 30, None)]
