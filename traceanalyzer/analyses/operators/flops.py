"""FLOPs and bytes of operator calls, from their recorded shapes."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import named
from traceanalyzer.analyses.grouping import Groups, by_category, sums_at
from traceanalyzer.analyses.kernels.kernel_names import list_types, uses_tensor_cores
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.kinds import dtype_bytes
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_of,
    picked,
    rows_named,
    rows_named_so,
    table_of,
    texts_of,
    with_columns,
)

# The arguments of an operator's call as a trace records them, and the bytes that they hold.


OperatorCallShape = tuple[int, ...]

MOST_CALLS = 16_384
"""Of distinct ones are remembered: the ranks of a job make the same."""


class Call(Struct, frozen=True):
    """The recorded arguments of a call: a shape for each tensor, nested for lists of tensors, empty for the rest."""

    shapes: tuple[Any, ...]
    dtypes: tuple[str, ...]
    values: tuple[str, ...] = ()

    @classmethod
    @lru_cache(MOST_CALLS)
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

    def shape(self, position: int, ndim: int | None = None) -> OperatorCallShape:
        """Shape of an argument.

        Raises:
            LookupError: it is no tensor, or not of that many dimensions.
        """
        shape: OperatorCallShape = self.shapes[position]
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

    def tensors(self) -> list[tuple[OperatorCallShape, str]]:
        """Shape and element type of each tensor argument; a list of tensors has no element types."""
        pairs = zip(self.shapes, self.dtypes, strict=False)
        return [(shape, dtype) for shape, dtype in pairs if shape and isinstance(shape[0], int)]

    @property
    def dtype(self) -> str | None:
        """Element type of the first tensor of floating point, else of the first tensor."""
        types = [dtype for _, dtype in self.tensors()]
        return next((t for t in types if not t.startswith(("long", "int", "bool"))), types[0] if types else None)


def size(shape: OperatorCallShape, dtype: str | None) -> int | None:
    """Bytes of a tensor; `None` when the element type is unknown."""
    element = dtype_bytes(dtype) or _C_TYPES.get(dtype or "")
    return None if element is None else prod(shape) * element


def moved(call: Call, *outputs: OperatorCallShape, skip: int = 0) -> int | None:
    """Bytes of the tensor arguments after the first `skip`, and of outputs of the call's element type."""
    parts = [size(shape, dtype) for shape, dtype in call.tensors()[skip:]]
    parts += [size(shape, call.dtype) for shape in outputs]
    return None if None in parts or not parts else sum(part for part in parts if part is not None)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


_C_TYPES = {"long int": 8, "signed char": 1, "unsigned char": 1, "short int": 2, "c10::complex<float>": 8}
_C_TYPES |= {f"OpaqueType<{count}u>": count for count in (1, 2, 4, 8, 16)}  # a kernel that only moves elements


# Formulas for the FLOPs and bytes of kinds of operators; each reads the shapes of one call.
#
# FLOPs of products, attention and convolution are counted as `torch.utils.flop_counter` counts them: two for a
# multiply-add, a causal mask counted in full. Bytes are the least that must move: every input read once, every output
# written once.


@dataclass(frozen=True, slots=True)
class Work:
    """What one call does; `None` where shapes or element types do not tell.

    Attributes:
        family: gemm, attention, convolution, norm, softmax, embedding, element-wise, optimizer or fused.
        flops: as `torch.utils.flop_counter` counts them.
        model_flops: the part that MFU counts: without what flash attention computes again in its backward pass.
        masked_flops: the part of `flops` that a causal mask makes unnecessary.
        bytes: read and written.
        list_elements: elements of lists of tensors read and written; their type stands in the kernel's name only.
        dtype: element type that it computes in, as recorded.
        factors: shapes of a product's two factors.
    """

    family: str
    flops: int | None
    model_flops: int = 0
    masked_flops: int = 0
    bytes: int | None = None
    list_elements: int | None = None
    dtype: str | None = None
    factors: tuple[OperatorCallShape, OperatorCallShape] | None = None


