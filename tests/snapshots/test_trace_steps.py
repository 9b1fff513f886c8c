"""A history by the steps of the trace beside it."""

import pandas as pd
import pytest

from tests.snapshots.builders import History, write
from traceanalyzer.snapshots import beside_trace, examine_snapshot, read_snapshot, sentences

START = 1_700_000_000_000_000 * 1000


@pytest.fixture
def one(tmp_path):
    """Blocks given 10, 20 and 30 µs after the start, the second freed at 40 and 50 µs."""
    history = History()
    history.alloc(1 << 20)
    second = history.alloc(4 << 20)
    history.alloc(2 << 20)
    history.free(second)
    return examine_snapshot(read_snapshot(write(tmp_path / "rank3_snapshot.pickle", history.snapshot())))


def with_steps(one, *limits, rank=3):
    rows = [(rank, number, START + first * 1000, START + last * 1000) for number, first, last in limits]
    steps = pd.DataFrame(rows, columns=["rank", "step", "host_start_ns", "host_end_ns"])
    return beside_trace([one], steps)[0]


def test_the_peak_lies_in_a_step(one):
    found = with_steps(one, (7, 5, 25), (8, 25, 100))
    assert found.trace_steps.table.to_dict("records") == [
        {"step": 7, "peak_bytes": 5 << 20, "end_bytes": 5 << 20},
        {"step": 8, "peak_bytes": 7 << 20, "end_bytes": 3 << 20},
    ]
    assert any("peak is in step 8" in text for text in sentences([found]))


@pytest.mark.parametrize(
    ("limits", "said"), [((7, 5050, 6000), "history ends 5 ms before"), ((7, 5, 25), "outside the trace's steps")]
)
def test_a_peak_of_no_step(one, limits, said):
    assert any(said in text for text in sentences([with_steps(one, limits)]))


def test_another_ranks_steps_say_nothing(one):
    assert with_steps(one, (7, 5, 25), rank=0).trace_steps is None
