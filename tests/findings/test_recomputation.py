"""Activations that the backward pass computes again."""

from tests.findings.one_gpu import MS, found

NODE = ("autograd::engine::evaluate_function: LinearBackward0", 3)
WORK = [("aten::linear", None, 40), ("aten::gelu", None, 10)]


def test_forward_operators_in_the_backward_pass():
    (one,) = found("recomputation", WORK, around=[NODE])
    assert one.headline == "Activation recomputation: 50 ms/step of GPU time."
    assert one.why == "The backward pass runs forward operators again, most of it aten::linear."
    assert one.fix.startswith("Checkpoint fewer layers, or use selective activation checkpointing")
    assert one.what_if == "analyze-traces what-if FOLDER --operator @recompute=free"
    assert one.saves.low_ns <= 50 * MS <= one.saves.high_ns + MS


def test_forward_operators_elsewhere_are_no_recomputation():
    assert not found("recomputation", WORK)
