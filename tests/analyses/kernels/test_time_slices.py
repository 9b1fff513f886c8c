"""Kernels of any name that now and then take longer by one and the same time."""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import traceanalyzer as ta
from tests.simulator import Capture, capture, kineto, run
from tests.simulator.faults import Fault
from tests.simulator.jobs import gpus
from traceanalyzer.analyses.kernels.time_slices import per_rank, taken_of
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.analyses.operators.same_work import same_work
from traceanalyzer.selection import Selection, select

US = 1_000
SLICES = dict.fromkeys((3, 17, 40, 58, 77, 99), 2500)


def taken(longer_us, *, names=12, works=12, usual_us=50, step=None):
    """By how much each of 120 kernels of as long is longer; `longer_us` by position."""
    places = np.arange(120)
    spent = usual_us + np.array([longer_us.get(place, 0) for place in places])
    ops = pd.DataFrame({"start_ns": places * 5_000 * US, "end_ns": (places * 5_000 + spent) * US})
    ops["name"] = pd.Categorical([f"kernel_{place % names}" for place in places])
    steps, work = np.zeros(120, dtype=np.int64) if step is None else step, places % works if works else places * 0 - 1
    return {int(place): int(ns) // US for place, ns in enumerate(taken_of(ops, places, steps, work)) if ns}


def test_what_slices_take_is_what_kernels_take_beyond_their_median():
    uneven = {place: ns + 10 * place for place, ns in SLICES.items()}
    assert taken(uneven) == uneven


@pytest.mark.parametrize(
    "longer_us",
    [
        dict(list(SLICES.items())[:4]),  # too few
        dict.fromkeys((0, 12, 24, 36, 48), 2500),  # of one name: its data ask for more
        {place: 400 * (number + 1) for number, place in enumerate(SLICES)},  # each by another time
        dict.fromkeys(SLICES, 250),  # less than a slice
        {place: 2_500 for place in range(120) if place % 12 < 4},  # all of some names: slow kernels
    ],
)
def test_kernels_that_are_longer_by_themselves_are_none(longer_us):
    assert taken(longer_us) == {}


def test_kernels_that_do_other_work_are_none_of_those_that_it_is_held_against():
    assert taken(dict.fromkeys(range(0, 120, 4), 2500), names=3, works=1) != {}
    assert taken(dict.fromkeys(range(0, 120, 4), 2500), names=3, works=4) == {}


def test_kernels_whose_work_is_not_known_are_held_against_none():
    assert taken(SLICES, works=0) == {}


@pytest.mark.parametrize(("others", "is_told"), [(0, True), (3, True), (4, False)])
def test_of_a_step_most_of_whose_kernels_are_longer_none_is_a_slice(others, is_told):
    """Kernels of one grid whose step has a larger batch; short ones are longer, too, by less than a slice."""
    longer = dict.fromkeys(range(6), 2500) | dict.fromkeys(range(6, 6 + others), 30)
    step = np.where(np.arange(120) < 19, 0, 1)
    if others == 4:
        step = np.where(np.arange(120) < 18, 0, 1)
    assert bool(taken(longer, step=step)) is is_told
    assert taken(longer) == dict.fromkeys(range(6), 2500), "without steps"


def test_of_long_kernels_a_quarter_is_no_slice():
    assert taken(SLICES, usual_us=10_000) == {}


def test_other_steps_are_no_part_of_it():
    """Each step has fewer slices than are told; all five have more."""
    job = gpus.shared(1, 5, (Fault("slices", 2_500_000, (0,)),))
    with tempfile.TemporaryDirectory() as folder:
        kineto.write(capture(run(job), Capture()), Path(folder))
        (trace,) = ta.load(folder).ranks
    last = select(trace, Selection(steps="last"))
    found = [per_rank(one, same_work(one, OperatorTree.of(one))) for one in (trace, last)]
    assert found[0]["slices"].sum() >= 5
    assert found[1].empty
