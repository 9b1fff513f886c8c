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
