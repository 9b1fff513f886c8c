"""Shapes of an operator's inputs, of the text in which traces have them."""

import pytest

from traceanalyzer.analyses.operators.flops import inputs_of


@pytest.mark.parametrize(
    ("shapes", "each", "listed"),
    [
        ("[[8192, 64], [100], []]", ((8192, 64), (100,), None), ()),
        ("[[[4, 2], [3]], [], 1]", (None, None, None), ((4, 2), (3,))),
        ("[[], [16]]", (None, (16,)), ()),
        ("[]", (), ()),
        ("[[4, 2], [3", (), ()),  # cut off
        ("", (), ()),
        ('{"a": 1}', (), ()),
        ("[3, 4]", (None, None), ()),
    ],
)
def test_inputs_are_told_apart(shapes, each, listed):
    found = inputs_of(shapes)
    assert (found.each, found.listed) == (each, listed)
    assert found.tensors == tuple(shape for shape in each if shape)
