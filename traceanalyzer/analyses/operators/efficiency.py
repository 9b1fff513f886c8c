"""Achieved TFLOP/s and GB/s per operator beside the GPU's peak; model FLOPs utilization per step."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result, all_known, percent, ratio, stack
from traceanalyzer.analyses.breakdown import Steps, complete_steps
from traceanalyzer.analyses.grouping import Groups, sums_at
from traceanalyzer.analyses.kernels import MATRIX_CATEGORIES
from traceanalyzer.analyses.operators.flops import OperatorWork, compiled_recompute
from traceanalyzer.analyses.operators.operator_tree import PASS_NAMES, PASSES, OperatorTree, host_steps
from traceanalyzer.analyses.operators.operators import OperatorShapes
from traceanalyzer.analyses.statistics import RATIO
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.job.run_info import StatedWork
from traceanalyzer.meaning.columns import Adds, Better, Column, Unit, declared
from traceanalyzer.meaning.gpus import element_type, peak_of
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_of,
    is_name,
    lengths_of,
    mask_of,
    nullable,
    picked,
    plain_texts,
    rows_named,
    sorted_by,
    table_of,
    text_array,
    whole_of,
)

# How well each operator uses its GPU: achieved TFLOP/s and GB/s beside what the device can do.


_KEYS = ("operator", "autograd", "shapes", "dtypes", "family", "dtype")
"""What tells calls apart; the last one, what they compute in, only decides on the peak."""

_SUMMED = ("flops", "masked_flops", "bytes", "gpu_ops", "gpu_ns")


class Efficiency(Result):
    """One row for each rank, operator, autograd pass, shapes and dtypes with known work; most GPU time first."""

    title = "Efficiency of operators"
    is_detail = True
    keys = ("rank", "operator", "autograd", "shapes", "dtypes")
    columns = declared(
        rank=RANK,
        **{name: OperatorShapes.columns[name] for name in ("operator", "autograd", "shapes", "dtypes")},
        family=Column.text(
            "gemm, attention, convolution, norm, softmax, embedding, element-wise, optimizer or fused (by a compiler).",
            is_secondary=True,
        ),
        calls="Calls that launched GPU operations; others are left out.",
        flops=Column.flops(
            "Their FLOPs by the shapes, as torch.utils.flop_counter counts them; for other families arithmetic "
            "per element. Of a list of more than 30 tensors (most fused optimizers) PyTorch records no shapes: no row.",
            is_compared=False,
        ),
        masked_flops="The part of them that a causal mask makes unnecessary; not in tflops_per_s.",
        bytes=Column.size(
            "The least that they must read and write, lists of tensors in the type that the kernel's name has; an "
            "argument given twice counts twice.",
            is_compared=False,
        ),
        gpu_ops="GPU operations that did it.",
        gpu_ns="Sum of their durations.",
        tflops_per_s=Column.rate(
            "(flops − masked) / GPU time, in 10¹² a second.", unit=Unit.TFLOPS_PER_S, label="arithmetic"
        ),
        gbytes_per_s=Column.rate(
            "Bytes / GPU time, in 10⁹ a second. More than the memory's bandwidth: it came from a cache.",
            label="memory",
        ),
        flops_per_byte=Column.number("(flops − masked) / bytes: arithmetic intensity."),
        element_type=(
            "Type that the peak is of: of matrix work what it computes in (32-bit products are tf32 on tensor "
            "cores, else fp32), of other work fp32, for it runs on the vector units."
        ),
        on_tensor_cores=Column.flag(
            "Whether the kernels' names say that they use tensor cores; absent when they do not say."
        ),
        peak_tflops_per_s=Column.rate(
            "The GPU's dense peak for that type; absent for a GPU that is not known.",
            unit=Unit.TFLOPS_PER_S,
            label="peak",
        ),
        peak_gbytes_per_s="Its memory bandwidth.",
        flops_pct=Column.share("100 · achieved / peak TFLOP/s.", better=Better.MORE),
    )

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        done = table["flops"] - table["masked_flops"]
        # FLOPs a ns are 10⁹ a second, bytes a ns 10⁹ a second.
        tflops = ratio(done, table["gpu_ns"]) / 1000
        return table.assign(
            tflops_per_s=tflops,
            gbytes_per_s=ratio(table["bytes"], table["gpu_ns"]),
            flops_per_byte=ratio(done, table["bytes"]),
            flops_pct=percent(tflops, table["peak_tflops_per_s"]),
        )


def efficiency_per_rank(trace: RankTrace, tree: OperatorTree, work: OperatorWork) -> pd.DataFrame:
    """Add up the work of equal calls."""
    found = picked(work.calls, array_of(work.calls, "gpu_ops") > 0)
    if found.empty:
        return pd.DataFrame()
    columns, ops = columns_of(found), trace.host_ops
    rows, uses = columns["row"], columns["on_tensor_cores"]
    columns["operator"] = ops["name"].array.take(rows)
    columns |= {name: ops[name].array.take(rows) for name in ("shapes", "dtypes")}
    columns["autograd"] = pd.Categorical.from_codes(tree.autograd[rows], dtype=PASS_NAMES)
    groups = Groups.of(columns, _KEYS, by_appearance=True, with_absent=True)
    uses = pd.arrays.BooleanArray(groups.any(uses.fillna(value=False)), ~groups.any(~uses.isna()))
    texts = {name: plain_texts(own) for name, own in groups.keys.items()}
    gpu = peak_of(trace.meta.device_name)
    kinds = [*map(_element_type, texts.pop("dtype"), texts["family"], uses.tolist())]
    made = {
        **{name: text_array(own) for name, own in texts.items()},
        **{name: groups.total(columns[name]) for name in _SUMMED},
        "calls": groups.counts(),
        "on_tensor_cores": uses,
        "element_type": text_array(kinds),
        "peak_tflops_per_s": pd.array([gpu.tflops.get(kind or "") if gpu else None for kind in kinds], dtype="Float64"),
        "peak_gbytes_per_s": pd.array([gpu and gpu.gbytes_per_s] * len(kinds), dtype="Float64"),
    }
    return sorted_by(table_of(made), "gpu_ns")


def _element_type(dtype: str | None, family: str, on_tensor_cores: object) -> str | None:
    is_matrix = family in MATRIX_CATEGORIES
    uses = (None if pd.isna(on_tensor_cores) else bool(on_tensor_cores)) if is_matrix else False
    kind = element_type(dtype, tensor_cores=uses)
    # Other work runs on the vector units, which compute 16-bit elements in 32 bits.
    return "fp32" if not is_matrix and kind in ("bf16", "fp16") else kind


# Which share of the GPU's peak each step's model FLOPs are: MFU.
#
# Model FLOPs are those of PaLM's MFU formula (Chowdhery et al. 2022, appendix B): 6 for each multiplied parameter and
# token, and attention in full, 12 · layers · heads · head width · sequence for each token, also under a causal mask.
# `torch.utils.flop_counter` counts the same products; the runners' `model_flops_per_step` is the same sum by hand.


class Mfu(Result):
    """One row for each rank and step."""

    title = "Model FLOPs utilisation"
    keys = ("rank", "step")
    columns = declared(
        rank=RANK,
        step="Number of the step.",
        is_complete="Neither open nor partial: counts in means.",
        model_flops=(
            "FLOPs of the matrix products, attention and convolutions that the rank launched in the step: two a "
            "multiply-add, causal masks counted in full, recomputation left out (activation checkpointing, and the "
            "scores that flash attention computes again). A compiled backward pass does not say what it repeats: "
            "left out is what exceeds twice its forward pass's, where covered_pct is 100. Where no rank's "
            "operators tell, an equal share of run.json's `model_flops_per_step`; covered_pct is then absent."
        ),
        recompute_flops="What was left out.",
        step_ns=Column.time("Length of the step that MFU is of.", adds=Adds.DERIVED),
        step_source="un-profiled (recorded by the run itself) or profiled (this capture: profiling slows the host).",
        gpu="GPU model whose peak it is; absent when not known.",
        element_type="Type of most model FLOPs.",
        peak_tflops_per_s=Column.rate(
            "The GPU's dense peak for that type, 10¹² a second.", unit=Unit.TFLOPS_PER_S, label="peak"
        ),
        peak_source="Document that the peak is from.",
        mfu_pct=Column.share(
            "100 · model FLOPs / (step time · peak) of one GPU: with equal ranks that of the job.", better=Better.MORE
        ),
        covered_pct=(
            "100 · GPU time of the matrix work whose FLOPs are known / of all matrix work in the step. Below 100 "
            "MFU is a lower bound."
        ),
    )

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        available = table["peak_tflops_per_s"] * table["step_ns"] * 1000
        return table.assign(
            mfu_pct=percent(table["model_flops"], available),
            covered_pct=percent(table["covered_ns"], table["matrix_ns"]),
        )

    def known(self) -> pd.DataFrame:
        """Rows of steps that count in means and whose MFU is known."""
        frame = self.to_frame()
        return complete_steps(frame[frame["mfu_pct"].notna()]) if len(frame) else frame

    def by_rank(self) -> pd.Series:
        """Mean MFU of each rank's steps that count."""
        known = self.known()
        return known.groupby("rank")["mfu_pct"].mean() if len(known) else pd.Series(dtype="Float64")

    @property
    def is_of_equal_work(self) -> bool:
        """Whether the ranks do the same work, to a fifth: else one may do work that is not the model's."""
        known = self.known()
        work = known.groupby("rank")["model_flops"].mean() if len(known) else pd.Series(dtype="Float64")
        return len(work) < 2 or bool(work.max() <= RATIO * work.min())


