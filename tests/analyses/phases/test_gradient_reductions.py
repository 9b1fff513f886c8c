"""Reductions of gradients after the backward pass are backward's communication."""

from tests import once


def test_a_capture_that_reduces_each_parameter_after_backward():
    results = once.results("nsys_naive", ["call_phases", "groups"])
    assert set(results["call_phases"].table["phase"]) == {"backward"}
