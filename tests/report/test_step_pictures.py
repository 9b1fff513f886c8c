"""Steps of runs below one another: where they lie, and which call of one is which of the other."""

from types import SimpleNamespace

import pandas as pd
import pytest

from tests.once import results as results_of
from traceanalyzer.diff import lanes
from traceanalyzer.report.comparison import pictures as comparison_pictures

STRETCHES = pd.DataFrame(
    {"rank": 0, "kind": ["compute", "wait"], "start_ns": [0, 50], "end_ns": [50, 80], "window_ns": 100, "step": 3}
)


def side(label, stretches, calls, kind="comm"):
    columns = ["rank", "name", "ordinal", "end_ns", "length_ns"]
    own = None if calls is None else pd.DataFrame(calls, columns=columns).assign(kind=kind)
    return SimpleNamespace(label=label, first=SimpleNamespace(lanes=stretches, step_calls=own))


def pictures(*sides):
    return comparison_pictures.of(SimpleNamespace(sides=sides))


def test_calls_of_one_run_are_tied_to_the_same_ones_of_the_next():
    base = side("a", STRETCHES, [(0, "all-reduce", 0, 80, 30), (0, "broadcast", 0, 90, 5)])
    other = side("b", STRETCHES.assign(window_ns=200), [(0, "all-reduce", 0, 150, 60), (0, "send", 1, 180, 9)])
    made = pictures(base, other)
    assert [(lane.run, lane.step, lane.end) for lane in made.lanes] == [("a", 3, 50_000), ("b", 3, 100_000)]
    assert made.lanes[0].links == ()
    (link,) = made.lanes[1].links
    assert (link.base, link.other) == (40_000, 75_000)
    assert link.words.replace("\u202f", " ") == "no. 1 all-reduce: ends at 80 ns → 150 ns, takes 30 ns → 60 ns"


def test_of_unequally_many_calls_the_first_and_the_last_are_tied():
    base = side("a", STRETCHES, [(0, "all-reduce", at, 20 * at, 5) for at in range(5)])
    other = side("b", STRETCHES, [(0, "all-reduce", 0, 10, 5), (0, "all-reduce", 1, 90, 5)])
    links = pictures(base, other).lanes[1].links
    assert [(link.base, link.other) for link in links] == [(0, 10_000), (80_000, 90_000)]
    assert [link.words.partition(":")[0] for link in links] == ["first all-reduce", "last all-reduce"]


def test_without_calls_in_common_nothing_is_tied():
    made = pictures(side("a", STRETCHES, None), side("b", STRETCHES, [(0, "send", 0, 9, 1)]), side("c", None, None))
    assert len(made.lanes) == 2
    assert not made.is_tied("comm")
    assert not made.is_tied("compute")
    assert pictures(side("a", None, None)) is None


def test_the_longest_of_the_same_work_is_tied_without_ties_that_cross():
    work = [("mm", 0, 20, 9), ("mm", 1, 60, 8), ("add", 0, 61, 7), ("norm", 0, 90, 6), ("copy", 0, 40, 5)]
    base = side("a", STRETCHES, [(0, *row) for row in work], "compute")
    moved = [
        ("mm", 0, 30, 9),
        ("mm", 1, 50, 8),
        ("norm", 0, 40, 6),
        ("add", 0, 70, 7),
        ("copy", 0, 44, 5),
        ("copy", 1, 45, 5),
    ]
    other = side("b", STRETCHES, [(0, *row) for row in moved], "compute")
    links = pictures(base, other).lanes[1].links
    # `add` ends beside the second `mm`, `norm` would cross it, and `copy` is done more often
    assert [(link.base, link.other, link.kind) for link in links] == [
        (20_000, 30_000, "compute"),
        (60_000, 50_000, "compute"),
    ]


def test_all_reduces_are_tied_to_the_reduce_scatters_that_do_their_work():
    base = side("a", STRETCHES, [(0, "all_reduce", 0, 50, 9), (0, "all_reduce", 1, 80, 9)])
    other = side(
        "b", STRETCHES, [(0, "all_gather", 0, 10, 5), *((0, "reduce_scatter", at, 60 + 10 * at, 5) for at in range(4))]
    )
    links = pictures(base, other).lanes[1].links
    assert [(link.base, link.other) for link in links] == [(50_000, 60_000), (80_000, 90_000)]
    assert links[0].words.startswith("first reduction (all_reduce → reduce_scatter)")


@pytest.mark.parametrize("name", ["ddp", "moe"])
def test_calls_of_the_step_that_is_drawn_are_those_that_begin_in_it(name):
    results = results_of(name)
    own = lanes.calls_of(results, (2,))
    steps = results["steps"].to_frame().query("step == 2").set_index("rank")
    calls = results["calls"].to_frame()
    for rank, step in steps.iterrows():
        begin = calls["start_ns"] - step["start_ns"]
        inside = calls[(calls["rank"] == rank) & (begin >= 0) & (begin < step["window_ns"])]
        assert len(inside) == ((own["rank"] == rank) & (own["kind"] == "comm")).sum() > 0
    assert not own.duplicated(["rank", "kind", "name", "ordinal"]).any()
    assert own.loc[own["kind"] == "compute", "name"].str.startswith("aten::").any()
