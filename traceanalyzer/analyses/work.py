"""How many FLOPs one call of an operator takes and how many bytes it moves, from its shapes.

FLOPs of products, attention and convolution are counted as `torch.utils.flop_counter` counts them: two for a
multiply-add, a causal mask counted in full. Those of other operators are arithmetic per element, stated where
they are defined. Bytes are the least that must move: every input read once, every output written once.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from traceanalyzer.kinds import dtype_bytes

Shape = tuple[int, ...]

MODEL_FAMILIES = ("gemm", "attention", "convolution")
"""Families whose FLOPs are the model's: what MFU counts."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one call does; `None` where shapes or element types do not tell.

    Attributes:
        family: gemm, attention, convolution, norm, softmax, embedding, element-wise, optimizer or fused.
        flops: as `torch.utils.flop_counter` counts them.
        model_flops: the part that MFU counts: without what flash attention computes again in its backward pass.
        masked_flops: the part of `flops` that a causal mask makes unnecessary.
        bytes: read and written.
        dtype: element type that it computes in, as recorded.
    """

    family: str
    flops: int | None
    model_flops: int = 0
    masked_flops: int = 0
    bytes: int | None = None
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """The recorded arguments of a call: a shape for each tensor, nested for lists of tensors, empty for the rest."""

    shapes: tuple[Any, ...]
    dtypes: tuple[str, ...]
    values: tuple[str, ...] = ()

    @classmethod
    def parse(cls, shapes: str | None, dtypes: str | None, arguments: str | None) -> "Call | None":
        """From JSON texts as a trace has them; `None` when they are absent or damaged."""
        try:
            dims, types = json.loads(shapes or ""), json.loads(dtypes or "[]")
            values = json.loads(arguments or "[]")
        except json.JSONDecodeError:
            return None
        if not all(isinstance(part, list) for part in (dims, types, values)):
            return None
        return cls(tuple(map(_frozen, dims)), tuple(map(str, types)), tuple(map(str, values)))

    def shape(self, position: int, ndim: int | None = None) -> Shape:
        """Shape of an argument.

        Raises:
            LookupError: it is no tensor, or not of that many dimensions.
        """
        shape: Shape = self.shapes[position]
        if not shape or not all(isinstance(size, int) for size in shape) or len(shape) != (ndim or len(shape)):
            raise LookupError(position)
        return shape

    def value(self, position: int) -> Any:
        """Value of an argument that is no tensor, where it was recorded.

        Raises:
            LookupError: it was not.
        """
        try:
            return json.loads(self.values[position].lower())
        except json.JSONDecodeError as error:
            raise LookupError(position) from error

    def tensors(self) -> list[tuple[Shape, str]]:
        """Shape and element type of each tensor argument; a list of tensors has no element types."""
        pairs = zip(self.shapes, self.dtypes, strict=False)
        return [(shape, dtype) for shape, dtype in pairs if shape and isinstance(shape[0], int)]

    @property
    def dtype(self) -> str | None:
        """Element type of the first tensor of floating point, else of the first tensor."""
        types = [dtype for _, dtype in self.tensors()]
        return next((t for t in types if not t.startswith(("long", "int", "bool"))), types[0] if types else None)


def work(operator: str, call: Call | None) -> Work | None:
    """Work of one call; `None` for an operator without a formula or without the shapes that it needs."""
    name = operator.removesuffix("_") if operator.startswith("aten::_foreach") else operator
    formula = _fused if _COMPILED.match(operator) else FORMULAS.get(name)
    if formula is None or call is None:
        return None
    try:
        found = formula(call)
    except (LookupError, TypeError, ValueError):
        return None
    return replace(found, dtype=call.dtype)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def size(shape: Shape, dtype: str | None) -> int | None:
    """Bytes of a tensor; `None` when the element type is unknown."""
    element = dtype_bytes(dtype) or _C_TYPES.get(dtype or "")
    return None if element is None else prod(shape) * element


_C_TYPES = {"long int": 8, "signed char": 1, "unsigned char": 1, "short int": 2, "c10::complex<float>": 8}


def moved(call: Call, *outputs: Shape, skip: int = 0) -> int | None:
    """Bytes of the tensor arguments after the first `skip`, and of outputs of the call's element type."""
    parts = [size(shape, dtype) for shape, dtype in call.tensors()[skip:]]
    parts += [size(shape, call.dtype) for shape in outputs]
    return None if None in parts or not parts else sum(part for part in parts if part is not None)


def _product(left: int, right: int) -> Callable[[Call], Work]:
    """Matrix product of two arguments, the last of them possibly batched: 2·batch·m·n·k."""

    def formula(call: Call) -> Work:
        a, b = call.shape(left), call.shape(right)
        flops = 2 * prod(a) * b[-1]
        return Work("gemm", flops, flops, bytes=moved(call, (*a[:-1], b[-1])))

    return formula


def _linear(call: Call) -> Work:
    x, weight = call.shape(0), call.shape(1, 2)
    flops = 2 * prod(x) * weight[0]
    return Work("gemm", flops, flops, bytes=moved(call, (*x[:-1], weight[0])))


