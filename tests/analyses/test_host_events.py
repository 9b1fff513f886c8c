import numpy as np

from traceanalyzer.analyses import timeline


def test_events_have_the_depth_of_what_they_lie_in():
    starts, ends = np.array([0, 0, 10, 50, 120]), np.array([100, 100, 20, 60, 130])
    events = {"start_ns": starts, "end_ns": ends, "code": np.arange(5), "place": np.arange(5)}
    assert timeline._nested([events], [np.arange(5)], 5)["depth"].tolist() == [0, 1, 2, 2, 0]
