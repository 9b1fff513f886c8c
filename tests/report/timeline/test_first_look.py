"""Which ranks a timeline puts on top."""

import pandas as pd
import pytest

from traceanalyzer.analyses.replay.critical_path import CriticalPath
from traceanalyzer.findings import Finding
from traceanalyzer.meaning.vocabulary import UNMATCHED, WAIT
from traceanalyzer.report.timeline import pins
from traceanalyzer.report.words import Split


def finding(title, **more):
    return Finding(title, severity="high", **more)


def split_of(waits, unmatched=(0, 0, 0, 0)):
    table = pd.DataFrame({"rank": range(4), WAIT.share: waits, UNMATCHED.share: unmatched})
    return Split("whole capture", None, (WAIT, UNMATCHED), table)


PATH = {"critical_path": CriticalPath(pd.DataFrame({"rank": [3, 0, 2], "path_ns": [85, 10, 5]}))}


@pytest.mark.parametrize(
    ("found", "split", "expected"),
    [
        (finding("Ranks 2 and 3 compute longer", ranks=(2, 3), cause="host"), split_of([60, 40, 0, 0]), [3, 0]),
        (finding("Stage 3 (rank 3) computes longer", named=(3,)), split_of([60, 40, 30, 0]), [3, 0]),
        (finding("The GPUs of ranks 0, 1 and 2 idle", named=(0, 1, 2)), split_of([0, 0, 0, 0]), [0]),
        (finding("Rank 2 is late", ranks=(2,)), split_of([0] * 4, [70, 82, 0, 9]), [2, 1]),
        (finding("Links are slow"), split_of([0] * 4), [0]),
    ],
    ids=["most of the path", "named", "named in a list", "waits unknown", "nobody"],
)
def test_who_is_late_and_who_waits_most_are_on_top(found, split, expected):
    assert [pin["rank"] for pin in pins([found], split, range(4), PATH)] == expected
