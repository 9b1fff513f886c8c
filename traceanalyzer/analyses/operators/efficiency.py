"""Achieved TFLOP/s and GB/s per operator beside the GPU's peak; model FLOPs utilization per step."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result, all_known, percent, ratio, stack
from traceanalyzer.analyses.grouping import Groups, sums_at
from traceanalyzer.analyses.kernels.kernel_names import MATRIX_CATEGORIES
from traceanalyzer.analyses.operators.flops import MODEL_FAMILIES, OperatorWork, compiled_recompute
from traceanalyzer.analyses.operators.operator_tree import PASS_NAMES, PASSES, OperatorTree, host_steps
from traceanalyzer.analyses.operators.operators import OperatorShapes
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.job.run_info import StatedWork
from traceanalyzer.meaning.columns import Adds, Better, Column, Unit
from traceanalyzer.meaning.gpus import Gpu, element_type, peak_of
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_of,
    mask_of,
    picked,
    plain_texts,
    rows_named,
    sorted_by,
    table_of,
    text_array,
    whole_of,
)

# How well each operator uses its GPU: achieved TFLOP/s and GB/s beside what the device can do.


_TEXTS = ("operator", "autograd", "shapes", "dtypes", "family", "dtype")
"""What tells calls apart; the last one, what they compute in, only decides on the peak."""

_SUMMED = ("flops", "masked_flops", "bytes", "gpu_ops", "gpu_ns")


class Efficiency(Result):
    """One row for each rank, operator, autograd pass, shapes and dtypes with known work; most GPU time first."""

    title = "Efficiency of operators"
    is_detail = True
    keys = ("rank", "operator", "autograd", "shapes", "dtypes")
    columns = {
        "rank": RANK,
        **{name: OperatorShapes.columns[name] for name in ("operator", "autograd", "shapes", "dtypes")},
        "family": Column.text(
            "gemm, attention, convolution, norm, softmax, embedding, element-wise, optimizer, fused (by a "
            "compiler) or communication.",
            is_secondary=True,
        ),
        "calls": Column.count("Calls that launched GPU operations; others are left out.", is_aside=True),
        "flops": Column.flops(
            "Their FLOPs by the shapes, as torch.utils.flop_counter counts them; for other families arithmetic "
            "per element. Of a list of more than 30 tensors (most fused optimizers) PyTorch records no shapes: no row.",
            is_compared=False,
        ),
        "masked_flops": Column.flops("The part of them that a causal mask makes unnecessary; not in tflops_per_s."),
        "bytes": Column.size(
            "The least that they must read and write, lists of tensors in the type that the kernel's name has; an "
            "argument given twice counts twice. Of communication: size of the full array.",
            is_compared=False,
        ),
        "gpu_ops": Column.count("GPU operations that did it.", is_compared=False),
        "gpu_ns": Column.time("Sum of their durations.", leads=True),
        "tflops_per_s": Column.rate(
            "(flops − masked) / GPU time, in 10¹² a second.", unit=Unit.TFLOPS_PER_S, label="arithmetic"
        ),
        "gbytes_per_s": Column.rate(
            "Bytes / GPU time, in 10⁹ a second. More than the memory's bandwidth: it came from a cache. "
            "n/a for communication: its time holds waits, its rates without them are those of the collectives.",
            label="memory",
        ),
        "flops_per_byte": Column.number("(flops − masked) / bytes: arithmetic intensity."),
        "element_type": Column.text(
            "Type that the peak is of: of matrix work what it computes in (32-bit products are tf32 on "
            "tensor cores, else fp32), of other work fp32, for it runs on the vector units."
        ),
        "on_tensor_cores": Column.flag(
            "Whether the kernels' names say that they use tensor cores; absent when they do not say."
        ),
        "peak_tflops_per_s": Column.rate(
            "The GPU's dense peak for that type; absent for a GPU that is not known.",
            unit=Unit.TFLOPS_PER_S,
            label="peak",
        ),
        "peak_gbytes_per_s": Column.rate("Its memory bandwidth."),
        "flops_pct": Column.share("100 · achieved / peak TFLOP/s.", better=Better.MORE),
        "bandwidth_pct": Column.share("100 · achieved / peak GB/s.", better=Better.MORE),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        done = table["flops"] - table["masked_flops"]
        # FLOPs a ns are 10⁹ a second, bytes a ns 10⁹ a second.
        tflops, gbytes = ratio(done, table["gpu_ns"]) / 1000, ratio(table["bytes"], table["gpu_ns"])
        gbytes = gbytes.mask(table["family"] == "communication")
        return table.assign(
            tflops_per_s=tflops,
            gbytes_per_s=gbytes,
            flops_per_byte=ratio(done, table["bytes"]),
            flops_pct=percent(tflops, table["peak_tflops_per_s"]),
            bandwidth_pct=percent(gbytes, table["peak_gbytes_per_s"]),
        )


def efficiency_per_rank(trace: RankTrace, calls: pd.DataFrame, tree: OperatorTree, work: OperatorWork) -> pd.DataFrame:
    """Add up the work of equal calls, and of communication by collective, dtype and size."""
    found = picked(work.calls, array_of(work.calls, "gpu_ops") > 0)
    if found.empty and calls.empty:
        return pd.DataFrame()
    parts = [_operators(trace, tree, found), *([_communication(calls)] if len(calls) else [])]
    held = {name: [part[name] for part in parts] for name in parts[0]}
    texts = {name: np.concatenate(held[name]) for name in _TEXTS}
    numbers = {
        name: pd.concat([pd.Series(part, dtype="Int64") for part in held[name]], ignore_index=True).array
        for name in (*_SUMMED, "calls")
    }
    says = np.concatenate(held["on_tensor_cores"])
    columns = {
        **{name: text_array(texts[name]) for name in _TEXTS if name != "dtype"},
        **numbers,
        "on_tensor_cores": pd.array(says, dtype="boolean"),
        **_peaks(texts["dtype"], texts["family"], says, trace.meta.device_name),
    }
    return sorted_by(table_of(columns), "gpu_ns", kind="quicksort")


def _operators(trace: RankTrace, tree: OperatorTree, found: pd.DataFrame) -> dict[str, Any]:
    """Equal calls of operators; texts are plain objects."""
    columns = columns_of(found)
    rows = columns["row"]
    names = {"operator": "name", "shapes": "shapes", "dtypes": "dtypes"}
    columns |= {name: trace.host_ops[own].array.take(rows) for name, own in names.items()}
    columns["autograd"] = pd.Categorical.from_codes(tree.autograd[rows], dtype=PASS_NAMES)
    groups = Groups.of(columns, list(_TEXTS), by_appearance=True, with_absent=True)
    used = groups.any(columns["on_tensor_cores"].to_numpy(dtype=bool, na_value=False))
    is_told = groups.any(~columns["on_tensor_cores"].isna())
    return {
        **{name: plain_texts(own) for name, own in groups.keys.items()},
        **{name: groups.total(columns[name]) for name in _SUMMED},
        "calls": groups.counts(),
        "on_tensor_cores": np.array(
            [said if is_known else None for said, is_known in zip(used.tolist(), is_told, strict=True)], dtype=object
        ),
    }


def _communication(calls: pd.DataFrame) -> dict[str, Any]:
    """Equal calls of a library: a size stands where operators have shapes."""
    columns = columns_of(calls)
    groups = Groups.of(columns, ["collective", "size_bytes", "dtype"], by_appearance=True, with_absent=True)
    count, number, sizes = len(groups), groups.counts(), groups.keys["size_bytes"]
    absent, dtype = np.full(count, None, dtype=object), plain_texts(groups.keys["dtype"])
    known = groups.sums(columns["size_bytes"].to_numpy(dtype=np.int64, na_value=0))
    return {
        "operator": plain_texts(groups.keys["collective"]),
        "autograd": absent,
        "shapes": plain_texts([None if size is pd.NA else f"{size} bytes" for size in sizes]),
        "dtypes": dtype,
        "family": np.full(count, "communication", dtype=object),
        "dtype": dtype,
        "flops": pd.arrays.IntegerArray(np.ones(count, dtype=np.int64), np.ones(count, dtype=bool)),
        "masked_flops": np.zeros(count, dtype=np.int64),
        "bytes": pd.arrays.IntegerArray(known, sizes.isna()),
        "gpu_ops": number,
        "gpu_ns": groups.sums(columns["end_ns"] - columns["start_ns"]),
        "calls": number,
        "on_tensor_cores": absent,
    }


def _peaks(dtypes: np.ndarray, families: np.ndarray, says: np.ndarray, device_name: str | None) -> dict[str, Any]:
    peak = peak_of(device_name)
    told = list(zip(dtypes.tolist(), families.tolist(), says.tolist(), strict=True))
    kind_of = {each: None if each[0] is None else _element_type(*each) for each in set(told)}
    kinds = [kind_of[each] for each in told]
    rates = [peak.tflops.get(kind) if peak and kind else None for kind in kinds]
    memory = [peak.gbytes_per_s if peak and family != "communication" else None for family in families]
    return {
        "element_type": text_array(kinds),
        "peak_tflops_per_s": pd.array(rates, dtype="Float64"),
        "peak_gbytes_per_s": pd.array(memory, dtype="Float64"),
    }


def _element_type(dtype: str, family: str, on_tensor_cores: bool | None) -> str | None:
    if family == "communication":
        return None
    if family in MODEL_FAMILIES:
        return element_type(dtype, tensor_cores=on_tensor_cores)
    # Other work runs on the vector units, which compute 16-bit elements in 32 bits.
    kind = element_type(dtype, tensor_cores=False)
    return "fp32" if kind in ("bf16", "fp16") else kind


# Which share of the GPU's peak each step's model FLOPs are: MFU.
#
# Model FLOPs are those of PaLM's MFU formula (Chowdhery et al. 2022, appendix B): 6 for each multiplied parameter and
# token, and attention in full, 12 · layers · heads · head width · sequence for each token, also under a causal mask.
# `torch.utils.flop_counter` counts the same products; the runners' `model_flops_per_step` is the same sum by hand.


_APART = 0.2
"""Ranks whose work differs by this share do not do the same."""


class Mfu(Result):
    """One row for each rank and step."""

    title = "Model FLOPs utilisation"
    keys = ("rank", "step")
    columns = {
        "rank": RANK,
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
        return len(work) < 2 or bool(work.max() <= (1 + _APART) * work.min())


def mfu_per_rank(
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
    known_steps = steps["step"].notna().to_numpy()
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
            "is_complete": steps["is_complete"].array[place],
            "step_ns": steps["window_ns"].array[place],
            "step_source": "profiled",
            **_peak(trace, known),
        },
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
    return table.assign(model_flops=flops, step_source="profiled", **absent).astype({
        "step": "Int64", "peak_tflops_per_s": "Float64",
    })  # fmt: skip


def _flops(trace: RankTrace, tree: OperatorTree, known: pd.DataFrame) -> dict[str, np.ndarray]:
    """Model FLOPs, and of all FLOPs those repeated and those masked, by row of `steps`; and `calls` that are known."""
    is_repeated = _is_repeated(trace, tree, known)
    model, flops, masked = (whole_of(known, name, 0) for name in ("model_flops", "flops", "masked_flops"))
    has_flops, has_mask = known["flops"].notna().to_numpy(), known["masked_flops"].notna().to_numpy()
    has_model = known["model_flops"].notna().to_numpy() | is_repeated
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
    names = trace.host_ops["name"].array[rows]
    is_forward = ~mask_of(names, lambda name: name.endswith("_backward"))
    is_attention = rows_named(known, "family", "attention")
    in_backward = tree.autograd[rows] == PASSES.index("backward")
    return (tree.autograd[rows] == PASSES.index("recompute")) | (in_backward & is_attention & is_forward)


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
