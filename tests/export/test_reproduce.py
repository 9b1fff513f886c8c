"""A script for one operator: its arguments are the recorded ones, and it runs."""

import pytest

import traceanalyzer as ta
from tests.samples import sample
from traceanalyzer.export.reproduce import reproduce


def names_of(script):
    made = {"__name__": "script"}
    exec(compile(script, "script", "exec"), made)
    return made


def test_shapes_strides_types_and_values_are_those_of_the_trace():
    script = reproduce(sample("ddp"), "aten::_scaled_dot_product_cudnn_attention")
    assert script.count("tensor((8, 12, 512, 64), (1179648, 64, 2304, 1), torch.bfloat16),") == 3
    assert "    True,\n    0,\n    True,\n    False,\n" in script  # compute_log_sumexp, dropout_p, is_causal, …
    assert "Variant 0 of 1; in the job" in script


def test_variants_are_those_with_most_time_first():
    first, second = (reproduce(sample("ddp"), "aten::addmm", variant=number) for number in (0, 1))
    assert first.split("ARGUMENTS")[1] != second.split("ARGUMENTS")[1]
    with pytest.raises(ta.UsageError, match="the last is --variant"):
        reproduce(sample("ddp"), "aten::addmm", variant=99)


@pytest.mark.parametrize(
    ("operator", "error", "message"),
    [
        ("aten::nothing", ta.InputError, "ran no operator called aten::nothing"),
        ("mm", ta.UsageError, "such as aten::mm"),
        ('aten::mm"; import os', ta.UsageError, "none of torch's operators"),
        ("aten::cat", ta.InputError, "does not record the element types"),
    ],
)
def test_what_cannot_be_reproduced_is_refused(operator, error, message):
    with pytest.raises(error, match=message):
        reproduce(sample("ddp"), operator)


@pytest.mark.parametrize(("operator", "shape"), [("aten::add", (8, 512, 768)), ("aten::addmm", (4096, 3072))])
def test_the_script_calls_the_operator(operator, shape):
    torch = pytest.importorskip("torch")
    made = names_of(reproduce(sample("ddp"), operator))
    overload, positional, named = made["call"]()
    assert tuple(overload(*positional, **named).shape) == shape
    assert all(one.stride() for one in positional if isinstance(one, torch.Tensor))


def test_a_script_that_lacks_a_value_says_which_the_operator_takes():
    pytest.importorskip("torch")
    with pytest.raises(SystemExit, match="int dim"):
        names_of(reproduce(sample("ddp"), "aten::gather"))["call"]()
