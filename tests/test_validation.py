"""What callers give that a function does not take is refused with what it takes."""

from collections.abc import Mapping

import numpy as np
import pytest

from traceanalyzer import validation
from traceanalyzer.errors import UsageError

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (5, float, 5),
        (2.5, float, 2.5),
        (INF, float, INF),  # never
        (0, int, 0),
        (1e6, int, 1_000_000),
        (np.int64(7), int, 7),
        (None, int | None, None),
        (frozenset({1}), frozenset[int] | None, frozenset({1})),
        ({0: {"a": 1}}, Mapping[int, Mapping[str, int]] | None, {0: {"a": 1}}),
    ],
)
def test_a_threshold_is_taken(value, kind, expected):
    taken = validation.threshold("limit", value, kind)
    assert (taken, type(taken)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "kind", "takes"),
    [
        *((odd, float, "a number from 0 on") for odd in ("5", None, NAN, -1, True, [5], 1j)),
        *((odd, int, "a whole number from 0 on") for odd in (1.5, INF, NAN, -1, "7", True)),
        (True, int | None, r"int \| None"),
        ("x", Mapping[int, str] | None, r"Mapping\[int, str\] \| None"),
        ({"0": "x"}, Mapping[int, str] | None, r"Mapping\[int, str\] \| None"),
        ({0: {"a": "b"}}, Mapping[int, Mapping[str, int]] | None, r"Mapping\[int, Mapping\[str, int\]\] \| None"),
        (frozenset({"a"}), frozenset[int] | None, r"frozenset\[int\] \| None"),
    ],
)
def test_a_threshold_of_another_kind_is_refused(value, kind, takes):
    with pytest.raises(UsageError, match=f"limit takes {takes}, not "):
        validation.threshold("limit", value, kind)


@pytest.mark.parametrize("value", [None, 3, b"x", "", ["x"]])
def test_what_is_no_path_is_refused(value):
    with pytest.raises(UsageError, match="save takes a folder: "):
        validation.place_of(value, "save takes a folder")


@pytest.mark.parametrize(("value", "names"), [("csv", ("csv",)), ((one for one in ["csv", "md"]), ("csv", "md"))])
def test_formats_are_one_or_several(value, names):
    assert validation.formats_of(value, {"csv", "md"}) == names


@pytest.mark.parametrize("value", [None, 3, [], ["htm"], [["csv"]], "c"])
def test_other_formats_are_refused_with_those_that_there_are(value):
    with pytest.raises(UsageError, match=r"no format is called .*; there are csv, md"):
        validation.formats_of(value, ("csv", "md"))
