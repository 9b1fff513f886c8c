"""Kernels and copies by name: what a name tells, what each takes, time slices of another process."""

import re
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import KIND, NAME, OF_A_MEAN_RANK, RANK, STORED_OF_A_MEAN_RANK, Result, ratio
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.statistics import RATIO, SHARE
from traceanalyzer.kinds import MOST_NAMES, speaks_of_communication
from traceanalyzer.meaning.columns import Adds, Column, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, lengths_of, sorted_by, table_of, text_array

# Which kernels and copies ran on each rank, how often and how long.


class Kernels(Result):
    """One row for each rank and name, longest total first within a rank."""

    title = "Kernels and copies"
    keys = ("rank", "name", "activity")
    joined_by = ("name", "kind", "activity")
    derived = {"mean_ns": "total_ns / calls", "share_pct": "total_ns / rank"}
    columns = declared(
        rank=RANK,
        name=NAME,
        kind=KIND,
        activity="kernel, memcpy, memset or graph.",
        calls="GPU operations of that name.",
        total_ns=Column.time("Sum of their durations.", leads=True),
        mean_ns="Total / calls.",
        median_ns=Column.time("Median duration.", adds=Adds.DERIVED, is_secondary=True),
        min_ns="Shortest.",
        max_ns="Longest.",
        share_pct="100 · total / sum of the durations of all GPU operations of the rank.",
        streams="Streams that they ran on.",
        registers=Column.text("Registers of a thread, where the profiler records them.", is_secondary=True),
        occupancy_pct=Column.share(
            "Share of a multiprocessor's warps that the launches' registers and shared memory allow, as the profiler "
            "estimates it: mean, weighted by their durations.",
            is_secondary=True,
        ),
        limiting_factors=Column.text("What limits the occupancy, such as `WARPS|REGS`.", is_secondary=True),
        priority=Column.text("Priorities of the streams: the least number goes first.", is_secondary=True),
        channel=Column.text("Hardware channels that they were queued in.", is_secondary=True),
    )


def kernels_per_rank(trace: RankTrace) -> pd.DataFrame:
    """Group the rank's counted GPU operations by name; durations are not clipped to the window."""
    if not trace.counted.any():
        return pd.DataFrame()
    rows = np.flatnonzero(trace.counted)
    keys = {name: trace.gpu_ops[name].array[rows] for name in ("name", "kind", "activity")}
    groups = Groups.of(keys)
    durations = lengths_of(trace.gpu_ops)[rows]
    columns = {
        **groups.keys,
        **groups.spread(durations),
        "occupancy_pct": _mean_of(groups, trace.gpu_ops["occupancy_pct"].array[rows], durations),
    }
    for column, name in {"streams": "stream", **{name: name for name in _RECORDED}}.items():
        columns[column] = _listed(groups, trace.gpu_ops[name].array[rows])
    return sorted_by(table_of(columns), "total_ns")


_RECORDED = ("registers", "limiting_factors", "priority", "channel")