def _out_product(left: int, right: int, arguments: int) -> Callable[[Call], Work]:
    """A product that may be recorded with its output as a last argument, as Inductor calls it."""
    plain = _product(left, right)

    def formula(call: Call) -> Work:
        given = Call(call.shapes[:arguments], call.dtypes[:arguments], call.values)
        return plain(given)

    return formula


def _convolution(call: Call, *, backward: bool = False) -> Work:
    """2 · positions · filter · channels in · channels out; the same again for each gradient that is asked for."""
    first = 1 if backward else 0
    x, weight = call.shape(first), call.shape(first + 1)
    transposed = bool(call.value(7 if backward else 6))
    if backward:
        out = call.shape(0)
        times = sum(map(bool, call.value(10)[:2]))
    else:
        out, times = (x[0], 0, *_out_positions(call, x, weight)), 1
    positions = prod((x if transposed else out)[2:])
    flops = 2 * x[0] * positions * prod(weight) * times
    outputs = (weight, x)[:times] if backward else ((x[0], weight[0], *out[2:]),)
    return Work("convolution", flops, flops, bytes=moved(call, *outputs))


def _out_positions(call: Call, x: Shape, weight: Shape) -> list[int]:
    stride, padding, dilation = (call.value(position) for position in (3, 4, 5))
    dims = range(len(x) - 2)
    wide = [tuple(part) * len(dims) if len(part) == 1 else tuple(part) for part in (stride, padding, dilation)]
    return [(x[d + 2] + 2 * wide[1][d] - wide[2][d] * (weight[d + 2] - 1) - 1) // wide[0][d] + 1 for d in dims]


def _attention(
    query: int, causal: int | None, *, heads_first: bool = True, backward: bool = False
) -> Callable[[Call], Work]:
    """Two products forward, four backward, and one that the backward pass computes again (the scores).

    `query`, `key` and `value` stand at `query` and the two positions after it, (batch, heads, length, width), or
    (batch, length, heads, width) when not `heads_first`. `causal` is the position of `is_causal`.
    """

    def formula(call: Call) -> Work:
        q, k, v = (call.shape(query + offset, 4) for offset in range(3))
        long, other = (2, 1) if heads_first else (1, 2)
        pairs = 2 * q[0] * q[other] * q[long] * k[long]
        scores, mix = pairs * q[3], pairs * v[3]
        model = 2 * (scores + mix) if backward else scores + mix
        flops = model + scores if backward else model
        masked = flops * (q[long] - 1) // (2 * q[long]) if _is_causal(call, causal, q[long] == k[long]) else 0
        outputs = (q, k, v) if backward else ((*q[:3], v[3]),)
        read = Call(call.shapes[: query + 3], call.dtypes[: query + 3])
        return Work("attention", flops, model, masked, moved(read, *outputs))

    return formula


def _is_causal(call: Call, position: int | None, is_square: bool) -> bool:
    try:
        return position is not None and is_square and bool(call.value(position))
    except LookupError:
        return False


def _each(family: str, flops: int, *, reads: int = 1, writes: int = 1) -> Callable[[Call], Work]:
    """So many FLOPs for each element of the first tensor; it is read and written so many times, the rest read."""

    def formula(call: Call) -> Work:
        first = call.shape(0)
        rest, one = moved(call, skip=1) if len(call.tensors()) > 1 else 0, size(first, call.tensors()[0][1])
        total = None if rest is None or one is None else rest + (reads + writes) * one
        return Work(family, flops * prod(first), bytes=total)

    return formula


def _pointwise(arguments: int) -> Callable[[Call], Work]:
    """One FLOP for each element of the broadcast result; an argument beyond these many is the output."""

    def formula(call: Call) -> Work:
        inputs = Call(call.shapes[:arguments], call.dtypes[:arguments])
        shapes = [shape for shape, _ in inputs.tensors()]
        wide = max(map(len, shapes))
        padded = [(1,) * (wide - len(shape)) + shape for shape in shapes]
        out = tuple(max(sizes) for sizes in zip(*padded, strict=True))
        return Work("element-wise", prod(out), bytes=moved(inputs, out))

    return formula


def _lists(family: str, flops: int) -> Callable[[Call], Work]:
    """So many FLOPs for each element of the first list of tensors, whose element type is not recorded."""

    def formula(call: Call) -> Work:
        first = call.shapes[0]
        if not first or not isinstance(first[0], tuple):
            raise LookupError(0)
        return Work(family, flops * sum(map(prod, first)))

    return formula


def _embedding(call: Call) -> Work:
    """No arithmetic; the indices and the rows they name are read, the rows written."""
    table, indices = call.shape(0, 2), call.shape(1)
    row = size((table[1],), call.tensors()[0][1])
    index = size(indices, call.tensors()[1][1])
    total = None if row is None or index is None else index + 2 * prod(indices) * row
    return Work("embedding", 0, bytes=total)


def _fused(call: Call) -> Work:
    """A kernel that a compiler made lists every tensor that it reads or writes; how much it computes is unknown."""
    return Work("fused", None, bytes=moved(call))


# A kernel that looks rows up is given whole tables and touches a part of them.
_COMPILED = re.compile(r"triton_(?!.*(embedding|gather|scatter|index))")

# By the number of their arguments.
_POINTWISE = {
    1: ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "relu", "relu_", "silu"),
    2: (
        "mul", "mul_", "div", "div_", "gelu", "pow", "maximum", "minimum", "silu_backward", "tanh_backward",
        "sigmoid_backward", "clamp_min",
    ),
    3: (
        "add", "add_", "sub", "sub_", "where", "masked_fill", "masked_fill_", "clamp", "lerp", "gelu_backward",
        "threshold_backward", "native_dropout", "native_dropout_backward",
    ),
    4: ("addcmul", "addcdiv"),
}  # fmt: skip

