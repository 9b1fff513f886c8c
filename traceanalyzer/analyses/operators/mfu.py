"""Which share of the GPU's peak each step's model FLOPs are: MFU.

Model FLOPs are those of PaLM's MFU formula (Chowdhery et al. 2022, appendix B): 6 for each multiplied parameter and
token, and attention in full, 12 · layers · heads · head width · sequence for each token, also under a causal mask.
`torch.utils.flop_counter` counts the same products; the runners' `model_flops_per_step` is the same sum by hand.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, all_known, percent, stack, typed
from traceanalyzer.analyses.grouping import Groups, sums_at
from traceanalyzer.analyses.kernels.kernel_names import MATRIX_CATEGORIES
from traceanalyzer.analyses.names import MfuColumn
from traceanalyzer.analyses.operators.compiled_recompute import compiled_recompute
from traceanalyzer.analyses.operators.operator_tree import PASSES, OperatorTree, host_steps
from traceanalyzer.analyses.operators.operator_work import OperatorWork
from traceanalyzer.analyses.operators.work import MODEL_FAMILIES
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.job.run_info import StatedWork
from traceanalyzer.meaning.columns import Adds, Better, Column, Unit
from traceanalyzer.meaning.gpus import Gpu, element_type, peak_of
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import known_of, mask_of, rows_named, whole_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, picked, table_of

_APART = 0.2
"""Ranks whose work differs by this share do not do the same."""


class Mfu(Result[MfuColumn]):
    """One row for each rank and step."""

    title: ClassVar[str] = "Model FLOPs utilisation"
    keys: ClassVar[tuple[str, ...]] = ("rank", "step")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "step": Column.ident("Number of the step."),
        "is_complete": Column.flag("Neither open nor partial: counts in means."),
        "model_flops": Column.flops(
            "FLOPs of the matrix products, attention and convolutions that the rank launched in the step: "
            "two a multiply-add, causal masks counted in full, recomputation left out (activation checkpointing, and "
            "the scores that flash attention computes again). A compiled backward pass does not say what it repeats: "
            "left out is what exceeds twice its forward pass's, where covered_pct is 100. Where no rank's operators "
            "tell, an equal share of run.json's `model_flops_per_step`; covered_pct is then absent."
        ),
        "recompute_flops": Column.flops("What was left out."),
        "masked_flops": Column.flops(
            "The part of the model FLOPs that a causal mask makes unnecessary, where the mask is recorded."
        ),
        "step_ns": Column.time("Length of the step that MFU is of.", adds=Adds.DERIVED),
        "step_source": Column.text(
            "un-profiled (recorded by the run itself) or profiled (this capture: profiling slows the host)."
        ),
        "gpu": Column.text("GPU model whose peak it is; absent when not known."),
        "element_type": Column.text("Type of most model FLOPs."),
        "peak_tflops_per_s": Column.rate(
            "The GPU's dense peak for that type, 10¹² a second.", unit=Unit.TFLOPS_PER_S, label="peak"
        ),
        "peak_source": Column.text("Document that the peak is from."),
        "mfu_pct": Column.share(
            "100 · model FLOPs / (step time · peak) of one GPU: with equal ranks that of the job.", better=Better.MORE
        ),
        "unmasked_mfu_pct": Column.share("The same without the masked part: what a GPU that skips it really does."),
        "covered_pct": Column.share(
            "100 · GPU time of the matrix work whose FLOPs are known / of all matrix work in the step. "
            "Below 100 MFU is a lower bound."
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        available = table["peak_tflops_per_s"] * table["step_ns"] * 1000
        return self._with(
            table,
            {
                "mfu_pct": percent(table["model_flops"], available),
                "unmasked_mfu_pct": percent(table["model_flops"] - table["masked_flops"], available),
                "covered_pct": percent(table["covered_ns"], table["matrix_ns"]),
            },
        )

    def known(self) -> pd.DataFrame:
        """Rows of steps that count in means and whose MFU is known."""
        frame: pd.DataFrame = self.to_frame()
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
        return len(work) < 2 or bool(work.max() <= (1 + _APART) * work.min())


def per_rank(
    trace: RankTrace, steps: pd.DataFrame, tree: OperatorTree, work: OperatorWork, category_of_op: pd.Categorical
) -> pd.DataFrame:
    """FLOPs of the operators that began in each step, beside the step's GPU window.

    No row for a step without matrix work of known FLOPs: a trace without shapes has no MFU.
    """
    known = picked(work.calls, rows_named(work.calls, "family", *MODEL_FAMILIES))
    if known.empty or not len(steps):
        return pd.DataFrame()
    flops, (matrix_ns, covered_ns, is_known) = _flops(trace, tree, known), _covered(trace, work, category_of_op)
    compiled = np.where(is_known & (covered_ns == matrix_ns), flops.pop("compiled_flops"), 0)
    rows = np.flatnonzero(flops.pop("calls"))
    numbers = array_of(trace.steps, "step")[rows]
    known_steps = known_of(steps, "step")
    place_of = dict(
        zip(whole_of(steps, "step")[known_steps].tolist(), np.flatnonzero(known_steps).tolist(), strict=True)
    )
    place = np.array([place_of.get(number, NONE) for number in numbers.tolist()], dtype=np.int64)
    rows, place = rows[place != NONE], place[place != NONE]
    return table_of(
        {
            "step": all_known(array_of(trace.steps, "step")[rows]),
            "model_flops": all_known((flops["model_flops"] - compiled)[rows]),
            "recompute_flops": all_known((flops["recompute_flops"] + compiled)[rows]),
            "masked_flops": all_known(flops["masked_flops"][rows]),
            "matrix_ns": pd.arrays.IntegerArray(matrix_ns[rows], ~is_known[rows]),
            "covered_ns": pd.arrays.IntegerArray(covered_ns[rows], ~is_known[rows]),
            "is_complete": column_of(steps, "is_complete")[place],
            "step_ns": column_of(steps, "window_ns")[place],
            "step_source": "profiled",
            **_peak(trace, known),
        },
    )


def across(
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
    held = steps[steps["step"].notna()][["rank", "step", "is_complete", "window_ns"]].reset_index(drop=True)
    peaks = {
        rank: _rate(peak_of(None if pd.isna(name) else str(name)), stated.dtype)
        for rank, name in zip(ranks["rank"], ranks["device_name"], strict=True)
    }
    rates = pd.DataFrame([peaks[rank] for rank in held["rank"]], index=held.index, columns=list(_rate(None, None)))
    table = held.rename(columns={"window_ns": "step_ns"}).join(rates)
    names = ("recompute_flops", "masked_flops", "covered_ns", "matrix_ns")
    absent = {name: pd.array([pd.NA] * len(table), dtype="Int64") for name in names}
    flops = np.int64(round(stated.flops_of_rank))
    return typed(table.assign(model_flops=flops, step_source="profiled", **absent), {
        "step": "Int64", "peak_tflops_per_s": "Float64",
    })  # fmt: skip


def _flops(trace: RankTrace, tree: OperatorTree, known: pd.DataFrame) -> dict[str, np.ndarray]:
    """Model FLOPs, and of all FLOPs those repeated and those masked, by row of `steps`; and `calls` that are known."""
    is_repeated = _is_repeated(trace, tree, known)
    model, flops, masked = (whole_of(known, name, 0) for name in ("model_flops", "flops", "masked_flops"))
    has_flops, has_mask = known_of(known, "flops"), known_of(known, "masked_flops")
    has_model = known_of(known, "model_flops") | is_repeated
    model = np.where(is_repeated, 0, model)
    # Of a backward pass that computes its scores again the mask covers those too.
    share = np.divide(model, flops, out=np.zeros(len(model)), where=has_flops & has_model & has_mask & (flops != 0))
    own = {
        "model_flops": model,
        "recompute_flops": np.where(has_flops & has_model, flops - model, 0),
        "masked_flops": np.round(share * masked).astype(np.int64),
    }
    compiled = compiled_recompute(trace, tree, array_of(known, "row"), model)
    step_of, count = host_steps(trace), len(trace.steps) + 1  # the last one for what is in no step
    step, of_compiled = (step_of[rows] % count for rows in (array_of(known, "row"), array_of(compiled, "row")))
    sums = {name: sums_at(step, column, count) for name, column in own.items()}
    sums["compiled_flops"] = sums_at(of_compiled, array_of(compiled, "flops"), count)
    sums["calls"] = np.bincount(step, minlength=count) + np.bincount(of_compiled, minlength=count)
    return {name: values[:-1] for name, values in sums.items()}


def _is_repeated(trace: RankTrace, tree: OperatorTree, known: pd.DataFrame) -> np.ndarray:
    """Work that autograd records anew in the backward pass, and forward attention in a compiled one."""
    rows = array_of(known, "row")
    names: Any = column_of(trace.host_ops, "name")[rows]
    is_forward = ~mask_of(names, lambda name: name.endswith("_backward"))
    is_attention = rows_named(known, "family", "attention")
    in_backward = tree.autograd[rows] == PASSES.index("backward")
    found: np.ndarray = (tree.autograd[rows] == PASSES.index("recompute")) | (in_backward & is_attention & is_forward)
    return found


def _covered(
    trace: RankTrace, found: OperatorWork, category_of_op: pd.Categorical
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """GPU time of all matrix work, of that with known FLOPs, and whether there is GPU work, by row of `steps`.

    What compiled backward passes repeat is taken away only where the first two are equal: FLOPs of a forward pass
    could be among the unknown.
    """
    ops, count = trace.gpu_ops, len(trace.steps)
    is_matrix = np.append(np.isin(category_of_op.categories.to_numpy(dtype=object), MATRIX_CATEGORIES), False)
    is_model = rows_named(found.calls, "family", *MODEL_FAMILIES)
    is_known = (found.of_op != NONE) & np.append(is_model, False)[found.of_op]
    rows = np.flatnonzero(trace.op_step != NONE)
    step = trace.op_step[rows]
    durations = np.where(is_matrix[category_of_op.codes], array_of(ops, "end_ns") - array_of(ops, "start_ns"), 0)
    matrix_ns, covered_ns = (sums_at(step, own[rows], count) for own in (durations, np.where(is_known, durations, 0)))
    return matrix_ns, covered_ns, np.bincount(step, minlength=count) > 0


def _peak(trace: RankTrace, known: pd.DataFrame) -> dict[str, object]:
    """The peak for the type in which most model FLOPs are done."""
    groups = Groups.of(known, ["dtype", "on_tensor_cores"], with_absent=True)
    weights: dict[str, int] = {}
    sums = groups.sums(whole_of(known, "model_flops", 0)).tolist()
    for dtype, said, weight in zip(*groups.keys.values(), sums, strict=True):
        kind = element_type(None if pd.isna(dtype) else dtype, tensor_cores=None if pd.isna(said) else bool(said))
        if kind is not None:
            weights[kind] = weights.get(kind, 0) + weight
    most = max(sorted(weights), key=lambda kind: weights[kind], default=None)
    return _rate(peak_of(trace.meta.device_name), most)


def _rate(peak: Gpu | None, kind: str | None) -> dict[str, object]:
    rate = peak.tflops.get(kind) if peak and kind else None
    return {
        "gpu": peak.model if peak else None,
        "element_type": kind,
        "peak_tflops_per_s": pd.array([rate], dtype="Float64")[0],
        "peak_source": peak.source if peak else None,
    }
