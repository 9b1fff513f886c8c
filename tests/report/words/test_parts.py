import pandas as pd
import pytest

from tests.asked import ASKED
from tests.builders import rank_trace
from traceanalyzer.analyses import overview, run
from traceanalyzer.analyses.phases import ExposedComm
from traceanalyzer.meaning.vocabulary import COMM_PARTS
from traceanalyzer.report.words import split

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
    made = split({**results, "time_parts": overview.time_parts_across(*needed)})
    assert made is not None
    assert made.has_wait is is_divided
    columns = [part.column for part in made.parts]
    assert made.table[columns].sum(axis=1).tolist() == made.table["window_ns"].tolist() == [110]
