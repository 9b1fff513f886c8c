"""FLOPs and bytes of operator calls, from their recorded shapes."""

import re
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct
from msgspec.structs import replace

from traceanalyzer.analyses.grouping import Groups, by_category, sums_at
from traceanalyzer.analyses.kernels import MATRIX_CATEGORIES, list_types, uses_tensor_cores
from traceanalyzer.analyses.operators.operator_tree import OperatorTree
from traceanalyzer.kinds import MOST_NAMES, Call, Shape, dtype_bytes, is_list, tensor_bytes
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    lengths_of,
    nowhere,
    picked,
    rows_named,
    rows_named_so,
    table_of,
    texts_of,
    with_columns,
)

# What one call does, by rules for kinds of operators that read the shapes of the call.
#
# FLOPs of products, attention and convolution are counted as `torch.utils.flop_counter` counts them: two for a
# multiply-add, a causal mask counted in full. Bytes are the least that must move: every input read once, every output
# written once.


class Work(Struct, frozen=True):
    """What one call does; `None` where shapes or element types do not tell.

    Attributes:
        flops: as `torch.utils.flop_counter` counts them.
        bytes: read and written.
        model_flops: the part that MFU counts: without what flash attention computes again in its backward pass.
        masked_flops: the part of `flops` that a causal mask makes unnecessary.
        list_elements: elements of lists of tensors read and written; their type stands in the kernel's name only.
        product: shapes of its two factors: `[8192, 1024] × [1024, 4096]`.
        family: gemm, attention, convolution, norm, softmax, embedding, element-wise, optimizer or fused.
        dtype: element type that it computes in, as recorded.
    """

    flops: int | None
    bytes: int | None = None
    model_flops: int = 0
    masked_flops: int = 0
    list_elements: int | None = None
    product: str | None = None
    family: str = "fused"
    dtype: str | None = None


def moved(call: Call, *outputs: Shape) -> int | None:
    """Bytes of the tensor arguments, and of outputs of the call's element type."""
    parts = [tensor_bytes(*tensor) for tensor in call.tensors] + [tensor_bytes(shape, call.dtype) for shape in outputs]
    return None if None in parts or not parts else sum(part for part in parts if part is not None)


def _product(call: Call, a: Shape, b: Shape) -> Work:
    """2·batch·m·n·k."""
    flops = 2 * prod(a) * b[-1]
    return Work(flops, moved(call, (*a[:-1], b[-1])), flops, product=f"{list(a)} × {list(b)}")


def product(call: Call, left: int, right: int, arguments: int) -> Work:
    """Of two arguments, the last of them possibly batched; Inductor records the output behind so many arguments."""
    call = Call(call.shapes[:arguments], call.dtypes[:arguments])
    return _product(call, call.shape(left), call.shape(right))


def linear(call: Call) -> Work:
    """Input times the transposed weight."""
    return _product(call, call.shape(0), call.shape(1, 2)[::-1])


def grouped(call: Call) -> Work:
    """Products of experts: rows of a 2-dimensional argument are shared out among the groups of the other."""
    a, b = call.shape(0), call.shape(1)
    flops = 2 * prod(a[-2:] if len(b) == 2 else a) * b[-1]
    return Work(flops, None, flops, product=f"{list(a)} × {list(b)}")


