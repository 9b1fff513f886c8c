"""Findings about kernels: precision, efficiency, recomputation, layouts, sparse as dense."""

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.kernels.kernel_names import MATRIX_CATEGORIES, category
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.efficiency import Efficiency, Mfu
from traceanalyzer.analyses.operators.flops import RecordedShapesShape, inputs_of
from traceanalyzer.analyses.operators.operators import Categories, Operators, OperatorShapes
from traceanalyzer.analyses.phases.phases import ExposedCalls, Phases
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.basis import (
    CLEAR_GAIN_PCT,
    Basis,
    basis_of_operators,
    count_of_steps,
    plain,
    severity,
    steps_of_operators,
)
from traceanalyzer.findings.devices.unfused import WRITTEN_OUT
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.shares import most_gained_ns
from traceanalyzer.findings.stragglers.stragglers import late_by, said_with_gain
from traceanalyzer.findings.vendor_terms import infers, tools_of
from traceanalyzer.kinds.operators import dtype_bytes
from traceanalyzer.meaning.columns import digits, numbers, time_text
from traceanalyzer.meaning.gpus import Gpu, gpu_of, matrix_types
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import Severity, gain_said, rate, step_or_capture, within_whole
from traceanalyzer.model.tables import rows_where

# Rules about a busy GPU that does little: tensor cores unused, memory-bound kernels, low MFU.


MATRIX_PCT = 20.0
"""Matrix work off tensor cores in this share of a rank's compute kernels is worth a finding."""

MEMORY_BOUND_PCT = 50.0
LOW_MFU_PCT = 30.0

BUSY_PCT = 70.0
"""A GPU that computes in this share of its steps is bound by its kernels, not by its host or its peers."""

COVERED_PCT = 90.0
"""Below, MFU is too much of a lower bound to judge by."""

MEMORY_BOUND = ("element-wise", "norm", "softmax", "reduction")
"""Categories that fusing shortens. Look-ups in tables of embeddings move data, too, but nothing to fuse them with."""

_EFFICIENCY_MOST_ROWS = 5

_OTHER_TYPES = (
    ("bf16", "Compute in bfloat16 (torch.autocast)"),
    ("fp16", "Compute in float16 (torch.autocast, torch.amp.GradScaler)"),
)

_CAVEAT = (
    "Told by kernels' names. Other types round more: check the loss. Double precision and odd sizes may have to stay "
    "as they are."
)

_UNSURE = " GPUs before Ampere have neither, those before Volta no tensor cores."

_ALLOW_TF32 = ', or allow TF32: torch.set_float32_matmul_precision("high")'


