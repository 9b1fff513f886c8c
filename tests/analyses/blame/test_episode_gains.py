"""What is changed to mend an episode, and what is told of the gain, from rows that are written out."""

from types import SimpleNamespace

import pandas as pd
import pytest

from traceanalyzer.analyses.blame.episode_gains import (
    _as_long_as_peers,
    _data_left,
    _gain,
    _is_before_steps,
    _is_held,
    _is_of_host,
    _only_launches_more,
    _unprofiled,
    _where,
    _without_data,
)
from traceanalyzer.analyses.blame.episode_rows import apart_ns
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain


def replayed(gain_ns, *, error_ns=0, unmatched_ns=0, unprofiled_ns=None):
    """Of a step of 1,000 ns."""
    without = None if unprofiled_ns is None else (800, 800 - unprofiled_ns)
    return Gain(1_000, 1_000 - gain_ns, error_ns, unmatched_ns, without)


@pytest.mark.parametrize(
    ("gain", "told", "without"),
    [
        (None, (70, None, True), None),
        (replayed(50, error_ns=4, unprofiled_ns=40), (50, 4, False), 40),
        (replayed(50, error_ns=31, unprofiled_ns=40), (50, 31, True), None),
        (replayed(50, unmatched_ns=31, unprofiled_ns=40), (70, 0, True), None),  # waits that stay would be shorter
        (replayed(90, unmatched_ns=31), (90, 0, True), None),
        (replayed(50), (50, 0, False), None),
    ],
    ids=[
        "no replay",
        "a replay",
        "that explains little",
        "of unknown partners",
        "and gains more",
        "of no profiler's cost",
    ],
)
def test_what_is_told_of_a_gain(gain, told, without):
    found = tuple(None if each is pd.NA else each for each in _gain({"bound_ns": 70}, gain))
    assert (found, _unprofiled(gain)) == (told, without)


@pytest.mark.parametrize(("bound_ns", "gain_ns", "is_held"), [(5, 0, True), (pd.NA, 20, True), (pd.NA, 19, False)])
def test_what_no_complete_step_holds_is_replayed_where_it_gains_two_per_cent(bound_ns, gain_ns, is_held):
    assert _is_held({"bound_ns": bound_ns}, replayed(gain_ns)) is is_held


BEFORE = {"numbers": (3,), "part": "data_ns", "bound_ns": 100, "name": "collate"}


@pytest.mark.parametrize(
    ("more", "gain_ns", "is_before"),
    [
        ({}, 9, True),
        ({}, 10, False),  # a tenth of the bound
        ({"numbers": (4,)}, 9, False),
        ({"numbers": (3, 4)}, 9, False),
        ({"part": "compute_ns"}, 9, False),
        ({"part": "host_ns"}, 9, True),
        ({"part": "host_ns", "name": None}, 9, False),
        ({"bound_ns": pd.NA}, 9, False),
    ],
)
def test_what_comes_before_the_first_step_is_no_gain_of_it(more, gain_ns, is_before):
    windows = SimpleNamespace(table=pd.DataFrame({"step": pd.array([4, 3, 5], dtype="Int64")}))
    replay = SimpleNamespace(engine=SimpleNamespace(windows=windows))
    assert _is_before_steps(BEFORE | more, replayed(gain_ns), replay) is is_before
    whole = SimpleNamespace(table=pd.DataFrame({"step": pd.array([pd.NA], dtype="Int64")}))
    for other in (SimpleNamespace(engine=None), SimpleNamespace(engine=SimpleNamespace(windows=whole))):
        assert not _is_before_steps(BEFORE, replayed(0), other)


@pytest.mark.parametrize(
    ("of_data", "gain_ns", "without_ns"),
    [
        ({}, 50 - 20, 40 - 15),
        ({"ranks": (2,)}, 50 - 20, 40 - 15),  # of some of its ranks
        ({"ranks": (2, 3)}, 50, 40),
        ({"numbers": (1, 2, 3)}, 50, 40),
        ({"part": "compute_ns"}, 50, 40),
    ],
)
def test_a_hosts_gain_is_without_that_of_its_data_which_is_told_by_itself(of_data, gain_ns, without_ns):
    host = {"part": "host_ns", "ranks": (1, 2), "numbers": (1, 2)}
    data = {"part": "data_ns", "ranks": (1, 2), "numbers": (1,)} | of_data
    known = {0: replayed(50, unprofiled_ns=40), 1: replayed(20, unprofiled_ns=15)}
    found = _without_data([host, data], known, 0)
    assert (found.gain_ns, found.unprofiled_gain_ns) == (gain_ns, without_ns)


def test_a_host_gains_nothing_where_its_data_gains_more():
    host, data = ({"part": part, "ranks": (1,), "numbers": (1,)} for part in ("host_ns", "data_ns"))
    found = _without_data([host, data], {0: replayed(50), 1: replayed(70)}, 0)
    assert (found.gain_ns, found.unprofiled_ns) == (0, None)


@pytest.mark.parametrize(
    ("row", "factor"),
    [
        ({"own_ns": 80, "excess_ns": 30, "peers_ns": 40}, 50 / 80),
        ({"own_ns": 80, "excess_ns": 30, "peers_ns": 60}, 60 / 80),
        ({"own_ns": 80, "excess_ns": 90, "peers_ns": pd.NA}, 0),
        ({"own_ns": 0, "excess_ns": 0, "peers_ns": 0}, 0),
    ],
)
def test_compute_of_other_kernels_becomes_as_long_as_the_peers(row, factor):
    steps = frozenset({1, 2})
    assert _as_long_as_peers(row | {"ranks": (1,), "mended_in": steps}) == Change(
        "compute", factor, frozenset({1}), steps
    )
    assert _as_long_as_peers(row | {"ranks": (1,), "mended_in": frozenset()}).steps is None


