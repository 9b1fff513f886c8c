"""Kernels of any name that now and then take longer by one and the same time."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.kernels.time_slices import delayed_by_slices, taken_of

US = 1_000


def taken(longer_us, *, names=12, works=12, usual_us=50, step=None):
    """By how much each of 120 kernels of as long is longer; `longer_us` by position."""
    places = np.arange(120)
    spent = usual_us + np.array([longer_us.get(place, 0) for place in places])
    ops = pd.DataFrame({"start_ns": places * 5_000 * US, "end_ns": (places * 5_000 + spent) * US})
    ops["name"] = pd.Categorical([f"kernel_{place % names}" for place in places])
    steps, work = np.zeros(120, dtype=np.int64) if step is None else step, places % works if works else places * 0 - 1
    return {int(place): int(ns) // US for place, ns in enumerate(taken_of(ops, places, steps, work)) if ns}


def test_kernels_that_do_other_work_are_none_of_those_that_it_is_held_against():
    assert taken(dict.fromkeys(range(0, 120, 4), 2500), names=3, works=1) != {}
    assert taken(dict.fromkeys(range(0, 120, 4), 2500), names=3, works=4) == {}


def delayed(delays_us, names=4):
    """Which operations of several names start later by a slice, by position."""
    places = np.arange(len(delays_us))
    return np.flatnonzero(delayed_by_slices(np.array(delays_us) * US, places % names)).tolist()


def test_operations_of_any_kind_that_start_later_by_one_time():
    assert delayed([0, 2_200, 5, 2_300, 0, 2_390, 2_150, 8, 2_280]) == [1, 3, 5, 6, 8]
    assert delayed([0, 2_200, 5, 2_300, 0, 2_390, 2_150, 8, 2_280], names=2) == []
    assert delayed([0, 2_200, 700, 1_300, 0, 2_390, 400, 8, 2_280]) == []


def test_a_clock_that_is_off_delays_all_alike():
    assert delayed([2_200, 2_205, 2_210, 2_201, 2_207, 2_203]) == []
