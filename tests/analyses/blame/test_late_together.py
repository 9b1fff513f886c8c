"""Late ranks that are one episode, or several."""

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.analyses.blame.late_together import grouped


def cells(slower):
    """Cells of three steps of ranks whose GPUs take so many times as long, NaN for work that is not the same."""
    rows = [(rank, step, times * 100.0, 100.0) for rank, times in slower.items() for step in range(3)]
    table = pd.DataFrame(rows, columns=["rank", "step", "same_ns", "peers_same_ns"])
    return table.assign(part="compute_ns", name=None, excess_ns=10)


@pytest.mark.parametrize(
    ("slower", "sets"),
    [
        ({2: 1.5, 5: 1.25}, [{2}, {5}]),
        ({2: 1.5, 3: 1.48, 5: 1.25, 6: 1.22}, [{2, 3}, {5, 6}]),
        ({2: 1.4, 5: 1.3}, [{2, 5}]),
        ({2: 1.05, 5: 1.03}, [{2, 5}]),  # as GPUs of one kind differ
        ({2: np.nan, 5: np.nan}, [{2, 5}]),
        ({2: 1.5}, [{2}]),
    ],
)
def test_gpus_of_two_speeds_are_two_episodes(slower, sets):
    assert [{*own["rank"]} for own in grouped(cells(slower), range(3))] == sets


@pytest.mark.parametrize(
    ("open_ns", "complete", "sets"),
    [
        (31, (0, 1, 2), [{3}, {0, 1, 2}]),  # more than in all three together
        (30, (0, 1, 2), [{0, 1, 2, 3}]),
        (20, (0,), [{0, 1, 2, 3}]),
        (31, (), [{0, 1, 2, 3}]),  # no step is complete: nothing is a mean of some
    ],
)
def test_an_open_step_that_holds_most_is_an_episode_of_its_own(open_ns, complete, sets):
    held = pd.DataFrame({"rank": 2, "step": range(4), "part": "host_ns", "name": None, "excess_ns": [10] * 3 + [open_ns],
                         "same_ns": np.nan, "peers_same_ns": np.nan})  # fmt: skip
    assert [{*own["step"]} for own in grouped(held, complete)] == sets
