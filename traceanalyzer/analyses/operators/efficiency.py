"""How well each operator uses its GPU: achieved TFLOP/s and GB/s beside what the device can do."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio, stack
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.names import EfficiencyColumn
from traceanalyzer.analyses.operators.operator_shapes import OperatorShapes
from traceanalyzer.analyses.operators.operator_tree import PASS_NAMES, OperatorTree
from traceanalyzer.analyses.operators.operator_work import OperatorWork
from traceanalyzer.analyses.operators.work import MODEL_FAMILIES
from traceanalyzer.meaning.columns import Better, Column, Unit
from traceanalyzer.meaning.gpus import element_type, peak_of
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import plain_texts, text_array
from traceanalyzer.model.tables import array_of, column_of, columns_of, picked, sorted_by, table_of

_TEXTS = ("operator", "autograd", "shapes", "dtypes", "family", "dtype")
"""What tells calls apart; the last one, what they compute in, only decides on the peak."""

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
        return self._with(
            table,
            {
                "tflops_per_s": tflops,
                "gbytes_per_s": gbytes,
                "flops_per_byte": ratio(done, table["bytes"]),
                "flops_pct": percent(tflops, table["peak_tflops_per_s"]),
                "bandwidth_pct": percent(gbytes, table["peak_gbytes_per_s"]),
            },
        )


def per_rank(trace: RankTrace, calls: pd.DataFrame, tree: OperatorTree, work: OperatorWork) -> pd.DataFrame:
    """Add up the work of equal calls, and of communication by collective, dtype and size."""
    found = picked(work.calls, array_of(work.calls, "gpu_ops") > 0)
    if found.empty and calls.empty:
        return pd.DataFrame()
    parts = [_operators(trace, tree, found), *([_communication(calls)] if len(calls) else [])]
    held = {name: [part[name] for part in parts] for name in parts[0]}
    texts = {name: np.concatenate(held[name]) for name in _TEXTS}
    numbers = {name: _as_one(held[name]) for name in (*_SUMMED, "calls")}
    says = np.concatenate(held["on_tensor_cores"])
    columns = {
        **{name: text_array(texts[name]) for name in _TEXTS if name != "dtype"},
        **numbers,
        "on_tensor_cores": pd.array(says, dtype="boolean"),
        **_peaks(texts["dtype"], texts["family"], says, trace.meta.device_name),
    }
    return sorted_by(table_of(columns), "gpu_ns", kind="quicksort")


def across(parts: Mapping[int, pd.DataFrame]) -> Efficiency:
    """The ranks' rows under each other."""
    return Efficiency(stack(parts, tuple(Efficiency.columns)))


def _operators(trace: RankTrace, tree: OperatorTree, found: pd.DataFrame) -> dict[str, Any]:
    """Equal calls of operators; texts are plain objects."""
    columns = columns_of(found)
    rows = columns["row"]
    names = {"operator": "name", "shapes": "shapes", "dtypes": "dtypes"}
    columns |= {name: column_of(trace.host_ops, own).take(rows) for name, own in names.items()}
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


def _as_one(parts: Sequence[Any]) -> pd.arrays.IntegerArray:
    """Integers under each other."""
    return pd.arrays.IntegerArray(
        np.concatenate(
            [
                np.asarray(part) if isinstance(part, np.ndarray) else part.to_numpy(np.int64, na_value=1)
                for part in parts
            ]
        ),
        np.concatenate(
            [np.zeros(len(part), dtype=bool) if isinstance(part, np.ndarray) else part.isna() for part in parts]
        ),
    )


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
