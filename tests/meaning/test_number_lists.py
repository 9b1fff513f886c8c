import pytest

from traceanalyzer.errors import UsageError
from traceanalyzer.kinds import CUT_LIST
from traceanalyzer.meaning.columns import chosen, numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0,4", (0, 4)), ("12, 4", (12, 4)), ("7", (7,)), (f"0,1,{CUT_LIST},63", ()), ("0,-4", ()), (None, ()), ("", ()),
     (float("nan"), ()), ("0,²", ())],
)  # fmt: skip
def test_lists_of_numbers(text, expected):
    assert numbers(text) == expected


def test_what_people_choose():
    assert chosen("0, 2-4") == {0, 2, 3, 4}


@pytest.mark.parametrize(
    ("text", "said"),
    [("x", "--ranks 'x': write numbers"), ("3-1", "3-1 is reversed; write 1-3"), ("0-30000000", "go up to 999,999")],
)
def test_refuses(text, said):
    with pytest.raises(UsageError, match=said):
        chosen(text, "--ranks")
