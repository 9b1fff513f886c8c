"""Tables that are gone through block by block give what they give at once."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyses.time.test_intervals import PAIRS, intervals
from traceanalyzer.analyses import grouping, reduce_rank
from traceanalyzer.analyses.host.activity import Cutter
from traceanalyzer.kinds import KindRules
from traceanalyzer.readers import RankHint, kineto
from traceanalyzer.selection import Selection, select

OF_HOSTS = ("gaps", "host_events", "host_silences", "host_work", "idle", "operator_shapes", "step_needs", "what_ran")


@pytest.mark.parametrize("rows", [37, 1_000])
def test_analyses_are_the_same_in_any_blocks(rows, monkeypatch):
    path = Path(__file__).parents[1] / "captures/moe/rank0.json.gz"
    (trace,) = kineto.read(path, RankHint(0, "path"), KindRules())
    whole = reduce_rank(select(trace, Selection()), OF_HOSTS)
    monkeypatch.setattr(grouping, "MOST_ROWS", rows)
    (again,) = kineto.read(path, RankHint(0, "path"), KindRules())
    found = reduce_rank(select(again, Selection()), OF_HOSTS)
    assert {*found} == {*whole}
    for name, table in found.items():
        pd.testing.assert_frame_equal(table, whole[name], obj=name)


@given(PAIRS, PAIRS, st.integers(1, 4))
def test_unions_are_the_same_in_any_blocks(left, right, rows):
    def made():
        one, other = intervals(left), intervals(right)
        both = (one, one | other, one & other, one - other)
        return [(each.starts.tolist(), each.ends.tolist()) for each in both], one.covered_ns(other.starts, other.ends)

    whole, covered = made()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(grouping, "MOST_ROWS", rows)
        found, again = made()
    assert found == whole
    assert again.tolist() == covered.tolist()


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12)), min_size=1, max_size=12), st.sets(st.integers(1, 20))
)
def test_nested_events_are_cut_alike_in_any_blocks(events, moments):
    starts, lengths = (np.array(each) for each in zip(*sorted(events), strict=True))
    ends, labels = starts + lengths, np.arange(len(starts))

    def cut(cuts):
        cutter, found = Cutter(), []
        for begin, until in zip([0, *cuts], [*cuts, None], strict=True):
            own = (starts >= begin) & ((starts < until) if until is not None else True)
            found.append(cutter.cut(starts[own], ends[own], labels[own], until))
        return [np.concatenate(each).tolist() for each in zip(*found, strict=True)]

    assert cut(sorted(moments)) == cut([])