def product(left: int, right: int, arguments: int) -> Callable[[Call], Work]:
    """Matrix product of two arguments, the last of them possibly batched: 2·batch·m·n·k.

    An argument beyond these many is the output, as Inductor records it.
    """

    def formula(call: Call) -> Work:
        given = Call(call.shapes[:arguments], call.dtypes[:arguments])
        a, b = given.shape(left), given.shape(right)
        flops = 2 * prod(a) * b[-1]
        return Work("gemm", flops, flops, bytes=moved(given, (*a[:-1], b[-1])), factors=(a, b))

    return formula


def linear(call: Call) -> Work:
    """Input times the transposed weight."""
    x, weight = call.shape(0), call.shape(1, 2)
    flops = 2 * prod(x) * weight[0]
    return Work("gemm", flops, flops, bytes=moved(call, (*x[:-1], weight[0])), factors=(x, weight[::-1]))


def grouped_product(call: Call) -> Work:
    """Products of experts: rows of a 2-dimensional argument are shared out among the groups of the other."""
    a, b = call.shape(0), call.shape(1)
    flops = 2 * prod(a[-2:] if len(b) == 2 else a) * b[-1]
    return Work("gemm", flops, flops, factors=(a, b))


def convolution(call: Call, *, backward: bool = False) -> Work:
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


