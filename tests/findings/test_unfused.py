"""Chains of operators that could be one kernel."""

import pytest

from tests.findings.one_gpu import found

ROWS = "[[16, 768], []]"
PRODUCTS = ("aten::bmm", None, 5)
PRODUCT = ("aten::mm", "[[16, 768], [768, 768]]", 30)


@pytest.mark.parametrize(
    ("work", "headline", "why", "fix"),
    [
        (
            [PRODUCTS, ("aten::copy_", None, 12), ("aten::_softmax", None, 20), PRODUCTS],
            "Unfused attention: 32 ms/step in passes over its scores.",
            "aten::_softmax and aten::copy_ work on the scores of all pairs of tokens in memory.",
            'torch.nn.functional.scaled_dot_product_attention (Hugging Face: attn_implementation="sdpa").',
        ),
        (
            [(f"aten::_foreach_{name}_", "[[], [], []]", ms) for name, ms in (("lerp", 10), ("addcmul", 14), ("addcdiv", 12))],
            "Unfused optimizer: 22 ms/step in passes that fusion avoids.",
            "aten::_foreach_addcmul_, aten::_foreach_addcdiv_ and aten::_foreach_lerp_ each read and write all parameters.",
            "An optimizer with fused=True, such as torch.optim.AdamW(…, fused=True): one kernel updates all.",
        ),
        (
            [("aten::pow", ROWS, 10), ("aten::mean", ROWS, 9), ("aten::rsqrt", "[[16, 1]]", 1), ("aten::mul", "[[16, 768], [16, 1]]", 12)],
            "Unfused norms: 19 ms/step in passes that fusion avoids.",
            "aten::mul, aten::pow and aten::mean each read and write tensors of [16, 768].",
            "torch.nn.functional.rms_norm or layer_norm, or torch.compile around the block.",
        ),
        (
            [PRODUCT, ("aten::add", ROWS, 10), ("aten::gelu", ROWS, 9)],
            "Unfused element-wise kernels: 9 ms/step in passes that fusion avoids.",
            "aten::add and aten::gelu each read and write tensors of [16, 768].",
            "torch.compile the repeated block: it fuses what lies between matrix products.",
        ),
        (
            [PRODUCT, ("aten::convolution", None, 8, "void cudnn::ops::nchwToNhwcKernel<float>")],
            "Layout conversions: 8 ms/step of GPU time.",
            "cuDNN's convolutions on tensor cores want NHWC, and turn NCHW tensors before and after each call.",
            "model.to(memory_format=torch.channels_last), and the inputs too.",
        ),
    ],
    ids=["attention", "optimizer", "norms", "element-wise", "layouts"],
)  # fmt: skip
def test_what_passes_over_the_same_data(work, headline, why, fix):
    (one,) = found("unfused", work)
    assert (one.headline, one.why, one.fix) == (headline, why, fix)
    assert one.leads


def test_a_softmax_between_other_products_is_no_attention():
    router = [PRODUCTS, (*PRODUCT, "nvjet_hsh_128x256"), ("aten::_softmax", "[[16, 8], []]", 20), PRODUCTS]
    assert not found("unfused", router)


def test_one_pass_over_each_tensor_is_fused():
    assert not found("unfused", [PRODUCT, ("aten::gelu", ROWS, 9), ("aten::add", "[[16, 3072], []]", 10)])
