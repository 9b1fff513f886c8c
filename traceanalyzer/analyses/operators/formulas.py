"""Formulas for the FLOPs and bytes of kinds of operators; each reads the shapes of one call.

FLOPs of products, attention and convolution are counted as `torch.utils.flop_counter` counts them: two for a
multiply-add, a causal mask counted in full. Bytes are the least that must move: every input read once, every output
written once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from traceanalyzer.analyses.operators.operator_call import Call, Shape, moved, size


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
    factors: tuple[Shape, Shape] | None = None


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


def _out_positions(call: Call, x: Shape, weight: Shape) -> list[int]:
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
