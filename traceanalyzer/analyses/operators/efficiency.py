"""How well each operator uses its GPU: achieved TFLOP/s and GB/s beside what the device can do."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio, stack, typed
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.kernels.peaks import element_type, peak_of
from traceanalyzer.analyses.names import EfficiencyColumn
from traceanalyzer.analyses.operators.operator_shapes import OperatorShapes
from traceanalyzer.analyses.operators.operator_tree import PASSES, OperatorTree
from traceanalyzer.analyses.operators.operator_work import OperatorWork
from traceanalyzer.analyses.operators.work import MODEL_FAMILIES
from traceanalyzer.meaning.columns import Better, Column, Unit
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import under_each_other

_SUMMED = ("flops", "masked_flops", "bytes", "gpu_ops", "gpu_ns")


class Efficiency(Result[EfficiencyColumn]):
    """One row for each rank, operator, autograd pass, shapes and dtypes with known work; most GPU time first."""

    title: ClassVar[str] = "Efficiency of operators"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "operator", "autograd", "shapes", "dtypes")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
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


def per_rank(trace: RankTrace, calls: pd.DataFrame, tree: OperatorTree, work: OperatorWork) -> pd.DataFrame:
    """Add up the work of equal calls, and of communication by collective, dtype and size."""
    found = work.calls[work.calls["gpu_ops"] > 0]
    if found.empty and calls.empty:
        return pd.DataFrame()
    table = under_each_other([_operators(trace, tree, found), _communication(calls)])
    texts = {"autograd": "str", "family": "str"}
    table = typed(table, texts | dict.fromkeys(("calls", *_SUMMED), "Int64") | {"on_tensor_cores": "boolean"})
    return _with_peaks(table, trace.meta.device_name).sort_values("gpu_ns", ascending=False, ignore_index=True)


def across(parts: Mapping[int, pd.DataFrame]) -> Efficiency:
    """The ranks' rows under each other."""
    return Efficiency(stack(parts, tuple(Efficiency.columns)))


def _operators(trace: RankTrace, tree: OperatorTree, found: pd.DataFrame) -> pd.DataFrame:
    rows = found["row"].to_numpy()
    ops = trace.host_ops.iloc[rows][["name", "shapes", "dtypes"]].reset_index(drop=True)
    autograd = pd.Categorical.from_codes(tree.autograd[rows], categories=list(PASSES))
    table = pd.concat([ops.rename(columns={"name": "operator"}), found.reset_index(drop=True)], axis=1)
    keys = ["operator", "autograd", "shapes", "dtypes", "family", "dtype"]
    table = table.assign(autograd=autograd)
    groups = Groups.of(table, keys, by_appearance=True, with_absent=True)
    says = table["on_tensor_cores"]
    used = groups.any(says.fillna(value=False).to_numpy(dtype=bool))
    is_told = groups.any(says.notna().to_numpy())
    summed = groups.totals(table, list(_SUMMED))
    return summed.assign(calls=groups.counts(), on_tensor_cores=pd.arrays.BooleanArray(used, ~is_told))


def _communication(calls: pd.DataFrame) -> pd.DataFrame:
    if calls.empty:
        return pd.DataFrame()
    table = calls.assign(gpu_ns=calls["end_ns"] - calls["start_ns"], shapes=_text(calls["size_bytes"]))
    keys = ["collective", "shapes", "dtype"]
    groups = Groups.of(table, keys, by_appearance=True, with_absent=True)
    sizes = table["size_bytes"].fillna(0).to_numpy(dtype=np.int64)
    summed = groups.table(
        calls=groups.counts(),
        gpu_ns=groups.sums(table["gpu_ns"].to_numpy()),
        bytes=pd.array(groups.sums(sizes), dtype="Int64"),
    ).assign(family="communication", autograd=None, masked_flops=0)
    known = summed["shapes"].notna()
    summed["bytes"] = summed["bytes"].where(known)
    return summed.assign(gpu_ops=summed["calls"], dtypes=summed["dtype"]).rename(columns={"collective": "operator"})


def _text(size_bytes: pd.Series) -> pd.Series:
    """Communication has a size where operators have shapes."""
    texts = size_bytes.astype("object").map(lambda size: f"{size} bytes", na_action="ignore")
    return texts.where(size_bytes.notna())


def _with_peaks(table: pd.DataFrame, device_name: str | None) -> pd.DataFrame:
    peak = peak_of(device_name)
    answers = [None if pd.isna(said) else bool(said) for said in table["on_tensor_cores"]]
    types = zip(table["dtype"].astype("object"), table["family"], answers, strict=True)
    kinds = [None if pd.isna(dtype) else _element_type(dtype, family, said) for dtype, family, said in types]
    rates = [peak.tflops.get(kind) if peak and kind else None for kind in kinds]
    memory = [peak.gbytes_per_s if peak and family != "communication" else None for family in table["family"]]
    return table.assign(
        element_type=pd.Series(kinds, dtype="str"),
        peak_tflops_per_s=pd.array(rates, dtype="Float64"),
        peak_gbytes_per_s=pd.array(memory, dtype="Float64"),
    ).drop(columns="dtype")


def _element_type(dtype: str, family: str, on_tensor_cores: bool | None) -> str | None:
    if family == "communication":
        return None
    if family in MODEL_FAMILIES:
        return element_type(dtype, tensor_cores=on_tensor_cores)
    # Other work runs on the vector units, which compute 16-bit elements in 32 bits.
    kind = element_type(dtype, tensor_cores=False)
    return "fp32" if kind in ("bf16", "fp16") else kind
