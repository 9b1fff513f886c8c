"""Kernels of any name that now and then take longer by one and the same time."""

import numpy as np
import pandas as pd

from traceanalyzer.analyses.kernels import taken_of

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