def _listed(groups: Groups, values: Any) -> Any:
    """For each group its rows' distinct values as they are written, shorter numbers first; absent without any."""
    codes, distinct = pd.factorize(pd.Series(values))  # pandas 2 takes no array of its own
    texts, own = [*map(str, distinct)], [list[str]() for _ in range(len(groups))]
    for pair in np.unique((groups.of_row * len(texts) + codes)[codes != NONE]).tolist():
        own[pair // len(texts)].append(texts[pair % len(texts)])
    return text_array([",".join(sorted(each, key=lambda text: (len(text), text))) or None for each in own])


def _mean_of(groups: Groups, texts: pd.Categorical, weights: np.ndarray) -> pd.Series:
    """For each group the mean of numbers that are kept as texts; absent where none is known."""
    numbers = np.append(pd.to_numeric(texts.categories.to_numpy(dtype=object)).astype(float), 0.0)[texts.codes]
    known = groups.sums(weights * (texts.codes != NONE))
    sums = groups.sums(np.round(weights * numbers))
    return ratio(pd.Series(sums), pd.Series(known))


# Kernels and copies by name, all ranks in one row: the mean, and who has least and most of it.


_KEYS = ["name", "kind", "activity"]


class KernelsOverRanks(Result):
    """One row for each name, longest total first; a rank that runs none of a name counts as 0."""

    title = "Kernels and copies, mean over ranks"
    keys = ("name", "activity")
    stored = STORED_OF_A_MEAN_RANK
    is_of_one_run = True
    derived = OF_A_MEAN_RANK
    columns = declared(
        **{name: Kernels.columns[name] for name in ("name", "kind", "activity")},
        share_pct="100 · sum of durations / that of all GPU operations, all ranks together.",
        total_ns="Sum of the durations on one rank: mean over ranks.",
        calls="Calls on one rank: mean over ranks.",
        mean_ns="Mean duration of a call, all ranks together.",
        min_ns="Shortest call of all ranks.",
        max_ns="Longest call of all ranks.",
        lowest_total_ns="Least total of a rank; absent with a single rank.",
        lowest_rank="Whose that is.",
        highest_total_ns="Largest total of a rank; absent with a single rank.",
        highest_rank="Whose that is.",
    )


def kernels_over_ranks_across(kernels: Kernels) -> KernelsOverRanks:
    """Sum the ranks' rows of each name; only ranks that have GPU operations count."""
    if not len(kernels):
        return KernelsOverRanks.without_rows()
    sums = kernels.table.groupby(_KEYS, observed=True, sort=False).agg(
        all_calls=("calls", "sum"), all_ns=("total_ns", "sum"), min_ns=("min_ns", "min"), max_ns=("max_ns", "max")
    )
    wide = kernels.table.pivot_table(
        values="total_ns", index=_KEYS, columns="rank", aggfunc="sum", fill_value=0, observed=True
    )
    ranks = len(wide.columns)
    ends = {
        "lowest_total_ns": wide.min(axis=1),
        "lowest_rank": wide.idxmin(axis=1),
        "highest_total_ns": wide.max(axis=1),
        "highest_rank": wide.idxmax(axis=1),
    }
    table = sums.assign(**(ends if ranks > 1 else dict.fromkeys(ends, pd.NA))).astype("Int64")
    return KernelsOverRanks(sorted_by(table.assign(ranks=ranks).reset_index(), "all_ns"))


# What a kernel's name and its operator tell: category, tensor cores, element types.


CATEGORIES = (
    "gemm", "attention", "attention scores", "convolution", "norm", "softmax", "embedding", "element-wise", "reduction",
    "optimizer", "communication", "copy", "other",
)  # fmt: skip

SCORES = "attention scores"
"""What runs between the two batched products of unfused attention."""

MATRIX_CATEGORIES = ("gemm", "attention", "convolution")
"""Categories that can use tensor cores, and whose FLOPs are a model's."""


def _words(pattern: str) -> re.Pattern[str]:
    """What is looked for in a name in small letters: of any letters it takes three times as long."""
    return re.compile(pattern.lower())


# In this order: a flash-attention kernel may carry "fprop", a convolution "gemm", a norm "elementwise".
_BY_KERNEL = (
    (
        "attention",
        _words(
            r"flash|fmha|sdpa|attention|attn|compute_dot_do_o|convert_dq_to_16"
            # AOTriton's backward; AITER's paged attention and multi-head latent attention
            r"|^bwd_kernel_(dk_dv|dq|fuse)|^bwd_preprocess|aiter.*(\d|::|_)(pa|mla)_"
        ),
    ),
    (
        "convolution",
        _words(r"conv(?!ert)|[sh\d]cudnn_|[fw]prop|[dw]grad|winograd|im2col|col2im|^igemm_(fwd|bwd|wrw)_|_bwd_weight"),
    ),
    (
        "gemm",
        _words(r"gemm|nvjet|gemv|splitKreduce|Cijk_|matmul|triton_tem_.*mm|wgmma|cublas|aiter.*fmoe|MoeFlatmm"),
    ),
    ("optimizer", _words(r"FusedOptimizer|FusedAdam|FusedSgd|adam|lamb_|lars_")),
    ("norm", _words(r"(layer|rms|batch|group|instance)_?norm|GammaBeta|RowwiseMoments|\bbn_[fb]w")),
    ("softmax", _words(r"soft_?max|nll_loss|cross_entropy|logsumexp")),
    ("embedding", _words(r"embedding|gather_kernel|index|scatter|compute_grad_weight|radix_sort")),
    ("reduction", _words(r"reduce|triton_(per|red)_|cub::.*(Reduce|Scan)")),
    (
        "element-wise",
        _words(
            r"elementwise|copy|CatArray|Fill|dropout|triton_poi_|multi_tensor_apply|transpose|^SubTensorOp|^OpTensor"
        ),
    ),
)

_OF_COMM_TOO = ("reduction", "embedding")
"""Their words are those of collectives, too (all-reduce, gather, scatter), whose kernels no rule may know."""

# What the operator is decides before its kernels' names do.
_BY_OPERATOR = (
    ("attention", _words(r"attention|attn")),
    ("convolution", _words(r"conv(olution)?(\d|_|$)")),
    ("optimizer", _words(r"_fused_(adam|sgd|adagrad)|_foreach_(?!copy|zero|norm)")),
    ("norm", _words(r"(layer|rms|batch|group|instance)_norm")),
    ("softmax", _words(r"softmax|nll_loss|cross_entropy")),
    ("embedding", _words(r"embedding")),
)

_TENSOR_CORES = _words(
    r"nvjet|tensorop|wgmma|gmma|hmma|imma|[a-z]?(16816|1688|884|16832|161616)(gemm|cudnn|_|$)|wmma|flash_(fwd|bwd)|tf32"
    r"|xmma_gemm_(bf16|f16|i8|e4m3|e5m2)|fmha_cutlass[FB]_(bf16|f16)|MFMA|_MI\d+x\d+|xdlops|_xdl_|_gtcx\d?_"
)
_NO_TENSOR_CORES = _words(r"simt|ffma|(?<![\da-z])s?gemv|(^|_)(sgemm|dgemm|scudnn)|_fma_")

_LIST_TYPES = (
    re.compile(r"multi_tensor_apply_kernel<.*?Functor<([\w:]+)(?:, ([a-zA-Z][\w:]*))?[,>]"),
    re.compile(r"chunk_cat_cuda_kernel<(?!char)([\w:]+), ([\w:]+)>"),  # with `char` it moves bytes of any type
    re.compile(r"CatArrayBatchedCopy\w*<(?:at::native::\(anonymous namespace\)::)?([\w:]+(?:<\d+u>)?)()"),
)


@lru_cache(MOST_NAMES)
def category(kernel: str, kind: str, operator: str | None) -> str:
    """One of `CATEGORIES` for the kernels of one name, kind and operator."""
    if kind in ("comm", "copy"):
        return "communication" if kind == "comm" else "copy"
    # A fused kernel is called like its operator: there the kernel's own kind says more.
    if operator and not operator.startswith("triton_"):
        in_small = operator.lower()
        for name, pattern in _BY_OPERATOR:
            if pattern.search(in_small):
                return name
    if kernel.startswith("triton_poi_"):
        return "element-wise"
    in_small = kernel.lower()
    found = next((name for name, pattern in _BY_KERNEL if pattern.search(in_small)), "other")
    return "other" if found in _OF_COMM_TOO and speaks_of_communication(kernel) else found


@lru_cache(MOST_NAMES)
def uses_tensor_cores(kernel: str) -> bool | None:
    """Whether a matrix kernel runs on tensor cores (or AMD's matrix cores); `None` when its name does not say."""
    in_small = kernel.lower()
    if _TENSOR_CORES.search(in_small):
        return True
    return False if _NO_TENSOR_CORES.search(in_small) else None


@lru_cache(MOST_NAMES)
def list_types(kernel: str) -> tuple[str, ...]:
    """Element types of the lists of tensors that a kernel works on: one, or a copy's target and source; none else."""
    found = next((match for pattern in _LIST_TYPES if (match := pattern.search(kernel))), None)
    return tuple(name for name in found.groups() if name) if found else ()


# Times in which another process has the GPU: kernels of any kind that now and then take longer by the same time.


LEAST_SLICE_NS = 300_000
"""Less has many causes; slices that were seen (an H100 that two processes use) take 2.0 to 2.7 ms."""

_LEAST_KERNELS, _LEAST_NAMES = 5, 3


def taken_of(ops: pd.DataFrame, rows: np.ndarray, step: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Of each of these compute kernels by how much another process' time slice makes it longer; 0 elsewhere.

    A slice comes to whichever kernel runs, so that kernels of several names are longer by one time. Kernels that are
    slow by themselves (memory's clock, what their data ask for) are so by their own measure, and most that do the same
    `work` are, or most of a `step`, whose batch is larger in as many blocks.
    """
    nothing = np.zeros(len(rows), dtype=np.int64)
    spent_ns = (array_of(ops, "end_ns") - array_of(ops, "start_ns"))[rows]
    if np.count_nonzero(spent_ns > LEAST_SLICE_NS) < _LEAST_KERNELS:
        return nothing
    alike = Groups.of_numbers(work)
    usual_ns = np.where(work == NONE, spent_ns, alike.medians(spent_ns)[alike.of_row])
    more_ns = spent_ns - usual_ns
    is_longer = (more_ns >= np.maximum(LEAST_SLICE_NS, SHARE * usual_ns)) & ~_are_of_long_steps(more_ns, usual_ns, step)
    if not is_longer.any():
        return nothing
    slice_ns = np.median(more_ns[is_longer])
    is_slice = is_longer & (np.abs(more_ns - slice_ns) <= (RATIO - 1) * slice_ns)
    names = ops["name"].array.codes[rows][is_slice]
    is_told = len(names) >= max(_LEAST_KERNELS, SHARE * is_longer.sum()) and len({*names.tolist()}) >= _LEAST_NAMES
    return np.where(is_longer, more_ns, 0).round().astype(np.int64) if is_told else nothing


def _are_of_long_steps(more_ns: np.ndarray, usual_ns: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Kernels of steps in which most are longer than usual, short ones too: a slice hits one here, one there.

    Such a step has more to do, or its GPU is slower.
    """
    steps = Groups.of_numbers(step)
    longer = steps.sums(more_ns >= SHARE * usual_ns)
    return (longer > SHARE * steps.counts())[steps.of_row]