def _out_positions(call: Call, x: OperatorCallShape, weight: OperatorCallShape) -> list[int]:
    stride, padding, dilation = (call.value(position) for position in (3, 4, 5))
    dims = range(len(x) - 2)
    wide = [tuple(part) * len(dims) if len(part) == 1 else tuple(part) for part in (stride, padding, dilation)]
    return [(x[d + 2] + 2 * wide[1][d] - wide[2][d] * (weight[d + 2] - 1) - 1) // wide[0][d] + 1 for d in dims]


def attention(query: int, causal: int | None, heads_first: bool, *, backward: bool) -> Callable[[Call], Work]:
    """Two products forward, four backward, and one that the backward pass computes again (the scores).

    `query`, `key` and `value` stand at `query` and the two positions after it, (batch, heads, length, width), or
    (batch, length, heads, width) when not `heads_first`. `causal` is the position of `is_causal`.
    """

    def formula(call: Call) -> Work:
        q, k, v = (call.shape(query + offset, 4) for offset in range(3))
        if _has_lengths(call):
            raise LookupError(query)
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


def _has_lengths(call: Call) -> bool:
    """Whether sequences of many lengths are packed into one: only their values, not recorded, tell the work."""
    return any(dtype == "int" and len(shape) == 1 for shape, dtype in call.tensors())


def _is_causal(call: Call, position: int | None, is_square: bool) -> bool:
    try:
        return position is not None and is_square and bool(call.value(position))
    except LookupError:
        return False


def each(family: str, flops: int, *, reads: int = 1, writes: int = 1) -> Callable[[Call], Work]:
    """So many FLOPs for each element of the first tensor; it is read and written so many times, the rest read."""

    def formula(call: Call) -> Work:
        first = call.shape(0)
        rest, one = moved(call, skip=1) if len(call.tensors()) > 1 else 0, size(first, call.tensors()[0][1])
        total = None if rest is None or one is None else rest + (reads + writes) * one
        return Work(family, flops * prod(first), bytes=total)

    return formula


def pointwise(arguments: int) -> Callable[[Call], Work]:
    """One FLOP for each element of the broadcast result; an argument beyond these many is the output."""

    def formula(call: Call) -> Work:
        inputs = Call(call.shapes[:arguments], call.dtypes[:arguments])
        shapes = [shape for shape, _ in inputs.tensors()]
        wide = max(map(len, shapes))
        padded = [(1,) * (wide - len(shape)) + shape for shape in shapes]
        out = tuple(max(sizes) for sizes in zip(*padded, strict=True))
        return Work("element-wise", prod(out), bytes=moved(inputs, out))

    return formula


def lists(flops: int, *, written: tuple[int, ...] = (0,), read_from: int = 0) -> Callable[[Call], Work]:
    """So many FLOPs for each element of the first list of tensors; lists from `read_from` on are read.

    The lists at the positions `written` are written, or a result as large. PyTorch records no shapes of a list of more
    than 30 tensors, and of no list the element types; a result that stands among the arguments has one.
    """

    def formula(call: Call) -> Work:
        counts = [sum(map(prod, shape)) if _is_list(shape) else 0 for shape in call.shapes]
        if not _is_list(call.shapes[0]):
            raise LookupError(0)
        elements = sum(counts[read_from:]) + sum(counts[place] for place in written)
        family = "optimizer" if flops else "element-wise"
        return Work(family, flops * counts[0], bytes=size((elements,), call.dtype), list_elements=elements)

    return formula


def _is_list(shape: Any) -> bool:
    return bool(shape) and isinstance(shape[0], tuple)


def embedding(call: Call) -> Work:
    """No arithmetic; the indices and the rows they name are read, the rows written."""
    table, indices = call.shape(0, 2), call.shape(1)
    row = size((table[1],), call.tensors()[0][1])
    index = size(indices, call.tensors()[1][1])
    total = None if row is None or index is None else index + 2 * prod(indices) * row
    return Work("embedding", 0, bytes=total)


def embedding_backward(call: Call) -> Work:
    """Every row of the gradient is read and added to the row of the table that its index names."""
    gradient, indices = call.shape(0), call.shape(1)
    rows, index = size(gradient, call.tensors()[0][1]), size(indices, call.tensors()[1][1])
    return Work("embedding", prod(gradient), bytes=None if rows is None or index is None else index + 2 * rows)


def fused(call: Call) -> Work:
    """A kernel that a compiler made lists every tensor that it reads or writes; how much it computes is unknown."""
    return Work("fused", None, bytes=moved(call))


# How many FLOPs one call of an operator takes and how many bytes it moves: the formula of every operator.


MODEL_FAMILIES = ("gemm", "attention", "convolution")
"""Families whose FLOPs are the model's: what MFU counts."""


def work(operator: str, call: Call | None) -> Work | None:
    """Work of one call; `None` for an operator without a formula or without the shapes that it needs."""
    # What works in place takes the arguments of what does not, and moves as much.
    formula = FORMULAS.get(operator) or FORMULAS.get(operator.removesuffix("_"))
    formula = fused if _COMPILED.match(operator) else formula
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
    "aten::mm": product(0, 1, 2),
    "aten::bmm": product(0, 1, 2),
    "aten::addmm": product(1, 2, 5),
    "aten::baddbmm": product(1, 2, 5),
    "aten::_addmm_activation": product(1, 2, 5),
    "aten::_scaled_mm": product(0, 1, 2),
    "aten::_int_mm": product(0, 1, 2),
    "aten::linear": linear,
    "aten::convolution": convolution,
    "aten::_convolution": convolution,
    "aten::convolution_backward": lambda call: convolution(call, backward=True),
    "aten::_grouped_mm": grouped_product,
    "aten::_scaled_grouped_mm": grouped_product,
    **{name: attention(*places, backward=name.endswith("_backward")) for name, places in ATTENTION.items()},
    # Forward: mean 1, variance 3, normalise 2, scale and shift 2. Backward: 13, with both parameters' gradients.
    "aten::native_layer_norm": each("norm", 8),
    "aten::native_layer_norm_backward": each("norm", 13),
    "aten::native_group_norm": each("norm", 8),
    "aten::native_group_norm_backward": each("norm", 13),
    "aten::native_batch_norm": each("norm", 8),
    "aten::native_batch_norm_backward": each("norm", 13),
    "aten::cudnn_batch_norm": each("norm", 8),
    "aten::cudnn_batch_norm_backward": each("norm", 13),
    # Square, mean, normalise, scale; the gradient 9.
    "aten::_fused_rms_norm": each("norm", 4),
    "aten::_fused_rms_norm_backward": each("norm", 9),
    # Maximum, subtraction, exponential, sum, quotient; the gradient: product, sum, difference, product.
    "aten::_softmax": each("softmax", 5),
    "aten::_log_softmax": each("softmax", 5),
    "aten::_softmax_backward_data": each("softmax", 4),
    "aten::_log_softmax_backward_data": each("softmax", 4),
    "aten::embedding": embedding,
    "aten::embedding_dense_backward": embedding_backward,
    "aten::copy_": each("element-wise", 0, reads=0),
    "aten::fill_": each("element-wise", 0, reads=0),
    "aten::sum": each("element-wise", 1, writes=0),
    "aten::mean": each("element-wise", 1, writes=0),
    **{f"aten::{name}": pointwise(count) for count, names in _POINTWISE.items() for name in names},
    # Adam: first moment 3, second moment 4, bias corrections and root 4, decay and step 4. Gradients are not written.
    **{f"aten::_fused_adam{w}_": lists(15, written=(0, 2, 3, 4)) for w in ("", "w")},
    "aten::_fused_sgd_": lists(4, written=(0, 2)),
    **{f"aten::_foreach_{name}": lists(1) for name in ["add", "sub", "mul", "div", "sqrt", "neg", "reciprocal"]},
    **{f"aten::_foreach_{name}": lists(3) for name in ["lerp", "addcmul", "addcdiv"]},
    "aten::_foreach_copy": lists(0, read_from=1),
    "aten::cat": lists(0),
    "aten::_chunk_cat": lists(0),
    "aten::split_with_sizes_copy": each("element-wise", 0),
}
"""By operator. Of nested operators with a formula the innermost counts, and those of `OWN_WORK` besides."""


