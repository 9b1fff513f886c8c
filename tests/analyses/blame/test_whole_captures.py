"""Ranks that share no step are held against each other by all that was recorded."""

import pandas as pd
import pytest

from tests.analyses.blame.test_lateness import needs
from traceanalyzer.analyses.blame.whole_captures import as_whole_captures


def work(*rows):
    return pd.DataFrame(
        [(rank, step, "compute_ns", "operator", name, ns, 1, 0) for rank, step, name, ns in rows],
        columns=["rank", "step", "part", "what", "name", "total_ns", "calls", "blocks"],
    )


def of_ranks(steps, lengths=(100, 100)):
    """Two ranks of two steps each, numbered from `steps`."""
    table = needs([[10, 20], [30, 40]], [[50, 60], [70, 80]]).assign(met_in=None, longest_call_ns=5)
    table["step"] += table["rank"].map(dict(enumerate(steps)))
    table["end_ns"] = table["begin_ns"] + table["rank"].map(dict(enumerate(lengths)))
    return table


def test_all_steps_of_a_rank_are_one_where_no_step_is_shared():
    whole, sums = as_whole_captures(
        of_ranks((0, 7)), work((0, 0, "mm", 3), (0, 1, "mm", 4), (0, 1, "add", 1), (1, 7, "mm", 9))
    )
    assert whole["step"].isna().all()
    assert whole[["rank", "begin_ns", "end_ns", "host_ns", "needed_host_ns", "longest_call_ns"]].to_numpy().tolist() == [
        [0, 0, 200, 30, 110, 5], [1, 0, 200, 70, 150, 5],
    ]  # fmt: skip
    assert sums[["rank", "step", "name", "total_ns", "calls"]].to_numpy().tolist() == [
        [0, -1, "mm", 7, 2], [0, -1, "add", 1, 1], [1, -1, "mm", 9, 1],
    ]  # fmt: skip


@pytest.mark.parametrize(("steps", "lengths"), [((0, 1), (100, 100)), ((0, 7), (100, 300))], ids=["shared", "unequal"])
def test_steps_stay_where_some_are_shared_or_more_was_recorded_of_one_rank(steps, lengths):
    table, own = of_ranks(steps, lengths), work((0, 0, "mm", 3))
    assert all(left is right for left, right in zip(as_whole_captures(table, own), (table, own), strict=True))
