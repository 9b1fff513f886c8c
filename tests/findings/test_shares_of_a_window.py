"""No share of a window is more than all of it, however much CPU time lies outside it or on several threads at once."""

import re

import pytest

from tests import once
from tests.samples import EVERY
from traceanalyzer.findings import find

MS = 1_000_000

_SHARE = re.compile(r"([\d,.]+) % of (?:a step|an iteration|the capture|all steps)")


def shares(found):
    return [float(each.replace(",", "")) for item in found for each in _SHARE.findall(item.title)]


@pytest.mark.parametrize("name", EVERY)
def test_of_captures(name):
    assert max(shares(find(once.results(name))), default=0.0) <= 100
