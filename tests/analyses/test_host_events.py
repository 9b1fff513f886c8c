import numpy as np
import pandas as pd
import pytest

from tests.builders import rank_trace
from traceanalyzer.analyses import run, timeline


def test_events_have_the_depth_of_what_they_lie_in():
    starts, ends = np.array([0, 0, 10, 50, 120]), np.array([100, 100, 20, 60, 130])
    events = {"start_ns": starts, "end_ns": ends, "code": np.arange(5), "place": np.arange(5)}
    assert timeline._nested([events], [np.arange(5)], 5)["depth"].tolist() == [0, 1, 2, 2, 0]


@pytest.mark.parametrize(("most", "kept"), [(10, [100, 60, 5]), (2, [100, 60])])
def test_the_longest_are_kept_with_what_contains_them(most, kept):
    trace = rank_trace([("compute", 0, 200)])
    ops = trace.host_ops.reindex(range(3)).assign(
        start_ns=[0, 20, 30], end_ns=[100, 80, 35], name=pd.Categorical(["a", "b", "c"]), thread=1
    )
    object.__setattr__(trace, "host_ops", ops)
    table = timeline.host_events_per_rank(trace, most)
    assert (table["end_ns"] - table["start_ns"]).tolist() == kept
    assert table["recorded"].eq(len(table) if most == 10 else 3).all()


def test_levels_hold_and_samples_are_means():
    own = pd.DataFrame({"time_ns": [5, 12, 14], "value": [4.0, 10.0, 2.0]})
    starts, ends = pd.Series([0, 10, 20]).to_numpy(), pd.Series([10, 20, 30]).to_numpy()
    assert timeline._binned(own, starts, ends, is_level=True)["value"].tolist() == [4.0, 10.0, 2.0]
    means = timeline._binned(own, starts, ends, is_level=False)
    assert means[["bin", "value"]].to_numpy().tolist() == [[0, 4.0], [1, 6.0]]


def test_without_counters_and_hosts_there_are_no_rows():
    results = run([rank_trace([("compute", 0, 10)])], ["host_events", "counter_series"])
    assert len(results["counter_series"]) == 0
