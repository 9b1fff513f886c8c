"""FLOPs and bytes of a call from its shapes, by hand and against `torch.utils.flop_counter`."""

import json

import pytest

from traceanalyzer.analyses.operators.flops import work
from traceanalyzer.kinds import Call

BF16, FLOAT = "c10::BFloat16", "float"
Q, K = [2, 4, 16, 8], [2, 2, 32, 8]


def work_of(name, shapes, dtype=FLOAT, arguments=None):
    return work(name, Call.parse(json.dumps(shapes), json.dumps([dtype] * len(shapes)), arguments))


@pytest.mark.parametrize(
    ("name", "shapes", "flops", "model_flops"),
    [
        ("aten::_scaled_dot_product_flash_attention", [Q, Q, Q], 4 * 2 * 4 * 16 * 16 * 8, 4 * 2 * 4 * 16 * 16 * 8),
        ("aten::_scaled_dot_product_cudnn_attention", [Q, K, K], 4 * 2 * 4 * 16 * 32 * 8, 4 * 2 * 4 * 16 * 32 * 8),
        ("aten::_flash_attention_forward", [[2, 16, 4, 8]] * 3, 4 * 2 * 4 * 16 * 16 * 8, 4 * 2 * 4 * 16 * 16 * 8),
        ("aten::_cudnn_attention_backward", [Q] * 5, 10 * 2 * 4 * 16 * 16 * 8, 8 * 2 * 4 * 16 * 16 * 8),
        ("aten::_efficient_attention_backward", [[2, 16, 4, 8]] * 5, 10 * 8 * 256 * 8, 8 * 8 * 256 * 8),
    ],
)
def test_work_of_attention_leaves_repeated_scores_out_of_the_model(name, shapes, flops, model_flops):
    found = work_of(name, shapes)
    assert (found.flops, found.model_flops, found.masked_flops) == (flops, model_flops, 0)


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "arguments"),
    [
        ("aten::mm", None, None, None),
        ("aten::mm", "[[2,3]", "[]", None),
        ("aten::mm", "[[],[]]", "[]", None),
        ("aten::mm", "{}", "[]", None),
        ("aten::convolution", "[[1,3,8,8],[6,3,3,3],[6]]", '["float","float","float"]', None),
        ("aten::_flash_attention_forward", "[[64,4,8],[64,4,8],[64,4,8]]", '["float","float","float"]', None),
        (
            "aten::_efficient_attention_forward",
            f"[{[1, 64, 4, 8]},{[1, 64, 4, 8]},{[1, 64, 4, 8]},[],[5]]",
            '["float","float","float","","int"]',
            None,
        ),
        ("aten::_fused_adamw_", "[[],[],[]]", '["TensorList","TensorList","TensorList"]', None),
        ("my::operator", "[[2,3],[3,5]]", '["float","float"]', None),
    ],
    ids=[
        "absent",
        "damaged",
        "no tensors",
        "no list",
        "no stride",
        "varlen",
        "packed",
        "list not recorded",
        "no formula",
    ],
)
def test_what_cannot_be_known_is_absent(name, shapes, dtypes, arguments):
    assert work(name, Call.parse(shapes, dtypes, arguments)) is None
