"""FLOPs and bytes of a call from its shapes, by hand and against `torch.utils.flop_counter`."""

import json

import pytest

from traceanalyzer.analyses.operators.flops import Call, work

BF16, FLOAT = "c10::BFloat16", "float"
Q, K = [2, 4, 16, 8], [2, 2, 32, 8]
ONE = '["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]'
GRAD = '["", "", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, True]"]'
GRAD_WEIGHT = GRAD.replace("[True, True", "[False, True")


def work_of(name, shapes, dtype=FLOAT, arguments=None):
    return work(name, Call.parse(json.dumps(shapes), json.dumps([dtype] * len(shapes)), arguments))


@pytest.mark.parametrize(
    ("name", "shapes", "arguments", "flops", "size_bytes"),
    [
        ("aten::mm", [[2, 3], [3, 5]], None, 60, 4 * (6 + 15 + 10)),
        ("aten::mm", [[2, 3], [3, 5], [2, 5]], None, 60, 4 * (6 + 15 + 10)),
        ("aten::addmm", [[5], [2, 3], [3, 5], [], []], None, 60, 4 * (5 + 6 + 15 + 10)),
        ("aten::bmm", [[7, 2, 3], [7, 3, 5]], None, 420, 4 * 7 * (6 + 15 + 10)),
        ("aten::baddbmm", [[7, 2, 5], [7, 2, 3], [7, 3, 5]], None, 420, 4 * 7 * (10 + 6 + 15 + 10)),
        ("aten::_grouped_mm", [[6, 3], [4, 3, 5]], None, 2 * 6 * 3 * 5, None),
        ("aten::_grouped_mm", [[3, 6], [6, 5]], None, 2 * 3 * 6 * 5, None),
        ("aten::_grouped_mm", [[4, 2, 3], [3, 9]], None, 2 * 2 * 3 * 9, None),
        ("aten::_grouped_mm", [[4, 2, 3], [4, 3, 5]], None, 4 * 2 * 2 * 3 * 5, None),
        ("aten::linear", [[4, 2, 3], [5, 3], [5]], None, 240, 4 * (24 + 15 + 5 + 40)),
        ("aten::convolution", [[1, 3, 8, 8], [6, 3, 3, 3], [6]], ONE, 2 * 16 * 27 * 6, 4 * (192 + 162 + 6 + 96)),
        ("aten::convolution_backward", [[1, 6, 4, 4], [1, 3, 8, 8], [6, 3, 3, 3]], GRAD, 4 * 16 * 27 * 6, 4 * 804),
        ("aten::convolution_backward", [[1, 6, 4, 4], [1, 3, 8, 8], [6, 3, 3, 3]], GRAD_WEIGHT, 2 * 16 * 27 * 6, 2448),
        ("aten::native_layer_norm", [[4, 8], [], [8], [8], []], None, 256, 4 * (64 + 16)),
        ("aten::add", [[4, 8], [8], []], None, 32, 4 * (32 + 8 + 32)),
        ("aten::mul", [[4, 8], [], [4, 8]], None, 32, 4 * (32 + 32)),
        ("aten::copy_", [[4, 8], [4, 8], []], None, 0, 4 * 64),
        ("aten::_convolution", [[1, 3, 8, 8], [6, 3, 3, 3], [6]], ONE, 2 * 16 * 27 * 6, 4 * (192 + 162 + 6 + 96)),
        ("aten::addcmul_", [[4, 8], [4, 8], [8], []], None, 32, 4 * (32 + 32 + 8 + 32)),
        ("aten::embedding_dense_backward", [[2, 5, 8], [2, 5], []], None, 80, 4 * (2 * 80 + 10)),
        ("aten::split_with_sizes_copy", [[2, 6], [], [], [[2, 2], [2, 4]]], None, 0, 4 * 24),
        ("aten::_chunk_cat", [[[4], [8]], [], [], [2, 6]], None, 0, 4 * 24),
        ("aten::_foreach_add_", [[[4], [8]], []], None, 12, None),
    ],
)
def test_work_of_a_call(name, shapes, arguments, flops, size_bytes):
    found = work_of(name, shapes, arguments=arguments)
    assert (found.flops, found.bytes) == (flops, size_bytes)


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


def test_a_causal_mask_makes_nearly_half_unnecessary():
    arguments = '["", "", "", "0.", "True"]'
    found = work_of("aten::_scaled_dot_product_flash_attention", [Q, Q, Q], arguments=arguments)
    assert found.masked_flops == found.flops * 15 // 32


@pytest.mark.parametrize(
    ("name", "lists", "flops", "elements"),
    [
        ("aten::_foreach_add_", 1, 12, 2 * 12),
        ("aten::_foreach_add_", 2, 12, 3 * 12),
        ("aten::_foreach_sqrt", 1, 12, 2 * 12),
        ("aten::_foreach_addcdiv_", 3, 36, 4 * 12),
        ("aten::_foreach_copy_", 2, 0, 2 * 12),
        ("aten::cat", 1, 0, 2 * 12),
        ("aten::_fused_adamw_", 4, 180, 7 * 12 + 2),
        ("aten::_fused_adam_", 5, 180, 9 * 12 + 2),
        ("aten::_fused_sgd_", 2, 48, 3 * 12),
        ("aten::_fused_sgd_", 3, 48, 5 * 12),
    ],
)
def test_lists_of_tensors_are_read_and_what_changes_is_written(name, lists, flops, elements):
    shapes = [[[4], [8]]] * lists
    if "adam" in name:
        shapes += [[]] * (5 - lists) + [[[], []]]  # largest second moments, where there are any, and steps
    call = Call.parse(json.dumps([*shapes, []]), json.dumps(["TensorList"] * len(shapes) + ["Scalar"]), None)
    found = work(name, call)
    assert (found.flops, found.list_elements, found.bytes) == (flops, elements, None)


def test_embedding_reads_rows_not_the_table():
    call = Call.parse("[[1000,8],[2,5],[]]", f'["{BF16}","long int","Scalar"]', None)
    assert work("aten::embedding", call).bytes == 10 * 8 + 2 * 10 * 8 * 2


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


def test_bytes_of_an_unknown_dtype_are_absent():
    found = work_of("aten::mm", [[2, 3], [3, 5]], dtype="mystery")
    assert (found.flops, found.bytes) == (60, None)


def test_a_compiled_kernel_moves_its_arguments():
    assert work_of("triton_poi_fused_add_0", [[4, 8], [4, 8], []]).bytes == 4 * 64
    assert work_of("triton_poi_fused_add_embedding_0", [[4, 8], [4, 8], []]) is None
