"""What kernels take alone, told by a rank that runs the same program on a larger batch."""

import numpy as np
import pandas as pd
import pytest

from tests.analyses.replay.test_alone import ops
from traceanalyzer.analyses.replay.alone import Alone
from traceanalyzer.analyses.replay.other_sizes import filled, larger, of_other_size

NAN = float("nan")


@pytest.mark.parametrize(
    ("shapes", "others", "factor"),
    [
        ("[[8, 1024], [1024, 64]]", "[[12, 1024], [1024, 64]]", 2 / 3),
        ("[[64, 8], [8, 64]]", "[[64, 4], [4, 64]]", 2),
        ("[[64], []]", "[[64], []]", 1),
        ("[[8, 1024]]", "[[12, 2048]]", None),
        ("[[8, 1024]]", "[[8, 1024, 2]]", None),
        ("[[8, 1024]]", "[[8, 0]]", None),
        ("[[8], []]", "[[], [8]]", None),
        ("", "", None),
    ],
)
def test_a_size_that_differs_in_one_dimension_is_so_much_larger(shapes, others, factor):
    assert larger(shapes, others) == pytest.approx(factor or NAN, nan_ok=True)


def rank(batch, times, *, waits=0):
    """Kernels of `times` four times each, one after the other; the last one beside a call on a rank that waits."""
    shapes = [f"[[{batch}, {64 * (place + 1)}]]" for place in range(len(times))]
    found, names, now = [], [], 0
    for number in range(4):
        for place, length in enumerate(times):
            is_slow = waits > 0 and place == len(times) - 1
            if is_slow:
                found.append((now, length + waits, "comm", None))
            names += [f"kernel {place}"] * (1 + is_slow)
            found.append((now, length + (waits if is_slow else 0), "compute", shapes[place]))
            now += length + waits + 1_000 * (number + 1)
    return Alone(ops(*found, names=names))


def codes(alone):
    """Kernels of the operations that compute."""
    is_compute = np.array([bool(alone.kernels[code][2]) for code in alone.code])
    return alone.code[is_compute]


@pytest.mark.parametrize(
    ("own", "others", "told"),
    [
        ((20_000, 40_000, 60_000, 80_000), (30_000, 60_000, 90_000, 120_000), 80_000),
        ((22_000, 44_000, 66_000, 80_000), (30_000, 60_000, 90_000, 120_000), 88_000),
        ((20_000, 60_000, 130_000, 80_000), (30_000, 60_000, 90_000, 120_000), NAN),
        ((2_000, 4_000, 6_000, 80_000), (3_000, 6_000, 9_000, 120_000), NAN),
    ],
    ids=["as many times as long", "on a slower GPU", "the known ones disagree", "only short ones are known"],
)
def test_a_kernel_that_always_waits_beside_a_call_is_told_by_another_size(own, others, told):
    mine, theirs = rank(8, own, waits=30_000), rank(12, others)
    assert np.isnan(mine.medians[codes(mine)[3]])
    found = of_other_size(mine, theirs, codes(mine), codes(theirs))
    assert found[codes(mine)[3]] == pytest.approx(told, nan_ok=True)


def test_what_is_known_stays_and_several_ranks_give_their_median():
    known, wanted = np.array([5.0, NAN, NAN, NAN]), np.array([True, True, True, False])
    told = [np.array([9.0, 1.0, NAN, 7.0]), np.array([9.0, 3.0, NAN, 7.0])]
    wanted &= np.isnan(known)
    assert filled(known, wanted, told).tolist() == pytest.approx([5.0, 2.0, NAN, NAN], nan_ok=True)
    assert pd.isna(known[1])
