"""What waits for a rank cost, and of which episode it is, from stretches of waiting that are written out."""

import pandas as pd
import pytest

from traceanalyzer.analyses.blame.stragglers import _clipped, _costs, _of_episodes


def test_a_wait_counts_in_each_window_of_its_rank_as_far_as_it_lies_in_it():
    windows = pd.DataFrame(
        [(1, 2, 110, 90), (0, 1, 0, 100), (0, 2, 100, 120), (1, 1, 10, 100)],
        columns=["rank", "step", "window_start_ns", "window_ns"],
    )
    waits = pd.DataFrame(
        [(0, 90, 130), (1, 0, 20), (1, 150, 160), (0, 300, 310), (2, 0, 50), (1, 5, 400), (0, 220, 230)],
        columns=["rank", "start_ns", "end_ns"],
    ).assign(instance=range(7), waits_for=9, root_rank=8)
    found = _clipped(waits, windows)
    rows = zip(found["rank"], found["instance"], found["step"], found["wait_ns"], strict=True)
    assert sorted(rows) == [(0, 0, 1, 10), (0, 0, 2, 30), (1, 1, 1, 10), (1, 2, 2, 10), (1, 5, 1, 100), (1, 5, 2, 90)]
    assert set(found["waits_for"]) == {9}
    assert set(found["root_rank"]) == {8}


PIECES = pd.DataFrame(
    [(1, 0, 1, 10, "all_reduce", 1), (1, 0, 2, 30, "all_reduce", 2), (1, 2, 1, 6, "all_gather", 1),
     (1, 2, 1, 20, "all_gather", 3), (2, 0, 2, 1, "reduce", 4)],
    columns=["root_rank", "rank", "step", "wait_ns", "collective", "instance"],
)  # fmt: skip

WINDOWS = pd.DataFrame(
    [(rank, step, 90 + 10 * step) for rank in range(3) for step in (1, 2)], columns=["rank", "step", "window_ns"]
)
"""Of 100 and 110 ns."""


@pytest.mark.parametrize(
    ("least_pct", "first", "steps", "affected_ns"),
    [(20.0, 1, 2, 20), (25.0, 2, 1, 30), (30 / 1.05, 2, 1, 30), (29.0, None, 0, None)],
)
def test_what_waits_for_a_rank_cost_a_mean_step(least_pct, first, steps, affected_ns):
    table = _costs(PIECES, WINDOWS, least_pct)
    one = table.loc[1].astype(object).where(table.loc[1].notna(), None)
    assert (one["cost_mean_ns"], one["cost_max_ns"], one["cost_max_rank"], one["waiting_ranks"]) == (16, 20, 0, 2)
    assert (one["total_wait_ns"], one["instances"], one["collective"]) == (66, 3, "all_reduce")
    assert (one["steps"], one["window_ns"]) == (2, 105)
    assert (one["first_step"], one["steps_affected"], one["affected_wait_ns"]) == (first, steps, affected_ns)
    other = table.loc[2]
    assert (other["cost_max_ns"], other["total_wait_ns"], other["steps_affected"]) == (0, 1, 0)
    assert other[["first_step", "affected_wait_ns"]].isna().all()


def test_of_a_capture_without_steps_none_is_affected():
    table = _costs(PIECES.assign(step=-1), WINDOWS.assign(step=-1).drop_duplicates("rank"), 1.0)
    assert (table.loc[1, "basis"], table.loc[1, "cost_max_ns"]) == ("whole capture", 40)
    assert table[["steps", "first_step", "steps_affected", "affected_wait_ns"]].isna().all(axis=None)


def episode(ranks, **more):
    row = {"ranks": ranks, "cause": "compute", "name": "gemm", "excess_ns": 7, "cost_ns": 100, "gain_ns": 50,
           "joint_gain_ns": pd.NA, "gain_is_bound": False, "own_host_ns": pd.NA, "apart_host_ns": pd.NA}  # fmt: skip
    return row | more


AS_OTHERS = {"cause": "host", "name": None, "own_host_ns": 9, "apart_host_ns": 10}


@pytest.mark.parametrize(
    ("episodes", "expected"),
    [
        ([episode("1,2"), episode("1", cause="data")], {1: (0, "compute", False), 2: (0, "compute", False)}),
        ([episode("3", **AS_OTHERS)], {3: (None, "host", True)}),
        ([episode("3", **AS_OTHERS), episode("3", cause="data")], {3: (1, "data", False)}),
        ([episode("4", gain_ns=9)], {}),  # hidden: of its cost less than a tenth is gained
        ([episode("4", gain_ns=10)], {4: (0, "compute", False)}),
        ([episode("4", gain_ns=9, gain_is_bound=True)], {4: (0, "compute", False)}),
        ([episode("4", gain_ns=9, joint_gain_ns=30)], {4: (0, "compute", False)}),
        ([episode("4", gain_ns=pd.NA)], {4: (0, "compute", False)}),
        ([episode("4", gain_ns=9), episode("4", cause="data")], {4: (1, "data", False)}),
        ([episode("3", gain_ns=0, **AS_OTHERS)], {3: (None, "host", True)}),
    ],
    ids=["costliest first", "as others' hosts", "by its own, too", "hidden", "just not", "a bound", "jointly", "unknown",
         "hidden and another", "hidden as others' hosts"],
)  # fmt: skip
def test_of_which_episode_a_rank_is(episodes, expected):
    table = pd.DataFrame(episodes).assign(episode=range(len(episodes)))
    found = _of_episodes(table)
    told = (
        found[["episode", "cause", "is_acquitted"]]
        .astype(object)
        .where(found[["episode", "cause", "is_acquitted"]].notna(), None)
    )
    assert {rank: tuple(row) for rank, row in told.iterrows()} == expected
    own = found[~found["is_acquitted"]]
    assert (own["cause_ns"] == 7).all()
    assert (own["operation"] == "gemm").all()
