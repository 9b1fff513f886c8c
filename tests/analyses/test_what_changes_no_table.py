"""Time moved, events in another order, ranks of other numbers: the tables stay the same."""

import random

from hypothesis import given

from tests.analyses.host import test_idle_counted as idle
from tests.analyses.kernels import test_kernels_counted as kernels
from tests.analyses.memory import test_peaks_counted as peaks
from tests.analyses.operators import test_operators_counted as operators
from tests.analyses.random_events import RANKS, kineto_events, read
from tests.analyses.streams import test_copies_counted as copies
from tests.conftest import examples

HOUR_NS = 3_600 * 10**9


def figures(traces, rank=0, shift_ns=0):
    peak = peaks.figures(traces, rank)
    if peak:
        peak["peak_ns"] -= shift_ns
    return [*(module.figures(traces, rank) for module in (operators, kernels, copies, idle)), peak]


@examples(3, thorough=300)
@given(RANKS, RANKS)
def test_what_changes_no_table(tmp_path_factory, one, other):
    folder = tmp_path_factory.getbasetemp()
    expected = figures([read(folder, kineto_events(one))])
    shifted = [read(folder, kineto_events(one.shifted(HOUR_NS)))]
    assert figures(shifted, shift_ns=HOUR_NS) == expected
    mixed = kineto_events(one)
    random.Random(len(mixed)).shuffle(mixed)
    if len({time for time, *_ in one.memory}) == len(one.memory):  # of one moment, the order in the file decides
        assert figures([read(folder, mixed)]) == expected
    second = figures([read(folder, kineto_events(other))])
    both = [read(folder, kineto_events(other), rank=0), read(folder, kineto_events(one), rank=7)]
    assert (figures(both, 0), figures(both, 7)) == (second, expected)