def mfu_per_rank(
    trace: RankTrace, steps: pd.DataFrame, tree: OperatorTree, work: OperatorWork, category_of_op: pd.Categorical
) -> pd.DataFrame:
    """FLOPs of the operators that began in each step, beside the step's GPU window.

    No row for a step without matrix work of known FLOPs: a trace without shapes has no MFU.
    """
    is_model = rows_named(work.calls, "family", *MATRIX_CATEGORIES)
    known = picked(work.calls, is_model)
    if known.empty or not len(steps):
        return pd.DataFrame()
    flops, (matrix_ns, covered_ns, is_absent) = (
        _flops(trace, tree, known),
        _covered(trace, work.of_op, is_model, category_of_op),
    )
    # Where not all matrix work is known, FLOPs of a forward pass could be among the unknown.
    compiled = np.where(~is_absent & (covered_ns == matrix_ns), flops["compiled_flops"], 0)
    numbers = array_of(trace.steps, "step")
    place = pd.Index(whole_of(steps, "step")).get_indexer(numbers)
    rows = np.flatnonzero((flops["calls"] > 0) & (place != NONE))
    return table_of(
        {
            "step": all_known(numbers[rows]),
            "model_flops": all_known((flops["model_flops"] - compiled)[rows]),
            "recompute_flops": all_known((flops["recompute_flops"] + compiled)[rows]),
            "matrix_ns": nullable(matrix_ns[rows], is_absent[rows]),
            "covered_ns": nullable(covered_ns[rows], is_absent[rows]),
            "is_complete": steps["is_complete"].array[place[rows]],
            "step_ns": steps["window_ns"].array[place[rows]],
            "step_source": "profiled",
            **_peak(trace, known),
        }
    )