# The FLOPs and bytes of every recorded operator call, each counted once, and the GPU operations that did them.


_KEY = ["name", "shapes", "dtypes", "arguments"]
_QUANTITIES = ("flops", "model_flops", "masked_flops", "bytes", "list_elements")
_MOST = 1 << 56
"""No call does or moves as much: shapes that ask for it are damage, and sums of it would not be exact."""


class OperatorWork(Struct, frozen=True):
    """Work of the operators of a rank.

    Attributes:
        calls: a row for each operator that counts: `row` in `host_ops`, `family`, `flops`, `model_flops`,
            `masked_flops`, `bytes` (as in `work.Work`; of lists of tensors by the types that the kernel's name has),
            `dtype`, `gpu_ops`, `gpu_ns` and `on_tensor_cores` (whether
            its kernels use them; NA when no name says).
        of_op: for each GPU operation the row in `calls` that it works for, -1 for none.
    """

    calls: pd.DataFrame
    of_op: np.ndarray

    @classmethod
    def of(cls, trace: RankTrace, tree: OperatorTree) -> "OperatorWork":
        """Find the operators that count: `OWN_WORK`, and the innermost with a formula; matrix work apart."""
        found, of_row = _distinct_work(trace.host_ops)
        is_known = ~(found["flops"].array.isna() & found["bytes"].array.isna())
        is_model, is_known = rows_named(found, "family", *MODEL_FAMILIES)[of_row], is_known[of_row]
        has_own = rows_named(trace.host_ops, "name", *OWN_WORK)
        counts = _innermost(tree, is_model & is_known) | _innermost(tree, ~is_model & is_known) | (has_own & is_known)
        rows, of_op = _on_this_gpu(trace, *_calls_of_ops(tree, counts))
        calls = with_columns(picked(found, of_row[rows]), row=rows)
        told = columns_of(_with_list_types(trace, calls, of_op)) | _gpu_columns(trace, of_op, len(rows))
        return cls(table_of({name: values for name, values in told.items() if name != "list_elements"}), of_op)


