"""A rank that is late by several causes at once: each is told, and what mending all of them gains."""

import pytest

from tests.findings.needed import needed_by
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import reads
from traceanalyzer.findings.late.lateness import late_ranks

NEEDED = needed_by(late_ranks)
MS = 1_000_000
LOSS, LOGITS = Fault("loss", 8 * MS, (1,)), Fault("logits", 6 * MS, (1,))


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ((LOSS, LOGITS), ["With rank 1's copies mended too it is 13.9 ms shorter.", None]),
        ((LOSS,), [None]),
    ],
)
def test_the_first_cause_says_what_all_of_them_gain(faults, said):
    _, results = analysed(reads.loss_on_cpu(faults=faults), *NEEDED)
    found = late_ranks(**results)
    assert [each.ranks for each in found] == [(1,)] * len(said)
    for each, words in zip(found, said, strict=True):
        assert each.title.endswith(words or " ms shorter.")
        assert ("mended too" in each.title) == bool(words)