def mfu_across(
    parts: Mapping[int, pd.DataFrame], steps: Steps, ranks: Ranks, *,
    unprofiled_step_ns: int | None = None, stated_work: StatedWork | None = None,
) -> Mfu:  # fmt: skip
    """The ranks' rows under each other, over the step time that the run recorded without the profiler, if it did.

    Where no rank's operators tell FLOPs (Nsight Systems has none, or no shapes were recorded), what the run itself
    says of them.
    """
    table = stack(parts, (*Mfu.columns, "covered_ns", "matrix_ns"))
    if table.empty and stated_work is not None:
        table = _as_stated(steps.table, ranks.table, stated_work)
    if unprofiled_step_ns is not None:
        table = table.assign(step_ns=np.int64(unprofiled_step_ns), step_source="un-profiled")
    return Mfu(table)


def _as_stated(steps: pd.DataFrame, ranks: pd.DataFrame, stated: StatedWork) -> pd.DataFrame:
    """A row for each rank and step; the job's MFU is the mean of the ranks', whoever does how much of the work."""
    held = steps[steps["step"].notna()][["rank", "step", "is_complete", "window_ns"]]
    rates = pd.DataFrame([_rate(None if pd.isna(name) else str(name), stated.dtype) for name in ranks["device_name"]])
    table = held.merge(rates.assign(rank=ranks["rank"].to_numpy()), on="rank").rename(columns={"window_ns": "step_ns"})
    absent = pd.array([pd.NA] * len(table), dtype="Int64")
    table = table.assign(**dict.fromkeys(("recompute_flops", "covered_ns", "matrix_ns"), absent))
    flops = np.int64(round(stated.flops_of_rank))
    return table.assign(model_flops=flops, step_source="profiled").astype({
        "step": "Int64", "peak_tflops_per_s": "Float64",
    })  # fmt: skip