def tensor_cores_unused(
    categories: Categories,
    efficiency: Efficiency,
    headline: Headline,
    ranks: Ranks,
    kernels: Kernels,
    episodes: Episodes,
    *,
    matrix_pct: float = MATRIX_PCT,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:
    """Matrix kernels whose names say that they run without tensor cores take a fifth of a rank's compute or more.

    And 3 % of a step, at least: of a GPU that hardly computes no kernels are worth changing, nor of one without tensor
    cores. Where that is so of ranks alone that are late by their compute, it is why they are.
    """
    table = categories.of_compute()
    if table.empty:
        return []
    matrix = table[table["category"].isin(MATRIX_CATEGORIES)].astype({"no_tensor_core_ns": "float64"})
    share = 100 * matrix.groupby("rank")["no_tensor_core_ns"].sum() / table.groupby("rank")["gpu_ns"].sum()
    share = share.dropna()
    if share.empty or share.max() < matrix_pct:
        return []
    table = _off_tensor_cores(share, headline, matrix_pct)
    if table.empty:
        return []
    per = rate(count_of_steps(headline.table))
    rank = int(table["off_tensor_cores_ns"].idxmax())
    of_step_pct = share[rank] / 100 * _compute_pct(headline).get(rank, 0.0)
    gpu, types = _gpu_and_types(ranks, kernels, rank)
    if of_step_pct < clear_gain_pct or types == frozenset():
        return []
    kind = "fp16" if types == frozenset({"fp16"}) else "tf32"
    gain_ns = _gain_by(kind, efficiency, table["off_tensor_cores_ns"][rank], rank, gpu)
    late = {late_by(episodes, own, "compute") for own in table.index}
    return [
        Finding(
            severity=_severity(of_step_pct),
            title=f"Matrix work runs without tensor cores: {_by_rank(table, per)}.{_saved(kind, gain_ns, rank)}",
            summary=f"Matrix work without tensor cores: {share[rank]:.0f}% of rank {rank}'s compute.",
            evidence=plain(table.head(_EFFICIENCY_MOST_ROWS).reset_index()),
            recommendation=f"{_advice(types)}.{_rates(gpu)}",
            caveat=f"{_CAVEAT}{_UNSURE if types is None else ''}{_supposed(kind, gain_ns)}",
            gain_ns=gain_ns,
            named=tuple(int(table.index[place]) for place in dict.fromkeys((0, len(table) - 1))),
            table="efficiency",
            part_of=late.pop() if len(late) == 1 else None,
            tells_why=True,
        )
    ]


def _advice(types: frozenset[str] | None) -> str:
    """What to compute in: of a GPU that is not known, as all of the last years can."""
    known = {"bf16", "tf32"} if types is None else types
    other = next(words for kind, words in _OTHER_TYPES if kind in known)
    return f"{other}{_ALLOW_TF32 if 'tf32' in known else ''}"


def _supposed(kind: str, gain_ns: int | None) -> str:
    if gain_ns is None:
        return ""
    return (
        f" The gain supposes {kind.upper()} on all ranks, and kernels as near to its peak as they are to that of FP32: "
        "expect less."
    )


def _saved(kind: str, gain_ns: int | None, rank: int) -> str:
    if gain_ns is None:
        return ""
    return f" In {kind.upper()} it takes {gain_said(time_text(gain_ns), is_bound=True)} less on rank {rank}."


def _off_tensor_cores(share: pd.Series, headline: Headline, least_pct: float) -> pd.DataFrame:
    """Each rank's matrix work without tensor cores in a mean step or the capture, where it is a large share."""
    held = headline.to_frame().set_index("rank")
    compute = held["compute_ns"].astype("float64") / held["steps"].astype("Float64").fillna(1).astype("float64")
    table = pd.DataFrame({"share_of_compute_pct": share, "off_tensor_cores_ns": share / 100 * compute})
    return (
        table[table["share_of_compute_pct"] >= least_pct].dropna().sort_values("off_tensor_cores_ns", ascending=False)
    )


def _by_rank(table: pd.DataFrame, per: str) -> str:
    """`87.4 ms a step on rank 1 (82 % of its compute), 51.1 ms on rank 0`; only both ends of many ranks."""
    times = [time_text(time_ns) for time_ns in table["off_tensor_cores_ns"]]
    first, share = table.index[0], table["share_of_compute_pct"].iloc[0]
    said = f"{times[0]}{per} on rank {first} ({share:.0f} % of its compute)"
    if len(table) == 1:
        return said
    least = f"{times[-1]} on rank {table.index[-1]}"
    return f"{said}, {least}" if len(table) == 2 else f"on {len(table)} ranks, {said} most, {least} least"


def memory_bound_kernels(
    categories: Categories,
    headline: Headline,
    ranks: Ranks,
    kernels: Kernels,
    phases: Phases,
    *,
    memory_bound_pct: float = MEMORY_BOUND_PCT,
    busy_pct: float = BUSY_PCT,
) -> list[Finding]:
    """A GPU that computes 70 % of the time spends half of it in kernels that move data and compute little."""
    table = categories.of_compute()
    if table.empty:
        return []
    moving = rows_where(table, table["category"].isin(MEMORY_BOUND)).groupby("rank")["gpu_ns"].sum()
    share = 100 * moving / table.groupby("rank")["gpu_ns"].sum()
    share = share[share.index.isin(_busy(headline, busy_pct))].dropna()
    if share.empty or share.max() < memory_bound_pct:
        return []
    rank = share.idxmax()
    shares = categories.to_frame()
    own = shares.loc[shares["rank"] == rank, ["rank", "category", "gpu_ops", "gpu_ns", "share_pct"]]
    return [
        Finding(
            severity="medium",
            title=f"{share[rank]:.0f} % of rank {rank}'s compute kernel time goes to element-wise, norm, softmax and "
            "similar kernels, which move data and compute little.",
            evidence=plain(own.head(_EFFICIENCY_MOST_ROWS)),
            recommendation=tools_of(ranks, kernels, phases=phases).fuse_moving,
            caveat="A small model or batch has little matrix work to begin with.",
            named=(int(rank),),
            part_of=WRITTEN_OUT,
        )
    ]


_RAISES = {
    False: "larger micro-batches, sizes that are multiples of 64, fused attention and less recomputation",
    True: "larger batches, sizes that are multiples of 64 and fused attention",
}
"""By whether nothing is trained."""


def low_mfu(
    mfu: Mfu,
    headline: Headline,
    episodes: Episodes,
    operators: Operators,
    *,
    low_mfu_pct: float = LOW_MFU_PCT,
    covered_flops_pct: float = COVERED_PCT,
    busy_pct: float = BUSY_PCT,
) -> list[Finding]:
    """A GPU that computes 70 % of the time does model FLOPs of less than 30 % of its peak.

    Not that of a rank which is late by its compute: what is wrong with that is said already.
    """
    table = mfu.known()
    if table.empty:
        return []
    late = {rank for row in said_with_gain(episodes) if row["cause"] == "compute" for rank in numbers(row["ranks"])}
    busy = [rank for rank in _busy(headline, busy_pct) if rank not in late]
    table = rows_where(table, is_true(table["covered_pct"] >= covered_flops_pct) & table["rank"].isin(busy))
    if table.empty:
        return []
    means = table.groupby("rank")["mfu_pct"].mean()
    if means.mean() >= low_mfu_pct:
        return []
    first = table.iloc[0]
    own = () if len(means) == len(headline.table) else tuple(sorted(map(int, means.index)))
    return [
        Finding(
            severity="low",
            title=f"{_whose(own)} busy, but model FLOPs are {means.mean():.0f} % of the peak of "
            f"{first['gpu']} in {first['element_type']} ({first['peak_tflops_per_s']:.0f} TFLOP/s).",
            evidence=plain(table[["rank", "step", "model_flops", "step_ns", "mfu_pct"]].head(_EFFICIENCY_MOST_ROWS)),
            recommendation=f"See which category takes the time; {_RAISES[infers(operators)]} raise it.",
            caveat="Step times are those under the profiler unless the run recorded its own.",
            named=own,
            is_of_ideal=True,
        )
    ]


def _whose(ranks: Sequence[int]) -> str:
    """Which GPUs a figure is of: in a pipeline often those of some stages only; none for all."""
    if not ranks:
        return "The GPUs are"
    listed = ", ".join(map(str, ranks))
    return f"The GPU of rank {listed} is" if len(ranks) == 1 else f"The GPUs of ranks {listed} are"


def _busy(headline: Headline, least_pct: float) -> list[int]:
    """Ranks whose GPU computes most of the time."""
    return [rank for rank, share in _compute_pct(headline).items() if share >= least_pct]


def _compute_pct(headline: Headline) -> Mapping[int, float]:
    table = headline.to_frame()
    known = table[table["compute_pct"].notna()]
    return {int(rank): float(share) for rank, share in zip(known["rank"], known["compute_pct"], strict=True)}


def _severity(share_pct: float) -> Severity:
    """By the share of the steps' time that could be shorter."""
    return "high" if share_pct >= 30 else "medium" if share_pct >= 10 else "low"


def _gain_by(kind: str, efficiency: Efficiency, off_ns: float, rank: int, gpu: Gpu | None) -> int | None:
    """What is left of the time at that type's rate is kept; `None` where other types than FP32 are or may be in it."""
    rates = {} if gpu is None else gpu.tflops
    table = efficiency.to_frame()
    off = table[(table["on_tensor_cores"] == False).fillna(value=False) & (table["rank"] == rank)]  # noqa: E712 - absent is neither
    if off.empty or not off["element_type"].eq("fp32").all() or not {"fp32", kind} <= set(rates):
        return None
    return round(off_ns * (1 - rates["fp32"] / rates[kind]))


def _gpu_and_types(ranks: Ranks, kernels: Kernels, rank: int) -> tuple[Gpu | None, frozenset[str] | None]:
    """A rank's GPU, and the types that its tensor cores compute in."""
    device = ranks.to_frame().set_index("rank")["device_name"].get(rank)
    device = device if isinstance(device, str) else None
    return gpu_of(device), matrix_types(device, kernels.table.loc[kernels.table["rank"] == rank, "name"])


def _rates(gpu: Gpu | None) -> str:
    if gpu is None or not gpu.tflops:
        return ""
    kinds = ("fp32", "tf32", "bf16") if "bf16" in gpu.tflops else ("fp32", "fp16")
    rates = [f"{gpu.tflops[kind]:.0f} in {kind.upper()}" for kind in kinds if kind in gpu.tflops]
    return f" Peak of {gpu.model} in TFLOP/s: {', '.join(rates)}."


# What kernels of some names cost a rank: what rules that know kernels by their names share.


_MOST_NAMED = 2


class NamedKernels(Struct, frozen=True):
    """Kernels of the rank that spends the largest share of its time in them.

    Attributes:
        rank: that rank.
        cost_ns: their part of its compute time, in a mean step (of the capture, without steps).
        pct: of a step.
        steps: how many complete ones there are; `None` for the whole capture.
        rows: the rank's, of the table of kernels; the longest first.
    """

    rank: int
    cost_ns: float
    pct: float
    steps: int | None
    rows: pd.DataFrame

    @property
    def names(self) -> str:
        """The two that take longest."""
        return " and ".join(dict.fromkeys(short_name(name) for name in self.rows["name"].head(_MOST_NAMED)))

    @property
    def cost(self) -> str:
        """`6.40 ms a step, 23 % of a step`."""
        whole = step_or_capture(self.steps)
        return f"{time_text(self.cost_ns)} {within_whole(self.steps)}, {self.pct:.0f} % of {whole}"


def named_kernels(
    headline: Headline, kernels: Kernels, is_such: Callable[[str], bool], least_pct: float
) -> NamedKernels | None:
    """Compute kernels of such names; `None` where they take less than `least_pct` of every rank's time."""
    if not len(headline) or not len(kernels):
        return None
    table = kernels.to_frame()
    compute = rows_where(table, table["kind"] == "compute")
    own = rows_where(compute, compute["name"].astype("str").map(is_such).astype(bool))
    part = own.groupby("rank")["total_ns"].sum() / compute.groupby("rank")["total_ns"].sum()
    held = headline.to_frame().set_index("rank")
    steps = count_of_steps(held)
    per = steps or 1
    cost_ns = (part * held["compute_ns"].astype("float64") / per).dropna()
    share = (100.0 * cost_ns / (held["window_ns"].astype("float64") / per)).dropna()
    if share.empty or not share.max() >= least_pct:
        return None
    rank = int(share.idxmax())
    rows = own[own["rank"] == rank].sort_values("total_ns", ascending=False)
    return NamedKernels(rank, float(cost_ns[rank]), float(share[rank]), steps, rows)


# Rules about matrix work in 64 bits, which models hardly ever need.


DOUBLE_PCT = 3.0
"""Of a rank's time, in matrix kernels of double precision."""

# cuBLAS' `dgemm`, CUTLASS' `d884gemm`, `f64f64` of both; hipBLASLt's `_DB_`, its letter of the type.
_DOUBLE = re.compile(r"\bdouble\b|f64|d884gemm|(?<![a-z])[dz]gem[mv]|_D[BD]_")


def double_precision(headline: Headline, kernels: Kernels, *, double_pct: float = DOUBLE_PCT) -> list[Finding]:
    """Matrix kernels whose names say that they compute in 64 bits take 3 % of a rank's time or more.

    No gain is said: what it takes in another precision depends on the GPU and the sizes.
    """
    own = named_kernels(headline, kernels, _is_such, double_pct)
    if own is None:
        return []
    return [
        Finding(
            severity=severity(own.pct),
            title=f"Rank {own.rank}'s matrix work runs in double precision ({own.names}): {own.cost}.",
            evidence=plain(own.rows[["rank", "name", "calls", "total_ns"]]),
            recommendation="Compute in float32, or in 16 bits (torch.autocast): NumPy's arrays are float64, and so is "
            "what torch.from_numpy makes of them, and a model after .double().",
            caveat="Told by kernels' names. What is meant to be exact (linear algebra, statistics) stays as it is.",
            named=(own.rank,),
            table="kernels",
        )
    ]


def _is_such(name: str) -> bool:
    return bool(_DOUBLE.search(name)) and category(name, "compute", None) in MATRIX_CATEGORIES


# Rules about sums by index: many rows that are added into few, and products with one-hot rows.


FEW_ROWS_PCT = 5.0
"""Of a step, that a GPU takes for such sums; for products with one-hot rows."""

ADDED_TIMES = 1_000.0
"""Elements that are added into each one of the result: so many atomic additions follow each other."""

_PUT = ("aten::index_put_", "aten::_index_put_impl_")
"""They take a list of indices, whose shapes are not recorded: what is put by them a thousand times a place is added.

Measured on an H100 (torch 2.11), 1,048,576 rows of 64 float32 values added into

| rows | `index_put_` | `index_add_` | backward of `embedding` | one-hot product | `segment_reduce`, sorting aside |
|---|---|---|---|---|---|
| 8 | 94 ms | 1.3 ms | 0.82 ms | 0.37 ms | 14 ms |
| 64 | 12 ms | 0.50 ms | 0.53 ms | 0.79 ms | 1.9 ms |
| 1,000 | 1.2 ms | 0.50 ms | 0.37 ms | 10 ms | 0.22 ms |

65,536 rows of 64, of 512, and 1,048,576 of one value are in the same order: a one-hot product of 8 rows takes 0.3 to
0.6 of the time of `index_add_`, of 64 rows mostly more.
"""

_ADD = ("aten::index_add_", "aten::index_add", "aten::scatter_add_", "aten::scatter_add", *_PUT)

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")

_FEW_ROWS_MOST_ROWS = 5


def sums_on_few_rows(
    headline: Headline, steps: Steps, operator_shapes: OperatorShapes, *, few_rows_pct: float = FEW_ROWS_PCT,
    added_times: float = ADDED_TIMES,
) -> list[Finding]:  # fmt: skip
    """A GPU adds 1,000 values and more into each one of a result by their index, for 5 % of a step.

    By `index_add_`, `scatter_add_` or `index_put_` (the backward of `weight[index]`), told where shapes are recorded:
    what is added to one place waits for what was added before.
    """
    if not len(headline) or not len(operator_shapes):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    table = rows_where(operator_shapes.table, operator_shapes.table["operator"].isin(_ADD))
    table = rows_where(table, table["shapes"].notna())
    called = zip(table["operator"].astype("str"), table["shapes"].astype("str"), strict=True)
    times = pd.Series([_added(*each) for each in called], index=table.index, dtype="float64")
    table, times = table[times >= added_times], times[times >= added_times]
    cost_ns = table.groupby("rank")["gpu_own_ns"].sum().astype("float64") / steps_of_operators(steps, basis)
    found = basis.largest_share(cost_ns.dropna(), few_rows_pct)
    if found is None:
        return []
    rank, share = found
    own = table[table["rank"] == rank].sort_values("gpu_own_ns", ascending=False)
    operator = str(own["operator"].iloc[0])
    into, source = _of_sum(operator, str(own["shapes"].iloc[0]))
    return [
        Finding(
            severity=severity(share[rank]),
            title=f"Rank {rank}'s GPU adds {list(source)} into {list(into)} by {operator}: "
            f"{digits(round(float(times[own.index[0]])))} values into each one, which wait for each other. That takes "
            f"{time_text(cost_ns[rank])} {basis.a_step}, {share[rank]:.0f} % {basis.of_a_step}.",
            evidence=plain(own[["rank", "operator", "shapes", "calls", "gpu_own_ns"]].head(_FEW_ROWS_MOST_ROWS)),
            recommendation=_OF_PUT if operator in _PUT else _OF_SUM,
            caveat="How evenly the index spreads over the rows, the trace does not say: the mean is told.",
            gain_ns=round(cost_ns[rank]),
            named=(rank,),
            table="operator_shapes",
        )
    ]


_OF_SUM = (
    "Of a dozen rows or fewer take a product with the one-hot matrix of the index: of eight rows it took 0.3 to 0.6 of "
    "the time on an H100, of 64 mostly more. Sorting by the index first (torch.segment_reduce) mostly took longer, too."
)

_OF_PUT = (
    "Look rows up by torch.nn.functional.embedding(index, weight) instead of weight[index], whose backward this is; "
    "where it is called by itself (accumulate=True), take index_add_, which adds to one row from many threads at once."
)


def _of_sum(operator: str, shapes: str) -> tuple[RecordedShapesShape, RecordedShapesShape]:
    """Shapes of the result and of what is added: the first tensor and the last; the index is between, or a list."""
    tensors = inputs_of(shapes).tensors
    return (tensors[0], tensors[-1]) if len(tensors) > (1 if operator in _PUT else 2) else ((), ())


def _added(operator: str, shapes: str) -> float:
    into, source = map(prod, _of_sum(operator, shapes))
    return source / into if into > 1 else 0.0


def one_hot_products(
    headline: Headline, steps: Steps, operator_shapes: OperatorShapes, *, few_rows_pct: float = FEW_ROWS_PCT
) -> list[Finding]:
    """Products with what `one_hot` made, and making it, take 5 % of a step: each picks a row of the other matrix.

    Told where shapes are recorded: the product's first matrix has a shape that `one_hot` scatters into.
    """
    if not len(headline) or not len(operator_shapes):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    table = rows_where(operator_shapes.table, operator_shapes.table["shapes"].notna())
    made = _one_hot_shapes(table)
    called = zip(table["operator"].astype("str"), table["shapes"].astype("str"), strict=True)
    own = rows_where(table, np.array([_picks(*one, made) for one in called], dtype=bool))
    cost_ns = own.groupby("rank")["gpu_own_ns"].sum().astype("float64") / steps_of_operators(steps, basis)
    found = basis.largest_share(cost_ns.dropna(), few_rows_pct)
    if found is None:
        return []
    rank, share = found
    own = own[own["rank"] == rank].sort_values("gpu_own_ns", ascending=False)
    one, other = inputs_of(str(own["shapes"].iloc[0])).tensors[-2:]
    return [
        Finding(
            severity=severity(share[rank]),
            title=f"Rank {rank}'s GPU multiplies one-hot rows of {list(one)} with {list(other)}, which picks a row for "
            f"each: {time_text(cost_ns[rank])} {basis.a_step}, {share[rank]:.0f} % {basis.of_a_step}.",
            evidence=plain(own[["rank", "operator", "shapes", "calls", "gpu_own_ns"]].head(_FEW_ROWS_MOST_ROWS)),
            recommendation="Look the rows up instead: torch.nn.functional.embedding(index, matrix), or matrix[index].",
            caveat="By its shape: another matrix may have the same one.",
            gain_ns=round(cost_ns[rank]),
            named=(rank,),
            table="operator_shapes",
        )
    ]


def _one_hot_shapes(table: pd.DataFrame) -> set[RecordedShapesShape]:
    """What `one_hot` made, by an index of the shape without its last dimension, as matrices."""
    asked, into = (
        {inputs_of(str(shapes)).first or () for shapes in table.loc[table["operator"] == name, "shapes"].unique()}
        for name in ("aten::one_hot", "aten::scatter_")
    )
    return {(prod(shape[:-1]), shape[-1]) for shape in into if len(shape) > 1 and shape[:-1] in asked}


def _picks(operator: str, shapes: str, made: set[RecordedShapesShape]) -> bool:
    tensors = inputs_of(shapes).tensors if made and operator in _PRODUCTS else ()
    return len(tensors) > 1 and tensors[-2] in made


# Rules about tensors that kernels turn from one memory layout into the other.


LAYOUT_PCT = 3.0
"""Of a rank's time, in kernels that only turn layouts."""

_TURNS = re.compile(r"nchw_?To_?nhwc|nhwc_?To_?nchw", re.IGNORECASE)


def layout_conversions(headline: Headline, kernels: Kernels, *, layout_pct: float = LAYOUT_PCT) -> list[Finding]:
    """Kernels of cuDNN's that turn tensors between NCHW and NHWC take 3 % of a rank's time or more.

    Convolutions on tensor cores want NHWC: what is kept otherwise is turned before and after each of them.
    """
    own = named_kernels(headline, kernels, lambda name: bool(_TURNS.search(name)), layout_pct)
    if own is None:
        return []
    return [
        Finding(
            severity=severity(own.pct),
            title=f"Rank {own.rank}'s kernels turn tensors from one layout into the other ({own.names}): {own.cost}.",
            evidence=plain(own.rows[["rank", "name", "calls", "total_ns"]]),
            recommendation="Keep them as convolutions on tensor cores want them: model.to(memory_format="
            "torch.channels_last), the inputs too; norms and pooling then run in that layout as well.",
            caveat="Operators without such an implementation turn them back. The gain is what these kernels take.",
            gain_ns=round(own.cost_ns),
            named=(own.rank,),
            table="kernels",
            is_to_do_first=True,
        )
    ]


# Rules about work that is done twice: activations that the backward pass computes again.


RECOMPUTE_PCT = 5.0
"""Of a step: forward work that the backward pass does again, of a GPU, or of a host that decides."""

_RECOMPUTING_MOST_ROWS = 5


def recomputed_activations(
    headline: Headline, steps: Steps, operators: Operators, replay: Replay, ranks: Ranks, *,
    recompute_pct: float = RECOMPUTE_PCT,
) -> list[Finding]:  # fmt: skip
    """Operators that autograd runs again in its backward pass keep a GPU busy for 5 % of a step or more.

    Or the host, where the job would be quicker if hosts took no time. Those of compiled graphs are not told apart by
    their pass, and not counted.
    """
    if not len(headline) or not len(operators):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    own = rows_where(operators.table, operators.table["autograd"] == "recompute")
    sums = own.groupby("rank")[["gpu_own_ns", "host_self_ns"]].sum().astype("float64")
    # Of ranks without operators, and of hosts that were not recorded, there is none.
    again = sums.div(steps_of_operators(steps, basis), axis=0).reindex(basis.window_ns.index).fillna(0.0)
    if again.empty:
        return []
    hosts = gain_of(replay, Change("host", 0.0))  # without it, whether they decide is not known
    of_hosts = [(most_gained_ns(each, hosts) if hosts else None) or 0 for each in again["host_self_ns"]]
    gained = pd.DataFrame({"gpu": again["gpu_own_ns"], "host": of_hosts})
    found = basis.largest_share(gained.max(axis=1), recompute_pct)
    if found is None:
        return []
    rank, _ = found
    costs = _costs(again.loc[rank], rank, basis, basis_of_operators(steps, Basis.of(headline, steps), ranks))
    rows = own[own["rank"] == rank].head(_RECOMPUTING_MOST_ROWS)
    others = again.drop(index=rank)
    alone = ", the others do none" if len(others) and not others.to_numpy().any() else ""
    return [
        Finding(
            severity="low",
            title=f"The backward pass computes activations again: {costs}{alone}.",
            summary=f"Activation recomputation: {time_text(float(gained.loc[rank].max()))}/step on rank {rank}.",
            evidence=plain(rows[["rank", "operator", "autograd", "calls", "gpu_own_ns", "host_self_ns"]]),
            recommendation="Where memory allows, checkpoint fewer blocks, or only what is cheap to compute again "
            "(selective activation checkpointing); compare the step with checkpointing off.",
            caveat="Checkpointing takes this time to save memory: what it saves, the trace does not say.",
            gain_ns=round(gained.loc[rank].max()),
            is_of_hosts=bool(gained.loc[rank].idxmax() == "host"),
            named=(rank,),
            table="operators",
        )
    ]


def _costs(again: pd.Series, rank: int, basis: Basis, recorded: Basis) -> str:
    """`3.89 ms of rank 0's GPU work, 6 % of a step, and 13 ms of its host's, 19 %`; a host's of nothing is left out."""
    wholes = {"gpu_own_ns": basis.mean_ns(rank), "host_self_ns": recorded.mean_ns(rank)}
    shares = {name: f"{100 * float(again[name]) / whole_ns:.0f} %" for name, whole_ns in wholes.items()}
    gpu = f"{time_text(again['gpu_own_ns'])} of rank {rank}'s GPU work, {shares['gpu_own_ns']} {basis.of_a_step}"
    host = f"{time_text(again['host_self_ns'])} of its host's, {shares['host_self_ns']}"
    return gpu if not again["host_self_ns"] else f"{gpu}, and {host}"


# The rule about gradients of embeddings that are written for every row, few of which were looked up.


DENSE_PCT = 5.0
"""Of a step: filling such gradients, and updating by them."""

_LOOK_UPS = ("aten::embedding", "aten::_embedding_bag", "aten::_embedding_bag_forward_only")

_DENSE = "dense_backward"

_FEW = 4
"""A table of which at most one row in so many is looked up gains by sparse gradients."""

_WHOLE = (
    "aten::fill_", "aten::zero_", "aten::_foreach_", "aten::_fused_", "aten::add_", "aten::addcmul_",
    "aten::addcdiv_", "aten::mul_", "aten::lerp_",
)  # fmt: skip
"""Operators that go through whole tables: they clear gradients, and update weights and their moments."""

_DENSE_EMBEDDINGS_MOST_ROWS = 5

_WITH_LITTLE = 1.25
"""Times a table's numbers: a bucket of so many holds hardly anything else."""


def dense_embedding_gradients(
    headline: Headline,
    steps: Steps,
    operator_shapes: OperatorShapes,
    calls: Calls,
    exposed_calls: ExposedCalls,
    *,
    dense_pct: float = DENSE_PCT,
) -> list[Finding]:
    """Filling whole gradients of embeddings, updating by them and summing them over ranks takes 5 % of a step or more.

    Of all-reduces of such a gradient, with little beside it, what moves data while nothing computes counts. Of tables
    of which a call looks up a quarter of the rows at most. Told where shapes are recorded; of an optimizer's list of
    tensors the tables' part by their elements counts.
    """
    if not len(headline) or not len(operator_shapes):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    table = rows_where(operator_shapes.table, operator_shapes.table["shapes"].notna())
    looked_up = _looked_up(table)
    if not looked_up:
        return []
    part = _parts(table, looked_up)
    took_ns = part * table["gpu_own_ns"].astype("float64")
    own_ns = took_ns.groupby(table["rank"]).sum() / steps_of_operators(steps, basis)
    summed_ns = _summed_ns(calls, exposed_calls, basis, looked_up).reindex(own_ns.index, fill_value=0.0)
    cost_ns = own_ns + summed_ns
    found = basis.largest_share(cost_ns, dense_pct)
    if found is None:
        return []
    rank, share = found
    rows = table[(part > 0) & (table["rank"] == rank)].sort_values("gpu_own_ns", ascending=False)
    largest = max(looked_up, key=prod)
    more = f" and {len(looked_up) - 1} more" if len(looked_up) > 1 else ""
    return [
        Finding(
            severity=severity(share[rank]),
            title=f"The gradient of an embedding of {list(largest)}{more} is written whole, though a call looks up "
            f"{looked_up[largest]:,} rows at most: clearing it and updating by it takes {time_text(own_ns[rank])} of "
            f"rank {rank}'s GPU time {basis.a_step}{_also(summed_ns[rank])}{share[rank]:.0f} % {basis.of_a_step}.",
            evidence=plain(
                rows[["rank", "operator", "shapes", "calls", "gpu_own_ns"]].head(_DENSE_EMBEDDINGS_MOST_ROWS)
            ),
            recommendation="Let the gradient hold only the rows that were looked up (torch.nn.Embedding(sparse=True) "
            "with SGD or torch.optim.SparseAdam; TorchRec's tables update them in the backward pass).",
            caveat="Momentum and weight decay change every row: a sparse optimizer is another algorithm.",
            gain_ns=round(cost_ns[rank]),
            named=(rank,),
            table="operator_shapes",
            is_to_do_first=True,
        )
    ]


def _also(summed_ns: float) -> str:
    """`, ` before the share; with what summing takes, where it takes some."""
    return (
        f", summing it over the ranks {time_text(summed_ns)} in which nothing computes: together "
        if summed_ns
        else ", "
    )


def _summed_ns(
    calls: Calls, exposed_calls: ExposedCalls, basis: Basis, tables: dict[RecordedShapesShape, int]
) -> pd.Series:
    """Of each rank the time of a mean step in which all-reduces of such gradients move data and nothing computes."""
    if not len(calls) or not len(exposed_calls):
        return pd.Series(dtype="float64")
    held = basis.within(calls.table)
    held = rows_where(held, (held["collective"] == "all_reduce") & held["size_bytes"].notna() & held["dtype"].notna())
    numbers = held["size_bytes"].astype("float64") / held["dtype"].map(lambda name: dtype_bytes(str(name))).astype(
        "float64"
    )
    is_of_one = pd.Series(False, index=held.index)
    for shape in tables:
        is_of_one |= (numbers >= prod(shape)) & (numbers <= _WITH_LITTLE * prod(shape))
    moved = held[is_of_one][["rank", "call"]].merge(exposed_calls.table[["rank", "call", "transfer_ns"]])
    return moved.groupby("rank")["transfer_ns"].sum().astype("float64") / basis.per


def _looked_up(table: pd.DataFrame) -> dict[RecordedShapesShape, int]:
    """Tables, by their shape, with the most rows that a call looks up, where that is few of them.

    None in a job without dense gradients of embeddings.
    """
    if not table["operator"].astype("str").str.contains(_DENSE, regex=False).any():
        return {}
    held = rows_where(table, table["operator"].isin(_LOOK_UPS))
    most: dict[RecordedShapesShape, int] = {}
    for shapes in held["shapes"].unique():
        found = inputs_of(shapes).tensors
        if len(found) > 1 and len(found[0]) == 2:
            most[found[0]] = max(most.get(found[0], 0), prod(found[1]))
    return {shape: rows for shape, rows in most.items() if rows * _FEW <= shape[0]}


def _parts(table: pd.DataFrame, tables: dict[RecordedShapesShape, int]) -> pd.Series:
    called = zip(table["operator"], table["shapes"], strict=True)
    return pd.Series([_part(*one, tables) for one in called], index=table.index, dtype="float64")


def _part(operator: str, shapes: str, tables: dict[RecordedShapesShape, int]) -> float:
    """What part of an operator's work is on such tables, by elements: of lists of tensors that of the first list."""
    if not operator.startswith(_WHOLE):
        return 0.0
    inputs = inputs_of(shapes)
    of = inputs.listed or inputs.tensors
    count = sum(map(prod, of))
    return sum(prod(one) for one in of if one in tables) / count if count else 0.0