@pytest.mark.parametrize(
    ("row", "left"),
    [
        ({"peers_ns": 20, "loading_left": 0.1}, 0.25),
        ({"peers_ns": 20, "loading_left": 0.5}, 0.5),  # of as long a loading longer queues hide more
        ({"peers_ns": 200, "loading_left": 0.5}, 1.0),
        ({"peers_ns": pd.NA, "loading_left": 0.0}, 0.0),
        ({"peers_ns": 20, "loading_left": 0.5, "own_ns": 0}, 0.0),
        ({"peers_ns": 20, "loading_left": 0.5, "part": "host_ns"}, 0.0),
    ],
)
def test_of_data_that_is_left_which_peers_wait_for_too(row, left):
    assert _data_left({"own_ns": 80, "part": "data_ns"} | row) == left


def test_ranks_in_turn_are_changed_in_the_steps_in_which_each_is_late():
    row = {"ranks": (1, 2, 3), "groups": (), "is_in_turn": False, "mended_in": frozenset({0, 1})}
    cells = pd.DataFrame({"rank": [1, 1, 2, 3, 3], "step": [0, 2, 1, 2, 0]})
    assert _where(row, cells, "compute") == [(frozenset({1, 2, 3}), frozenset({0, 1}))]
    assert _where(row | {"mended_in": frozenset()}, cells, "compute") == [(frozenset({1, 2, 3}), None)]
    in_turn = [(frozenset({1, 3}), frozenset({0, 2})), (frozenset({2}), frozenset({1}))]
    assert _where(row | {"is_in_turn": True}, cells, "compute") == in_turn
    linked = row | {"groups": (frozenset({1, 4}), frozenset({1, 5}))}
    assert _where(linked, cells, "comm") == [(group, frozenset({0, 1})) for group in linked["groups"]]
    assert _where(linked, cells, "compute") == [(frozenset({1, 2, 3}), frozenset({0, 1}))]


@pytest.mark.parametrize(
    ("more", "is_told"),
    [
        ({}, True),
        ({"part": "data_ns", "cause": "data"}, True),
        ({"part": "compute_ns"}, False),
        ({"ranks": (3,)}, False),
        ({"numbers": (1,)}, False),
        ({"numbers": (1, 2, 3)}, True),
        ({"own_host_ns": 9}, False),  # as every host
    ],
)
def test_a_host_that_is_late_by_itself_is_told_by_itself(more, is_told):
    other = {
        "part": "host_ns",
        "cause": "host",
        "ranks": (1,),
        "numbers": (1, 2),
        "name": None,
        "own_host_ns": 20,
        "apart_host_ns": 10,
    }
    assert _is_of_host(other | more, {"ranks": (1, 2), "numbers": (1, 2)}) is is_told


LIMIT_NS = round(apart_ns(pd.Series([100.0, 100.0])) * 1.6)
"""From which time on a host needs more than launching 1.3 times as many operations as two others takes, twice as dear."""


@pytest.mark.parametrize(
    ("operations", "needed_ns", "more", "only_more"),
    [
        ((100, 90, 130), LIMIT_NS - 1, {}, True),
        ((100, 90, 130), LIMIT_NS + 1, {}, False),  # by operations that take its host longer: these stay
        ((100, 90, 114), 100, {}, False),
        ((100, 115, 130), 100, {}, False),  # than the most of the others
        ((100, 90, 130), 100, {"part": "host_ns"}, False),
        ((100, 90, 130), LIMIT_NS - 1, {"numbers": ()}, True),
        ((100, 90, 114), 100, {"numbers": ()}, False),
        ((100, 90, 130), None, {}, True),  # not known
        ((100, 130, 130), LIMIT_NS - 1, {"ranks": (1, 2)}, True),
        ((100, 114, 130), LIMIT_NS - 1, {"ranks": (1, 2)}, False),
        ((100, 90, 130), 100, {"ranks": (0, 1, 2)}, False),  # nobody to hold it against
    ],
)
def test_a_host_that_launches_more_is_mended_with_what_it_launches(operations, needed_ns, more, only_more):
    """Of two steps the first one; of the other one nothing counts."""
    ops = [
        pd.DataFrame({"step": [1] * count + [2] * (0 if more.get("numbers") == () else 500)}) for count in operations
    ]
    nodes = {rank: SimpleNamespace(piece=SimpleNamespace(ops=own)) for rank, own in enumerate(ops)}
    row = {"part": "compute_ns", "numbers": (1,), "ranks": (2,)} | more
    needed = [needed_ns if rank in row["ranks"] else 100 for rank in range(3)]
    late = pd.DataFrame({"rank": [0, 1, 2] * 2, "step": [1] * 3 + [2] * 3})
    late = late.assign(
        needed_host_ns=pd.array([*needed, *([None] * 3 if row["numbers"] == () else [1] * 3)], dtype="Int64")
    )
    assert (
        _only_launches_more(row, late, SimpleNamespace(engine=SimpleNamespace(job=SimpleNamespace(nodes=nodes))))
        is only_more
    )
    assert not _only_launches_more(row, late, SimpleNamespace(engine=None))
