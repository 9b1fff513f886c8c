"""The ranks that a finding's words name are its data, too, so that nothing reads words: on real captures.

Of simulated jobs the scoreboard asks it.
"""

import pytest

from tests import once
from tests.findings.named_in_words import unlike_words
from tests.samples import FEW
from traceanalyzer.findings import find

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
