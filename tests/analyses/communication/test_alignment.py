"""Aligning two ranks' calls: cut ends, lost calls, clocks that differ, programs that repeat."""

from dataclasses import replace

import numpy as np
import pytest

from traceanalyzer.analyses.communication.matching import METHODS, CallList, align

MS = 1_000_000

ENDS = np.array([1, 3, 4, 8, 13, 14, 20, 22, 27, 33, 34, 40], dtype=np.int64) * MS
STEPS = np.repeat([0, 1, 2], 4)
SIZES = np.array([1, 2, 2, 2] * 3)


def calls(kept=slice(None), *, offset=0, steps=STEPS, sizes=SIZES, sequence=None, synchronises=True):
    ends = ENDS[kept] + offset
    none = np.full(len(ends), -1)
    return CallList(
        end_ns=ends,
        signature=sizes[kept],
        step=none if steps is None else steps[kept],
        sequence=none if sequence is None else sequence[kept],
        is_synchronising=np.full(len(ends), synchronises),
        near_ns=np.full(len(ends), 50_000),
    )


def without(*lost):
    return np.delete(np.arange(len(ENDS)), lost)


@pytest.mark.parametrize(
    ("left", "right", "methods"),
    [
        ({}, {}, {"step and position"}),
        ({}, {"offset": 2 * MS}, {"step and position"}),
        ({"sequence": np.arange(12)}, {"sequence": np.arange(12), "kept": without(0, 5)}, {"sequence"}),
        ({"kept": without(0)}, {}, {"step and position", "offset"}),
        ({"kept": without(0)}, {"kept": without(6, 11), "offset": 2 * MS}, {"offset"}),
        ({"steps": None, "kept": without(0, 1, 2)}, {"steps": None, "offset": -7 * MS}, {"offset"}),
        ({"steps": STEPS + 1}, {"offset": 2 * MS}, {"offset"}),
    ],
    ids=["whole", "other clock", "sequence, two lost", "front lost", "front and middle lost, other clock",
         "no steps, front cut", "steps numbered differently"],
)  # fmt: skip
def test_true_pairs_are_found(left, right, methods):
    sides = [calls(**left), calls(**right)]
    found = align(*sides)
    rows = [np.arange(12)[side.get("kept", slice(None))] for side in (left, right)]
    true = [(np.flatnonzero(rows[0] == call)[0], np.flatnonzero(rows[1] == call)[0]) for call in np.intersect1d(*rows)]
    assert list(zip(found.left, found.right, strict=True)) == true
    assert {METHODS[code] for code in found.method} == methods
    assert abs(found.offset_ns - (left.get("offset", 0) - right.get("offset", 0))) < 50_000
    assert not found.is_ambiguous


@pytest.mark.parametrize(("drift", "matched"), [(20e-6, 12), (-50e-6, 12), (0.0, 12)])
def test_clocks_of_two_hosts_may_drift(drift, matched):
    left, right = calls(), calls()
    ends = ENDS * 1000  # 40 s: at 20 µs a second the ends move by 800 µs
    left = replace(left, end_ns=ends + np.round(drift * ends).astype(np.int64) + 5 * MS)
    found = align(left, replace(right, end_ns=ends))
    assert found.left.tolist() == found.right.tolist() == list(range(matched))
    assert {METHODS[code] for code in found.method} == {"step and position"}


@pytest.mark.parametrize("seed", range(20))
def test_candidates_that_nothing_supports_are_dropped(seed):
    random = np.random.default_rng(seed)
    left = replace(calls(steps=STEPS + 7), end_ns=np.cumsum(random.integers(MS, 9 * MS, 12)))
    right = replace(calls(), end_ns=np.cumsum(random.integers(MS, 9 * MS, 12)))
    assert not len(align(left, right).left)


def test_two_ranks_that_lost_different_calls_between_the_same_neighbours():
    found = align(calls(without(5)), calls(without(6)))
    assert 5 not in found.left.tolist()
    assert len(found.left) == 10


def test_nothing_is_invented_for_other_calls():
    found = align(calls(sizes=SIZES), calls(sizes=SIZES + 10))
    assert not len(found.left)


def test_calls_that_do_not_synchronise_are_matched_by_position_only():
    whole = align(calls(synchronises=False), calls(offset=2 * MS, synchronises=False))
    assert whole.left.tolist() == whole.right.tolist() == list(range(12))
    assert whole.offset_ns is None
    cut = align(calls(without(0), synchronises=False), calls(synchronises=False))
    assert cut.left.tolist() == list(range(3, 11)), "the step that lost a call says nothing"


@pytest.mark.parametrize(
    ("early_us", "kept"),
    [
        ({5: 162, 6: 297}, slice(None)),
        # The buffer holds one message: a send ends when the receive of the one before it does.
        ({6: 6_000, 7: 2_000}, slice(None)),
        ({4: 162, 9: 900, 10: 900}, slice(None)),
        ({5: 162, 6: 297}, slice(2, None)),
    ],
    ids=["buffered", "one behind", "in two steps", "front cut"],
)
def test_sends_may_end_before_their_receives(early_us, kept):
    receives = calls(kept, sizes=np.ones(12, dtype=np.int64))
    whole = calls(sizes=np.ones(12, dtype=np.int64))
    ends = whole.end_ns.copy()
    for call, microseconds in early_us.items():
        ends[call] -= microseconds * 1000
    found = align(replace(whole, end_ns=ends, may_end_early=True), receives)
    rows = np.arange(12)[kept]
    assert (found.left == rows[found.right]).all()
    assert len(found.left) >= len(rows) - (rows[0] != 0) * 2


def test_steps_of_one_length_and_a_message_before_the_first():
    ends = np.arange(4, dtype=np.int64) * 38 * MS  # as many pairs agree on no offset as on one of a step
    sends = CallList(
        ends, np.ones(4), np.array([-1, 1, 2, 3]), np.full(4, -1), np.ones(4, dtype=bool), np.full(4, 50_000), True
    )
    receives = CallList(
        ends[1:], np.ones(3), np.array([1, 2, 3]), np.full(3, -1), np.ones(3, dtype=bool), np.full(3, 50_000)
    )
    found = align(sends, receives)
    assert list(zip(found.left, found.right, strict=True)) == [(1, 0), (2, 1), (3, 2)]
    assert found.offset_ns == 0
    assert not found.is_ambiguous
