import pandas as pd
import pytest

from tests import once
from tests.asked import ASKED
from tests.builders import rank_trace
from traceanalyzer.analyses import overview, run
from traceanalyzer.analyses.communication.waits import ExposedComm
from traceanalyzer.meaning.vocabulary import COMM_PARTS
from traceanalyzer.report.words import split, unsplit_calls, unsplit_part

OPS = [("compute", 0, 40), ("comm", 40, 90), ("copy", 90, 95), ("compute", 100, 110)]


def detail(*rows):
    """Rows of `exposed_comm`."""
    table = pd.DataFrame(rows, columns=["rank", "step", *(part.column for part in COMM_PARTS)])
    return ExposedComm(
        table.astype({"step": "Int64"}).assign(is_complete=True, window_ns=110, exposed_comm_ns=50, opaque_ns=0)
    )


@pytest.mark.parametrize(
    ("rows", "is_divided"),
    [
        ([(0, None, 20, 30, 0)], True),
        ([(0, None, 20, 29, 0)], False),  # does not add up: not shown as if it did
        ([(0, 3, 20, 30, 0)], False),  # of a step, and the headline is of the whole capture
        ([], False),
    ],
)
def test_communication_is_divided_only_where_the_parts_add_up(rows, is_divided):
    results = {**run([rank_trace(OPS)], ASKED), "exposed_comm": detail(*rows)}
    needed = [results[name] for name in ("headline", "steps", "exposed_comm", "idle", "step_needs")]
    made = split({**results, "time_parts": overview.time_parts_across({}, *needed)})
    assert made is not None
    assert made.has_wait is is_divided
    columns = [part.column for part in made.parts]
    assert made.table[columns].sum(axis=1).tolist() == made.table["window_ns"].tolist() == [110]


def test_without_ranks_there_is_nothing_to_split():
    assert split(run([rank_trace([])], ASKED)) is None


def test_a_mean_step_is_that_of_the_headlines_steps():
    steps = [(0, 100), (100, 200), (200, 300)]
    ops = [("compute", start + 10, start + 60, start + 5) for start, _ in steps]
    made = split(run([rank_trace(ops, steps=steps)], ASKED))
    assert made is not None
    assert (made.basis, made.steps) == ("steps 0 to 2", 3)
    assert made.table[["window_ns", "compute_ns"]].to_numpy().tolist() == [[100, 50]]


@pytest.mark.parametrize(
    ("calls", "label"),
    [
        ([], "exposed, unmatched"),
        ([False], "exposed, unmatched"),
        ([True], "exposed transfer + wait, not separable"),
        ([True, False], "exposed, unmatched or not separable"),
    ],
)
def test_matched_calls_whose_wait_cannot_be_told_are_not_called_unmatched(calls, label):
    assert unsplit_part(pd.DataFrame({"is_matched": calls})).label == label


def test_the_bars_speak_of_the_calls_of_their_steps():
    results = once.results("moe", ["headline", "steps", "time_parts", "call_waits"])
    assert unsplit_part(unsplit_calls(results)).label == "exposed, unmatched or not separable", "cut by the capture"
    made = split(results)
    assert "exposed transfer + wait, not separable" in [part.label for part in made.parts]
