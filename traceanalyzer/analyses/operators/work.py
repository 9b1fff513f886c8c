"""How many FLOPs one call of an operator takes and how many bytes it moves: the formula of every operator."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from traceanalyzer.analyses.operators import formulas
from traceanalyzer.analyses.operators.formulas import Work
from traceanalyzer.analyses.operators.operator_call import Call

MODEL_FAMILIES = ("gemm", "attention", "convolution")
"""Families whose FLOPs are the model's: what MFU counts."""


def work(operator: str, call: Call | None) -> Work | None:
    """Work of one call; `None` for an operator without a formula or without the shapes that it needs."""
    # What works in place takes the arguments of what does not, and moves as much.
    formula = FORMULAS.get(operator) or FORMULAS.get(operator.removesuffix("_"))
    formula = formulas.fused if _COMPILED.match(operator) else formula
    if formula is None or call is None:
        return None
    try:
        found = formula(call)
    except (LookupError, TypeError, ValueError):
        return None
    return replace(found, dtype=call.dtype)


# A kernel that looks rows up is given whole tables and touches a part of them.
_COMPILED = re.compile(r"triton_(?!.*(embedding|gather|scatter|index))")

# By the number of their arguments.
_POINTWISE = {
    1: (
        "neg", "abs", "exp", "log", "sqrt", "rsqrt", "square", "reciprocal", "sin", "cos", "tanh", "sigmoid", "relu",
        "silu",
    ),
    2: (
        "mul", "div", "gelu", "pow", "maximum", "minimum", "silu_backward", "tanh_backward", "sigmoid_backward",
        "clamp_min",
    ),
    3: (
        "add", "sub", "where", "masked_fill", "clamp", "lerp", "gelu_backward", "threshold_backward", "native_dropout",
        "native_dropout_backward",
    ),
    4: ("addcmul", "addcdiv"),
}  # fmt: skip

OWN_WORK = ("aten::embedding_dense_backward", "aten::_chunk_cat", "aten::split_with_sizes_copy")
"""Operators whose formula leaves out those that they call: one that fills with zeros, copies of lists of addresses."""

ATTENTION: Mapping[str, tuple[int, int | None, bool]] = {
    "aten::scaled_dot_product_attention": (0, 5, True),
    "aten::_scaled_dot_product_flash_attention": (0, 4, True),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (0, 4, True),
    "aten::_scaled_dot_product_efficient_attention": (0, 6, True),
    "aten::_scaled_dot_product_cudnn_attention": (0, 6, True),
    "aten::_cudnn_attention_forward": (0, 10, True),
    "aten::_flash_attention_forward": (0, 8, False),
    "aten::_efficient_attention_forward": (0, 9, False),
    "flash_attn::_flash_attn_forward": (0, 5, False),
    "aten::_scaled_dot_product_flash_attention_backward": (1, 11, True),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": (1, 7, True),
    "aten::_scaled_dot_product_efficient_attention_backward": (1, 11, True),
    "aten::_scaled_dot_product_cudnn_attention_backward": (1, 14, True),
    "aten::_cudnn_attention_backward": (1, 14, True),
    "aten::_flash_attention_backward": (1, 11, False),
    "aten::_efficient_attention_backward": (1, 14, False),
    "flash_attn::_flash_attn_backward": (1, None, False),
}
"""Attention operators: position of the query, position of `is_causal` (or a mask's type), whether heads come first."""

FORMULAS: Mapping[str, Callable[[Call], Work]] = {
    "aten::mm": formulas.product(0, 1, 2),
    "aten::bmm": formulas.product(0, 1, 2),
    "aten::addmm": formulas.product(1, 2, 5),
    "aten::baddbmm": formulas.product(1, 2, 5),
    "aten::_addmm_activation": formulas.product(1, 2, 5),
    "aten::_scaled_mm": formulas.product(0, 1, 2),
    "aten::_int_mm": formulas.product(0, 1, 2),
    "aten::linear": formulas.linear,
    "aten::convolution": formulas.convolution,
    "aten::_convolution": formulas.convolution,
    "aten::convolution_backward": lambda call: formulas.convolution(call, backward=True),
    "aten::_grouped_mm": formulas.grouped_product,
    "aten::_scaled_grouped_mm": formulas.grouped_product,
    **{name: formulas.attention(*places, backward=name.endswith("_backward")) for name, places in ATTENTION.items()},
    # Forward: mean 1, variance 3, normalise 2, scale and shift 2. Backward: 13, with both parameters' gradients.
    "aten::native_layer_norm": formulas.each("norm", 8),
    "aten::native_layer_norm_backward": formulas.each("norm", 13),
    "aten::native_group_norm": formulas.each("norm", 8),
    "aten::native_group_norm_backward": formulas.each("norm", 13),
    "aten::native_batch_norm": formulas.each("norm", 8),
    "aten::native_batch_norm_backward": formulas.each("norm", 13),
    "aten::cudnn_batch_norm": formulas.each("norm", 8),
    "aten::cudnn_batch_norm_backward": formulas.each("norm", 13),
    # Square, mean, normalise, scale; the gradient 9.
    "aten::_fused_rms_norm": formulas.each("norm", 4),
    "aten::_fused_rms_norm_backward": formulas.each("norm", 9),
    # Maximum, subtraction, exponential, sum, quotient; the gradient: product, sum, difference, product.
    "aten::_softmax": formulas.each("softmax", 5),
    "aten::_log_softmax": formulas.each("softmax", 5),
    "aten::_softmax_backward_data": formulas.each("softmax", 4),
    "aten::_log_softmax_backward_data": formulas.each("softmax", 4),
    "aten::embedding": formulas.embedding,
    "aten::embedding_dense_backward": formulas.embedding_backward,
    "aten::copy_": formulas.each("element-wise", 0, reads=0),
    "aten::fill_": formulas.each("element-wise", 0, reads=0),
    "aten::sum": formulas.each("element-wise", 1, writes=0),
    "aten::mean": formulas.each("element-wise", 1, writes=0),
    **{f"aten::{name}": formulas.pointwise(count) for count, names in _POINTWISE.items() for name in names},
    # Adam: first moment 3, second moment 4, bias corrections and root 4, decay and step 4. Gradients are not written.
    **{f"aten::_fused_adam{w}_": formulas.lists(15, written=(0, 2, 3, 4)) for w in ("", "w")},
    "aten::_fused_sgd_": formulas.lists(4, written=(0, 2)),
    **{
        f"aten::_foreach_{name}": formulas.lists(1)
        for name in ["add", "sub", "mul", "div", "sqrt", "neg", "reciprocal"]
    },
    **{f"aten::_foreach_{name}": formulas.lists(3) for name in ["lerp", "addcmul", "addcdiv"]},
    "aten::_foreach_copy": formulas.lists(0, read_from=1),
    "aten::cat": formulas.lists(0),
    "aten::_chunk_cat": formulas.lists(0),
    "aten::split_with_sizes_copy": formulas.each("element-wise", 0),
}
"""By operator. Of nested operators with a formula the innermost counts, and those of `OWN_WORK` besides."""