def convolution(call: Call, first: int) -> Work:
    """2 · positions · filter · channels in · channels out; the same again for each gradient that is asked for.

    The input stands at `first`; in a backward call behind the output's gradient.
    """
    x, weight = call.shape(first), call.shape(first + 1)
    transposed = bool(call.value(6 + first))
    out, times = call.shape(0), sum(map(bool, call.value(10)[:2])) if first else 1
    if not first:
        each_way = [part * (len(x) - 2) if len(part) == 1 else part for part in map(call.value, (3, 4, 5))]
        ways = zip(x[2:], weight[2:], *each_way, strict=True)
        out = (x[0], weight[0], *((n + 2 * pad - apart * (k - 1) - 1) // step + 1 for n, k, step, pad, apart in ways))
    flops = 2 * x[0] * prod((x if transposed else out)[2:]) * prod(weight) * times
    return Work(flops, moved(call, *((weight, x)[:times] if first else (out,))), flops)


def attention(call: Call, query: int, causal: int, length: int) -> Work:
    """Two products forward, four backward (query at 1), and one that the backward pass computes again (the scores).

    `query`, `key` and `value` stand at `query` and behind it; `length` is the dimension of lengths, heads are the other
    one in the middle. `causal` is the position of `is_causal` or a mask's type, 0 for none. Sequences of many lengths
    that are packed into one do not tell their work: only values, not recorded, do.
    """
    q, k, v = (call.shape(query + offset, 4) for offset in range(3))
    if any(dtype == "int" and len(shape) == 1 for shape, dtype in call.tensors):
        raise LookupError(query)
    pairs = 2 * prod(q[:3]) * k[length]
    scores, mix = pairs * q[3], pairs * v[3]
    model = (1 + query) * (scores + mix)
    flops = model + scores * query
    argument = call.arguments[causal].lower() if 0 < causal < len(call.arguments) else ""
    is_causal = q[length] == k[length] and argument not in ("", "false", "0", "none")
    masked = flops * (q[length] - 1) // (2 * q[length]) if is_causal else 0
    read = Call(call.shapes[: query + 3], call.dtypes[: query + 3])
    return Work(flops, moved(read, *((q, k, v) if query else ((*q[:3], v[3]),))), model, masked)


def each(call: Call, flops: int, reads: int, writes: int) -> Work:
    """So many FLOPs for each element of the first tensor; it is read and written so many times, the rest read."""
    shape, dtype = call.shape(0), call.tensors[0][1]
    total, one = moved(call), tensor_bytes(shape, dtype)
    return Work(flops * prod(shape), None if total is None or one is None else total + (reads + writes - 1) * one)


def pointwise(call: Call, arguments: int) -> Work:
    """One FLOP for each element of the broadcast result; an argument beyond these many is the output."""
    call = Call(call.shapes[:arguments], call.dtypes[:arguments])
    out = np.broadcast_shapes(*call.sizes) if call.sizes else call.shape(0)
    return Work(prod(out), moved(call, out))


def lists(call: Call, flops: int, read_from: int, *written: int) -> Work:
    """So many FLOPs for each element of the first list of tensors; lists from `read_from` on are read.

    The lists at the positions `written` are written, or a result as large. PyTorch records no shapes of a list of more
    than 30 tensors, and of no list the element types; a result that stands among the arguments has one.
    """
    counts = [sum(map(prod, shape)) if is_list(shape) else 0 for shape in call.shapes]
    if not is_list(call.shapes[0]):
        raise LookupError(0)
    elements = sum(counts[read_from:]) + sum(counts[place] for place in written)
    return Work(flops * counts[0], tensor_bytes((elements,), call.dtype), list_elements=elements)


def embedding(call: Call, flops: int) -> Work:
    """The indices and the rows that they name are read; the rows written, or, with FLOPs, added to the table."""
    (first, dtype), (indices, index_type) = call.tensors[:2]
    rows = first if flops else (*indices, call.shape(0, 2)[1])
    moved_rows, index = tensor_bytes(rows, dtype), tensor_bytes(indices, index_type)
    return Work(flops * prod(rows), None if moved_rows is None or index is None else index + 2 * moved_rows)


def fused(call: Call) -> Work:
    """A kernel that a compiler made lists every tensor that it reads or writes; how much it computes is unknown."""
    return Work(None, moved(call))


_COMPILED = re.compile(r"triton_(?!.*(embedding|gather|scatter|index))")
"""A kernel that looks rows up is given whole tables and touches a part of them."""

# Family | rule and its numbers | operators, of `aten::` without a namespace. FLOPs of an element: of a layer norm mean
# 1, variance 3, normalise 2, scale and shift 2, backward 13 with both parameters' gradients; of an RMS norm square,
# mean, normalise, scale, backward 9; of a softmax maximum, subtraction, exponential, sum, quotient, backward product,
# sum, difference, product; of Adam first moment 3, second moment 4, bias corrections and root 4, decay and step 4.
_TABLE = """
gemm         | product 0 1 2    | mm bmm _scaled_mm _int_mm
gemm         | product 1 2 5    | addmm baddbmm _addmm_activation
gemm         | linear           | linear
gemm         | grouped          | _grouped_mm _scaled_grouped_mm
convolution  | convolution 0    | convolution _convolution
convolution  | convolution 1    | convolution_backward
attention    | attention 0 4 2  | _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
attention    | attention 0 5 2  | scaled_dot_product_attention
attention    | attention 0 6 2  | _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
attention    | attention 0 10 2 | _cudnn_attention_forward
attention    | attention 0 5 1  | flash_attn::_flash_attn_forward
attention    | attention 0 8 1  | _flash_attention_forward
attention    | attention 0 9 1  | _efficient_attention_forward
attention    | attention 1 7 2  | _scaled_dot_product_flash_attention_for_cpu_backward
attention    | attention 1 11 2 | _scaled_dot_product_flash_attention_backward
attention    | attention 1 11 2 | _scaled_dot_product_efficient_attention_backward
attention    | attention 1 14 2 | _scaled_dot_product_cudnn_attention_backward _cudnn_attention_backward
attention    | attention 1 0 1  | flash_attn::_flash_attn_backward
attention    | attention 1 11 1 | _flash_attention_backward
attention    | attention 1 14 1 | _efficient_attention_backward
norm         | each 8 1 1       | native_layer_norm native_group_norm native_batch_norm cudnn_batch_norm
norm         | each 13 1 1      | native_layer_norm_backward native_group_norm_backward
norm         | each 13 1 1      | native_batch_norm_backward cudnn_batch_norm_backward
norm         | each 4 1 1       | _fused_rms_norm
norm         | each 9 1 1       | _fused_rms_norm_backward
softmax      | each 5 1 1       | _softmax _log_softmax
softmax      | each 4 1 1       | _softmax_backward_data _log_softmax_backward_data
embedding    | embedding 0      | embedding
embedding    | embedding 1      | embedding_dense_backward
element-wise | each 0 0 1       | copy_ fill_
element-wise | each 1 1 0       | sum mean
element-wise | each 0 1 1       | split_with_sizes_copy
element-wise | pointwise 1      | neg abs exp log sqrt rsqrt square reciprocal sin cos tanh sigmoid relu silu
element-wise | pointwise 2      | mul div gelu pow maximum minimum clamp_min
element-wise | pointwise 2      | silu_backward tanh_backward sigmoid_backward
element-wise | pointwise 3      | add sub where masked_fill clamp lerp gelu_backward threshold_backward
element-wise | pointwise 3      | native_dropout native_dropout_backward
element-wise | pointwise 4      | addcmul addcdiv
element-wise | lists 0 0 0      | cat _chunk_cat
element-wise | lists 0 1 0      | _foreach_copy
optimizer    | lists 1 0 0      | _foreach_add _foreach_sub _foreach_mul _foreach_div _foreach_sqrt _foreach_neg
optimizer    | lists 1 0 0      | _foreach_reciprocal
optimizer    | lists 3 0 0      | _foreach_lerp _foreach_addcmul _foreach_addcdiv
optimizer    | lists 4 0 0 2    | _fused_sgd_
optimizer    | lists 15 0 0 2 3 4 | _fused_adam_ _fused_adamw_
"""

Rule = tuple[str, Callable[..., Work], tuple[int, ...]]


def _rules() -> dict[str, Rule]:
    made: dict[str, Rule] = {}
    for line in _TABLE.strip().splitlines():
        family, rule, names = (cell.split() for cell in line.split("|"))
        known = family[0], globals()[rule[0]], tuple(map(int, rule[1:]))
        made |= {name if "::" in name else f"aten::{name}": known for name in names}
    return made


RULES = _rules()
"""By operator. Of nested operators with a rule the innermost counts, and those of `OWN_WORK` besides."""

OWN_WORK = ("aten::embedding_dense_backward", "aten::_chunk_cat", "aten::split_with_sizes_copy")
"""Operators whose rule leaves out those that they call: one that fills with zeros, copies of lists of addresses."""


def work(operator: str, call: Call) -> Work | None:
    """Work of one call; `None` for an operator without a rule or without the shapes that it needs."""
    # What works in place takes the arguments of what does not, and moves as much.
    rule = RULES.get(operator) or RULES.get(operator.removesuffix("_"))
    if _COMPILED.match(operator):
        rule = "fused", fused, ()
    if rule is None:
        return None
    family, formula, numbers = rule
    try:
        return replace(formula(call, *numbers), family=family, dtype=call.dtype)
    except (LookupError, TypeError, ValueError):
        return None


# The FLOPs and bytes of every recorded operator call, each counted once, and the GPU operations that did them.


_KEY = ["name", "shapes", "dtypes", "arguments"]
_QUANTITIES = ("flops", "model_flops", "masked_flops", "bytes", "list_elements")
_TEXTS = ("family", "dtype", "product")
_COLUMNS = (*_TEXTS, *_QUANTITIES)
_MOST = 1 << 56
"""No call does or moves as much: shapes that ask for it are damage, and sums of it would not be exact."""


class OperatorWork(Struct, frozen=True):
    """Work of the operators of a rank.

    Attributes:
        calls: a row for each operator that counts: `row` in `host_ops`, `family`, `flops`, `model_flops`,
            `masked_flops`, `bytes` (as in `Work`; of lists of tensors by the types that the kernel's name has),
            `dtype`, `product`, `gpu_ops`, `gpu_ns` and `on_tensor_cores` (whether its kernels use them; NA when no name
            says).
        of_op: for each GPU operation the row in `calls` that it works for, -1 for none.
    """

    calls: pd.DataFrame
    of_op: np.ndarray

    @classmethod
    def of(cls, trace: RankTrace, tree: OperatorTree) -> "OperatorWork":
        """Find the operators that count: `OWN_WORK`, and the innermost with a rule; matrix work apart."""
        groups = Groups.of(trace.host_ops, _KEY, by_appearance=True, with_absent=True)
        work_rows = [*map(_work_row, *(texts_of(names).tolist() for names in groups.keys.values()))]
        columns: Any = (
            dict(zip(_COLUMNS, zip(*work_rows, strict=True), strict=True)) if work_rows else dict.fromkeys(_COLUMNS, ())
        )
        texts = {name: _category(columns.pop(name)) for name in _TEXTS}
        found = table_of(texts | {name: pd.array(own, dtype="Int64") for name, own in columns.items()})
        is_known = ~(found["flops"].array.isna() & found["bytes"].array.isna())[groups.of_row]
        is_model = rows_named(found, "family", *MATRIX_CATEGORIES)[groups.of_row]
        counts = rows_named(trace.host_ops, "name", *OWN_WORK) & is_known
        for kind in (is_model, ~is_model):
            counts |= kind & is_known & (tree.nesting.summed_up(kind & is_known) == 1)
        rows, of_op = _on_this_gpu(trace, *_calls_of_ops(tree, counts))
        calls = with_columns(picked(found, groups.of_row[rows]), row=rows)
        calls = with_columns(_with_list_types(trace, calls, of_op), **_gpu_columns(trace, of_op, len(rows)))
        return cls(calls.drop(columns="list_elements"), of_op)


def _category(texts: Any) -> pd.Categorical:
    codes, names = pd.factorize(np.array(texts, dtype=object), sort=True)
    return pd.Categorical.from_codes(codes, categories=pd.Index(names, dtype="str"))


@lru_cache(MOST_NAMES)
def _work_row(name: str, *texts: str | None) -> tuple[Any, ...]:
    found = work(name, Call.parse(*texts))
    if found is None:
        return (None,) * len(_COLUMNS)
    numbers = [getattr(found, quantity) for quantity in _QUANTITIES]
    called = (getattr(found, name) for name in _TEXTS)
    return (*called, *(own if own is None or 0 <= own < _MOST else None for own in numbers))


def _calls_of_ops(tree: OperatorTree, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The operators that count, and for each GPU operation the position among them of the one it works for."""
    rows = np.flatnonzero(counts)
    position = nowhere(len(counts) + 1)
    position[rows] = np.arange(len(rows))
    nearest = np.append(tree.nesting.handed_down(counts), NONE)
    return rows, position[nearest[np.maximum(tree.owner, NONE)]]


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
    is_of_list = np.append(calls["list_elements"].notna().to_numpy(), False)
    types = by_category(trace.gpu_ops["name"].array, _list_type)
    ops = np.flatnonzero(is_of_list[of_op] & ~pd.isna(types))
    if not len(ops):
        return calls
    call, first = np.unique(of_op[ops], return_index=True)
    found = pd.DataFrame(types[ops[first]].tolist(), call, ["dtype", "element"])
    moved = (calls["list_elements"].loc[call].astype("float64") * found["element"]).round().astype("Int64")
    bytes_, dtype = (own.reindex(calls.index) for own in (moved, found["dtype"]))
    return calls.assign(
        bytes=bytes_.fillna(calls["bytes"]), dtype=dtype.fillna(calls["dtype"].astype("object")).astype("category")
    )


@lru_cache(MOST_NAMES)
def _list_type(kernel: str) -> tuple[str, float] | None:
    """Type that it writes, and bytes of an element: a copy between two types moves as many of each."""
    types = list_types(kernel)
    sizes = [known for name in types if (known := dtype_bytes(name)) is not None]
    return (types[0], sum(sizes) / len(sizes)) if sizes and len(sizes) == len(types) else None


def _gpu_columns(trace: RankTrace, of_op: np.ndarray, count: int) -> dict[str, Any]:
    held = trace.counted & (of_op != NONE)
    says = by_category(trace.gpu_ops["name"].array, uses_tensor_cores)
    yes, no = (np.bincount(of_op[held & (says == answer)], minlength=count) for answer in (True, False))
    return {
        "gpu_ops": np.bincount(of_op[held], minlength=count),
        "gpu_ns": sums_at(of_op[held], lengths_of(trace.gpu_ops)[held], count),
        "on_tensor_cores": pd.arrays.BooleanArray(yes > 0, (yes == 0) & (no == 0)),
    }


# Which model FLOPs a compiled backward pass repeats of its forward pass, as a checkpointed one does.


def compiled_recompute(
    trace: RankTrace, tree: OperatorTree, operators: np.ndarray, model_flops: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of compiled autograd nodes in `host_ops`, and by how much their FLOPs exceed twice their forward passes'.

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
    compiled = rows_named_so(trace.host_ops, lambda name: name.endswith("CompiledFunctionBackward"))
    if not compiled.any():
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    # A node is recorded twice, as the engine's call and as the function inside it.
    is_inside = tree.nesting.handed_down(compiled, including_self=False) != NONE
    rows = np.flatnonzero(compiled & ~is_inside & (tree.forward != NONE))
    total = tree.nesting.summed_up(sums_at(operators, model_flops, len(compiled)))
    return rows, np.maximum(total[rows] - 2 * total[tree.forward[rows]], 0)
