"""Which share of the GPU's peak each step's model FLOPs are: MFU.

Model FLOPs are those of PaLM's MFU formula (Chowdhery et al. 2022, appendix B): 6 for each multiplied parameter and
token, and attention in full, 12 · layers · heads · head width · sequence for each token, also under a causal mask.
`torch.utils.flop_counter` counts the same products; the runners' `model_flops_per_step` is the same sum by hand.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio, stack, typed
from traceanalyzer.analyses.kernels.kernel_names import MATRIX_CATEGORIES
from traceanalyzer.analyses.kernels.peaks import Peak, element_type, peak_of
from traceanalyzer.analyses.names import MfuColumn
from traceanalyzer.analyses.operators.compiled_recompute import compiled_recompute
from traceanalyzer.analyses.operators.operator_tree import PASSES, OperatorTree, host_steps
from traceanalyzer.analyses.operators.operator_work import OperatorWork
from traceanalyzer.analyses.operators.work import MODEL_FAMILIES
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.job.run_info import StatedWork
from traceanalyzer.meaning.columns import Adds, Better, Column, Unit
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE


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
        return table.assign(
            mfu_pct=percent(table["model_flops"], available),
            unmasked_mfu_pct=percent(table["model_flops"] - table["masked_flops"], available),
            covered_pct=percent(table["covered_ns"], table["matrix_ns"]),
        )


def per_rank(
    trace: RankTrace, steps: pd.DataFrame, tree: OperatorTree, work: OperatorWork, category_of_op: pd.Categorical
) -> pd.DataFrame:
    """FLOPs of the operators that began in each step, beside the step's GPU window.

    No row for a step without matrix work of known FLOPs: a trace without shapes has no MFU.
    """
    known = work.calls[work.calls["family"].isin(MODEL_FAMILIES)]
    if known.empty or not len(steps):
        return pd.DataFrame()
    table = _without_repeated(_flops(trace, tree, known).join(_covered(trace, work, category_of_op)))
    table.insert(0, "step", trace.steps["step"].to_numpy()[table.index])
    wanted = typed(steps.loc[steps["step"].notna(), ["step", "is_complete", "window_ns"]], {"step": "int64"})
    table = table.merge(wanted.rename(columns={"window_ns": "step_ns"}), on="step")
    return typed(table.assign(step_source="profiled", **_peak(trace, known)), {"step": "Int64"})


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


def _flops(trace: RankTrace, tree: OperatorTree, known: pd.DataFrame) -> pd.DataFrame:
    """Model FLOPs, and of all FLOPs those repeated and those masked, by row of `steps`."""
    rows = known["row"].to_numpy()
    model = known["model_flops"].where(~_is_repeated(trace, tree, known), 0)
    table = pd.DataFrame(
        {
            "row": rows,
            "model_flops": model,
            "recompute_flops": known["flops"] - model,
            # Of a backward pass that computes its scores again the mask covers those too.
            "masked_flops": (ratio(model, known["flops"]) * known["masked_flops"]).round(),
        }
    )
    compiled = compiled_recompute(trace, tree, known.assign(model_flops=model)).rename(
        columns={"flops": "compiled_flops"}
    )
    table = pd.concat([table, compiled], ignore_index=True).fillna(0).astype("int64")
    step = host_steps(trace)[table["row"].to_numpy()]
    return table.drop(columns="row").groupby(step).sum().drop(index=NONE, errors="ignore").astype("Int64")


def _is_repeated(trace: RankTrace, tree: OperatorTree, known: pd.DataFrame) -> np.ndarray:
    """Work that autograd records anew in the backward pass, and forward attention in a compiled one."""
    rows = known["row"].to_numpy()
    is_forward = ~trace.host_ops["name"].iloc[rows].astype("str").str.endswith("_backward").to_numpy()
    is_attention = (known["family"] == "attention").to_numpy()
    in_backward = tree.autograd[rows] == PASSES.index("backward")
    found: np.ndarray = (tree.autograd[rows] == PASSES.index("recompute")) | (in_backward & is_attention & is_forward)
    return found


def _without_repeated(table: pd.DataFrame) -> pd.DataFrame:
    """Take away what compiled backward passes repeat, unless FLOPs of a forward pass could be among the unknown."""
    repeated = table.pop("compiled_flops").where(table["covered_ns"] == table["matrix_ns"], 0)
    return table.assign(
        model_flops=table["model_flops"] - repeated, recompute_flops=table["recompute_flops"] + repeated
    )


def _covered(trace: RankTrace, found: OperatorWork, category_of_op: pd.Categorical) -> pd.DataFrame:
    """GPU time of all matrix work, and of that with known FLOPs, by row of `steps`."""
    ops = trace.gpu_ops
    is_matrix = np.isin(np.asarray(category_of_op, dtype=object), MATRIX_CATEGORIES)
    is_model = found.calls["family"].isin(MODEL_FAMILIES).to_numpy()
    is_known = (found.of_op != NONE) & np.append(is_model, False)[found.of_op]
    durations = (ops["end_ns"] - ops["start_ns"]).where(is_matrix & (trace.op_step != NONE), 0)
    table = pd.DataFrame({"matrix_ns": durations, "covered_ns": durations.where(is_known, 0)})
    return table.groupby(trace.op_step).sum().astype("Int64")


def _peak(trace: RankTrace, known: pd.DataFrame) -> dict[str, object]:
    """The peak for the type in which most model FLOPs are done."""
    kinds = [
        element_type(None if pd.isna(dtype) else dtype, tensor_cores=None if pd.isna(said) else bool(said))
        for dtype, said in zip(known["dtype"].astype("object"), known["on_tensor_cores"], strict=True)
    ]
    weights = known["model_flops"].groupby(pd.Series(kinds, index=known.index, dtype="object")).sum()
    kind = str(weights.astype("int64").idxmax()) if len(weights) else None
    return _rate(peak_of(trace.meta.device_name), kind)


def _rate(peak: Peak | None, kind: str | None) -> dict[str, object]:
    rate = peak.tflops.get(kind) if peak and kind else None
    return {
        "gpu": peak.gpu if peak else None,
        "element_type": kind,
        "peak_tflops_per_s": pd.array([rate], dtype="Float64")[0],
        "peak_source": peak.source if peak else None,
    }