def _distinct_work(ops: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Work of each distinct call by itself, and which of them each operator is."""
    groups = Groups.of(ops, _KEY, by_appearance=True, with_absent=True)
    rows = [*map(_row, *(texts_of(names).tolist() for names in groups.keys.values()))]
    family, *quantities, dtype = zip(*rows, strict=True) if rows else [()] * (len(_QUANTITIES) + 2)
    integers = {name: pd.array(values, dtype="Int64") for name, values in zip(_QUANTITIES, quantities, strict=True)}
    every = np.arange(len(rows))
    texts = {name: named(values, every) for name, values in (("family", family), ("dtype", dtype))}
    return table_of({"family": texts["family"], **integers, "dtype": texts["dtype"]}), groups.of_row


@lru_cache(MOST_CALLS)
def _row(name: str, shapes: str | None, dtypes: str | None, arguments: str | None) -> tuple[Any, ...]:
    found = work(name, Call.parse(shapes, dtypes, arguments))
    if found is None:
        return (None,) * (len(_QUANTITIES) + 2)
    told = [getattr(found, name) for name in _QUANTITIES]
    return (found.family, *(value if value is None or 0 <= value < _MOST else None for value in told), found.dtype)


def _innermost(tree: OperatorTree, marked: np.ndarray) -> np.ndarray:
    """Marked operators that hold no other marked one."""
    return marked & (tree.nesting.summed_up(marked) == 1)


def _calls_of_ops(tree: OperatorTree, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The operators that count, and for each GPU operation the position among them of the one it works for."""
    rows = np.flatnonzero(counts)
    position = np.full(len(counts) + 1, NONE, dtype=np.int64)
    position[rows] = np.arange(len(rows))
    nearest = np.append(tree.nesting.handed_down(counts), NONE)
    owner = np.where(tree.owner >= 0, tree.owner, len(counts))
    return rows, position[nearest[owner]]


def _on_this_gpu(trace: RankTrace, rows: np.ndarray, of_op: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same without operators that launched nothing here, where the process launches on other GPUs, too."""
    has_work = np.bincount(of_op[of_op != NONE], minlength=len(rows)) > 0
    if has_work.all() or not _launches_elsewhere(trace):
        return rows, of_op
    place = np.append(np.where(has_work, np.cumsum(has_work) - 1, NONE), NONE)
    return rows[has_work], place[of_op]


def _launches_elsewhere(trace: RankTrace) -> bool:
    """Whether calls were answered by operations of which none is this GPU's."""
    own, calls = array_of(trace.gpu_ops, "correlation"), trace.api_calls
    if 2 * np.count_nonzero(own > 0) < len(own):
        return False
    answered = array_of(calls, "correlation")[array_of(calls, "has_gpu_op")]
    return not pd.Index(answered).isin(own).all()


def _with_list_types(trace: RankTrace, calls: pd.DataFrame, of_op: np.ndarray) -> pd.DataFrame:
    """Bytes and element type of calls on lists of tensors, by the first of their kernels whose name has types."""
    dtypes = calls["dtype"].array
    texts = dtypes.categories.tolist()
    has_list = ~calls["list_elements"].array.isna()
    if not has_list.any():
        return with_columns(calls, dtype=named(texts, dtypes.codes))
    names = trace.gpu_ops["name"].array
    types = [_list_type(name) for name in names.categories.tolist()]
    is_told = np.array([*(size is not None for _, size in types), False])[names.codes]
    told = np.flatnonzero((of_op != NONE) & is_told)
    call, first = np.unique(of_op[told], return_index=True)
    call, code = call[has_list[call]], names.codes[told[first]][has_list[call]]
    element_bytes = np.array([size or 0.0 for _, size in types])[code]
    moved, is_absent = calls["bytes"].array.copy(), np.zeros(len(call), dtype=bool)
    elements = calls["list_elements"].to_numpy(dtype=np.float64, na_value=0)[call]
    moved[call] = pd.arrays.IntegerArray(np.round(elements * element_bytes).astype(np.int64), is_absent)
    place = dtypes.codes.astype(np.int64)
    place[call] = len(texts) + code
    return with_columns(calls, bytes=moved, dtype=named([*texts, *(dtype for dtype, _ in types)], place))


@lru_cache(MOST_CALLS)
def _list_type(kernel: str) -> tuple[str | None, float | None]:
    """Type that it writes, and bytes of an element: a copy between two types moves as many of each."""
    types = list_types(kernel)
    sizes = [known for name in types if (known := size((1,), name)) is not None]
    return (types[0], sum(sizes) / len(sizes)) if sizes and len(sizes) == len(types) else (None, None)


def _gpu_columns(trace: RankTrace, of_op: np.ndarray, count: int) -> dict[str, Any]:
    ops = trace.gpu_ops
    held = trace.counted & (of_op != NONE)
    durations = array_of(ops, "end_ns") - array_of(ops, "start_ns")
    said = by_category(ops["name"].array, uses_tensor_cores)
    yes, no = (np.bincount(of_op[held & (said == answer)], minlength=count) for answer in (True, False))
    return {
        "gpu_ops": np.bincount(of_op[held], minlength=count),
        "gpu_ns": sums_at(of_op[held], durations[held], count),
        "on_tensor_cores": pd.arrays.BooleanArray(yes > 0, (yes == 0) & (no == 0)),
    }


# The shapes of an operator's inputs, of the JSON text in which traces have them.


RecordedShapesShape = tuple[int, ...]


class Inputs(Struct, frozen=True):
    """An operator's inputs.

    Attributes:
        each: the shape of each; `None` of what is none: a number, a list, or not recorded.
        listed: those of the tensors of a list that comes first, as optimizers have it.
    """

    each: tuple[RecordedShapesShape | None, ...] = ()
    listed: tuple[RecordedShapesShape, ...] = ()

    @property
    def first(self) -> RecordedShapesShape | None:
        """The shape of the first one."""
        return self.each[0] if self.each else None

    @property
    def tensors(self) -> tuple[RecordedShapesShape, ...]:
        """Shapes of those that have one."""
        return tuple(shape for shape in self.each if shape)


@lru_cache(16_384)
def inputs_of(shapes: str) -> Inputs:
    """Of `[[8192, 64], [100], []]` three, of `[[[4, 2], [3]], []]` two, the first one a list; none of any other text.

    Ranks of one program have the same: each text is read once.
    """
    try:
        told = json.loads(shapes)
    except ValueError:
        return Inputs()
    if not isinstance(told, list):
        return Inputs()
    first = told[0] if told and isinstance(told[0], list) else []
    return Inputs(tuple(map(_shape, told)), tuple(shape for shape in map(_shape, first) if shape))


def _shape(told: Any) -> RecordedShapesShape | None:
    is_shape = isinstance(told, list) and told and all(isinstance(size, int) for size in told)
    return tuple(told) if is_shape else None


# Which model FLOPs a compiled backward pass repeats of its forward pass, as a checkpointed one does.


_NODE = "CompiledFunctionBackward"


def compiled_recompute(
    trace: RankTrace, tree: OperatorTree, operators: np.ndarray, model_flops: np.ndarray
) -> pd.DataFrame:
    """Rows `row` (in `host_ops`, the autograd node) and `flops`: what exceeds twice the forward pass's FLOPs.

    A compiled graph records no autograd, so that its operators do not say what they repeat. But a product, an
    attention or a convolution has twice its own FLOPs of gradients at most: a compiled backward pass with more than
    twice the model FLOPs of the compiled forward pass that it belongs to repeats the difference. That is all of it
    where every operand needs a gradient, else a part.

    Args:
        trace: of a rank.
        tree: of its operators.
        operators: rows in `host_ops` of those with model FLOPs.
        model_flops: of each of them.
    """
    rows = _outermost_nodes(trace, tree)
    own = np.zeros(len(trace.host_ops), dtype=np.int64)
    np.add.at(own, operators, model_flops)
    total = tree.nesting.summed_up(own)
    return table_of({"row": rows, "flops": np.maximum(total[rows] - 2 * total[tree.forward[rows]], 0)})


def _outermost_nodes(trace: RankTrace, tree: OperatorTree) -> np.ndarray:
    compiled = rows_named_so(trace.host_ops, lambda name: name.endswith(_NODE))
    if not compiled.any():
        return np.empty(0, dtype=np.int64)
    # A node is recorded twice, as the engine's call and as the function inside it.
    is_inside = tree.nesting.handed_down(compiled, including_self=False) != NONE
    return np.flatnonzero(compiled & ~is_inside & (tree.forward != NONE))
