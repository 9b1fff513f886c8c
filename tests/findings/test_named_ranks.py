"""The ranks that a finding's words name are its data, too, so that nothing reads words: on real captures.

Of simulated jobs the scoreboard asks it.
"""

import pytest

from tests import once
from tests.findings.named_in_words import in_words, unlike_words
from tests.samples import FEW
from traceanalyzer.findings import Finding, find, named_ranks
from traceanalyzer.findings.alike import one_by_one, with_others

APART = [pytest.param(name, marks=pytest.mark.thorough) for name in ("streams", "fsdp_full")]
"""The one's files are as many runs, and the other tells every time what none of the few does."""


@pytest.mark.parametrize(
    "name",
    [
        *(one for one in FEW if one not in APART),
        "fsdp_full",
        "pp_host_bound",
        "pp_interleaved",
        pytest.param("symm", marks=pytest.mark.thorough),
    ],
)
def test_words_and_data_name_the_same_ranks(name):
    findings = find(once.results(name))
    assert unlike_words(findings) == []


def test_some_captures_name_ranks_that_they_do_not_blame():
    assert [finding for finding in find(once.results("ddp")) if finding.named]


@pytest.mark.parametrize(
    ("title", "ranks", "more"),
    [
        ("Rank 3's host is late: it needs 9 ms to launch a step, rank 1's 4 ms", {3, 1}, 0),
        ("the GPUs of ranks 1, 2 and 6 idle", {1, 2, 6}, 0),
        ("ranks 0 to 3 and 7 (host b07), 2 of them", {0, 1, 2, 3, 7}, 0),
        ("data parallel (ranks 0–2)", {0, 1, 2}, 0),
        ("Ranks 0, 8, 16 … 40 compute", {0, 8, 16, 24, 32, 40}, 0),
        ("ranks 1, 3 and 12 more", {1, 3}, 12),
        ("The pipeline of ranks 0,1,2,3 waits 45 %, most on rank 0: 46 %", {0}, 0),
        ("of rank 12, 5 of 9 calls", {12}, 0),
        ("all 4 ranks", set(), 0),
    ],
)
def test_ranks_of_words(title, ranks, more):
    assert in_words(title) == (ranks, more)


def test_ranks_stand_in_the_order_in_which_they_are_said():
    sign = Finding("low", "Rank 2's host needs 5 ms, rank 7's 2 ms.", named=(2, 7))
    first = Finding("high", "Ranks 4 and 5 are late: rank 2 waits.", ranks=(4, 5), named=(2,), also=(sign,))
    assert named_ranks([first, Finding("low", "Rank 0 copies.", named=(0,))]) == [4, 5, 2, 7, 0]
    assert unlike_words([first]) == []
    assert len(unlike_words([Finding("low", "Rank 0 copies.", named=(1,))])) == 1


def test_all_ranks_are_not_named_one_by_one():
    assert one_by_one([3, 1], range(4)) == (1, 3)
    assert one_by_one(range(4), range(4)) == ()
    assert one_by_one([0], [0]) == (0,)
    assert with_others(3, [0, 3], range(4)) == (3, 0)
    assert with_others(3, range(4), range(4)) == (3,)
