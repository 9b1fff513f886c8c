"""Rows that a page shows of many."""

import pandas as pd

from traceanalyzer.analyses.host.idle import GapTable
from traceanalyzer.analyses.replay.what_ifs import WhatIfs
from traceanalyzer.report.page.sections import LEAST_GAP_NS, MOST_GAPS, gains, longest_gaps


def of(result, **columns):
    """A Result of which only these columns are known."""
    made = result(pd.DataFrame(columns))
    made._shown.append(made.table)
    return made


def test_the_longest_gaps_are_those_that_are_shown_where_any_is_long():
    lengths = [*range(1, MOST_GAPS + 3), LEAST_GAP_NS]
    found = longest_gaps(of(GapTable, length_ns=lengths))
    assert found.rows["length_ns"].tolist() == sorted(lengths, reverse=True)[:MOST_GAPS]
    assert (found.longest_ns, found.are_notable) == (LEAST_GAP_NS, True)
    assert not longest_gaps(of(GapTable, length_ns=[LEAST_GAP_NS - 1])).are_notable


def test_changes_that_gain_next_to_nothing_are_named_and_those_that_nobody_knows_are_not():
    table = {"change": ["a", "a", "b", "c", "d"], "gain_pct": pd.array([4.0, 0.0, 0.05, None, 0.1], dtype="Float64")}
    found = gains(of(WhatIfs, **table, is_bound=[True, True, False, True, True]))
    assert found.rows["change"].tolist() == ["a", "d"]
    assert (found.first, found.others, found.are_bounds) == (2, ("b",), False)
    bound = gains(of(WhatIfs, change=["b"], gain_pct=[0.0], is_bound=[True]))
    assert (bound.first, bound.are_bounds) == (1, True)
