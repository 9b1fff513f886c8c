"""A rank that is late by several causes at once: each is told, and what mending all of them gains."""

import pytest

from tests.findings.needed import needed_by
from tests.simulator import workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import reads
from traceanalyzer.findings.stragglers.stragglers import late_ranks

NEEDED = needed_by(late_ranks)
MS = 1_000_000
GARBAGE, SAVED = Fault("gc", 9 * MS, (1,), (0, 2)), Fault("save", 9 * MS, (1,), (1, 3))
LOSS, LOGITS = Fault("loss", 8 * MS, (1,)), Fault("logits", 6 * MS, (1,))


@pytest.mark.parametrize(
    ("job", "faults", "said"),
    [
        (reads.loss_on_cpu, (LOSS, LOGITS), ["With rank 1's copies mended too it is 13.9 ms shorter.", None]),
        (reads.loss_on_cpu, (LOSS,), [None]),
        (
            workloads.ddp,
            (GARBAGE, SAVED),
            ["With rank 1's host in steps 1 and 3 mended too it is 7.23 ms shorter.", None],
        ),
    ],
    ids=["two causes", "one cause", "one host in two things in turn"],
)
def test_the_first_cause_says_what_all_of_them_gain(job, faults, said):
    _, results = analysed(job(faults=faults), *NEEDED)
    found = late_ranks(**results)
    assert [each.ranks for each in found] == [(1,)] * len(said)
    for each, words in zip(found, said, strict=True):
        assert each.title.endswith(words or " ms shorter.")
        assert ("mended too" in each.title) == bool(words)
