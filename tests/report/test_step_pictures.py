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