_FORWARD_ATTENTION = {
    "aten::scaled_dot_product_attention": _attention(0, 5),
    "aten::_scaled_dot_product_flash_attention": _attention(0, 4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention(0, 4),
    "aten::_scaled_dot_product_efficient_attention": _attention(0, 6),
    "aten::_scaled_dot_product_cudnn_attention": _attention(0, 6),
    "aten::_cudnn_attention_forward": _attention(0, 10),
    "aten::_flash_attention_forward": _attention(0, 8, heads_first=False),
    "aten::_efficient_attention_forward": _attention(0, 9, heads_first=False),
    "flash_attn::_flash_attn_forward": _attention(0, 5, heads_first=False),
}

_BACKWARD_ATTENTION = {
    "aten::_scaled_dot_product_flash_attention_backward": _attention(1, 11, backward=True),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention(1, 7, backward=True),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention(1, 11, backward=True),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention(1, 14, backward=True),
    "aten::_cudnn_attention_backward": _attention(1, 14, backward=True),
    "aten::_flash_attention_backward": _attention(1, 11, heads_first=False, backward=True),
    "aten::_efficient_attention_backward": _attention(1, None, heads_first=False, backward=True),
    "flash_attn::_flash_attn_backward": _attention(1, None, heads_first=False, backward=True),
}

FORMULAS: Mapping[str, Callable[[Call], Work]] = {
    "aten::mm": _out_product(0, 1, 2),
    "aten::bmm": _out_product(0, 1, 2),
    "aten::addmm": _out_product(1, 2, 5),
    "aten::baddbmm": _out_product(1, 2, 5),
    "aten::_addmm_activation": _out_product(1, 2, 5),
    "aten::_scaled_mm": _out_product(0, 1, 2),
    "aten::_int_mm": _out_product(0, 1, 2),
    "aten::linear": _linear,
    "aten::convolution": _convolution,
    "aten::convolution_backward": lambda call: _convolution(call, backward=True),
    **_FORWARD_ATTENTION,
    **_BACKWARD_ATTENTION,
    # Forward: mean 1, variance 3, normalise 2, scale and shift 2. Backward: 13, with both parameters' gradients.
    "aten::native_layer_norm": _each("norm", 8),
    "aten::native_layer_norm_backward": _each("norm", 13),
    "aten::native_group_norm": _each("norm", 8),
    "aten::native_batch_norm": _each("norm", 8),
    "aten::cudnn_batch_norm": _each("norm", 8),
    "aten::cudnn_batch_norm_backward": _each("norm", 13),
    "aten::_fused_rms_norm": _each("norm", 4),
    # Maximum, subtraction, exponential, sum, quotient; the gradient: product, sum, difference, product.
    "aten::_softmax": _each("softmax", 5),
    "aten::_log_softmax": _each("softmax", 5),
    "aten::_softmax_backward_data": _each("softmax", 4),
    "aten::_log_softmax_backward_data": _each("softmax", 4),
    "aten::embedding": _embedding,
    "aten::embedding_dense_backward": lambda call: Work("embedding", prod(call.shape(0))),
    "aten::copy_": _each("element-wise", 0, reads=0),
    "aten::fill_": _each("element-wise", 0, reads=0),
    "aten::sum": _each("element-wise", 1, writes=0),
    "aten::mean": _each("element-wise", 1, writes=0),
    **{f"aten::{name}": _pointwise(count) for count, names in _POINTWISE.items() for name in names},
    # Adam: first moment 3, second moment 4, bias corrections and root 4, decay and step 4.
    **{f"aten::_fused_adam{w}_": _lists("optimizer", 15) for w in ("", "w")},
    "aten::_fused_sgd_": _lists("optimizer", 4),
    **{
        f"aten::_foreach_{name}": _lists("optimizer", 0 if name == "copy" else 1)
        for name in ["add", "sub", "mul", "div", "sqrt", "copy"]
    },
    **{f"aten::_foreach_{name}": _lists("optimizer", 3) for name in ["lerp", "addcmul", "addcdiv"]},
}
"""By operator. Of nested operators with a formula the innermost counts."""
