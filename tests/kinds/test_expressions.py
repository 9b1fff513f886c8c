"""Expressions of users: no text makes them take long, and what is none is refused."""

import time

import pytest

from traceanalyzer.errors import UsageError
from traceanalyzer.kinds import KindRules


def test_no_expression_hangs():
    began = time.process_time()
    assert KindRules.parse(("comm=(a+)+$",)).kind("a" * 5000 + "b", "kernel") == "compute"
    assert time.process_time() - began < 5  # what goes back over the text takes longer than a life


@pytest.mark.parametrize("expression", ["(", "a(?=b)", r"(a)\1", "[", "a{99999}"])
def test_what_is_no_expression_is_refused(expression):
    with pytest.raises(UsageError, match="not a regular expression"):
        KindRules.parse((f"comm={expression}",))


@pytest.mark.parametrize(
    ("expression", "name"), [("^my_.*reduce", "my_all_reduce_1"), ("(?i)NCCL", "xncclx"), ("é", "kernel é")]
)
def test_usual_expressions(expression, name):
    assert KindRules.parse((f"copy={expression}",)).kind(name, "kernel") == "copy"