def _flops(trace: RankTrace, tree: OperatorTree, known: pd.DataFrame) -> dict[str, np.ndarray]:
    """Model FLOPs, and those repeated, by row of `steps`; and `calls` that are known."""
    rows, count = array_of(known, "row"), len(trace.steps) + 1  # the last one for what is in no step
    flops, model = (whole_of(known, name, 0) for name in ("flops", "model_flops"))
    model = np.where(_is_repeated(trace, tree, known), 0, model)
    nodes, compiled = compiled_recompute(trace, tree, rows, model)
    own = {"model_flops": model, "recompute_flops": flops - model}
    step_of = host_steps(trace) % count
    sums = {name: sums_at(step_of[rows], values.astype(np.int64), count) for name, values in own.items()}
    sums["compiled_flops"] = sums_at(step_of[nodes], compiled, count)
    sums["calls"] = np.bincount(step_of[np.append(rows, nodes)], minlength=count)
    return {name: values[:-1] for name, values in sums.items()}


def _is_repeated(trace: RankTrace, tree: OperatorTree, known: pd.DataFrame) -> np.ndarray:
    """Work that autograd records anew in the backward pass, and forward attention in a compiled one."""
    rows = array_of(known, "row")
    is_forward = ~mask_of(trace.host_ops["name"].array[rows], lambda name: name.endswith("_backward"))
    is_in_backward = tree.autograd[rows] == PASSES.index("backward")
    is_attention = rows_named(known, "family", "attention")
    return (tree.autograd[rows] == PASSES.index("recompute")) | (is_in_backward & is_attention & is_forward)


def _covered(
    trace: RankTrace, of_op: np.ndarray, is_model: np.ndarray, category_of_op: pd.Categorical
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """GPU time of all matrix work, of that with known FLOPs, and whether there is no GPU work, by row of `steps`."""
    rows = np.flatnonzero(trace.op_step != NONE)
    step, count = trace.op_step[rows], len(trace.steps)
    matrix_ns = (is_name(category_of_op, *MATRIX_CATEGORIES) * lengths_of(trace.gpu_ops))[rows]
    covered_ns = matrix_ns * np.append(is_model, False)[of_op[rows]]
    return sums_at(step, matrix_ns, count), sums_at(step, covered_ns, count), np.bincount(step, minlength=count) == 0


def _peak(trace: RankTrace, known: pd.DataFrame) -> dict[str, object]:
    """The peak for the type in which most model FLOPs are done."""
    by_type, weights = Groups.of(known, ["dtype", "on_tensor_cores"], with_absent=True), Counter[str]()
    sums = by_type.sums(whole_of(known, "model_flops", 0))
    for dtype, uses, flops in zip(*by_type.keys.values(), sums, strict=True):
        uses_tensor_cores = None if pd.isna(uses) else bool(uses)
        kind = element_type(None if pd.isna(dtype) else dtype, tensor_cores=uses_tensor_cores)
        if kind is not None:
            weights[kind] += int(flops)
    return _rate(trace.meta.device_name, max(sorted(weights), key=lambda kind: weights[kind], default=None))


def _rate(device_name: str | None, kind: str | None) -> dict[str, object]:
    peak = peak_of(device_name)
    return {
        "gpu": peak.model if peak else None,
        "element_type": kind,
        "peak_tflops_per_s": pd.array([peak.tflops.get(kind) if peak and kind else None], dtype="Float64")[0],
        "peak_source": peak.source if peak else None,
    }
