"""Precision: matrix work in more bits than the GPU's tensor cores take.

Matrix kernels run in FP32 or FP64 on a GPU that has tensor cores for a lower precision.

**Fix.** `torch.autocast("cuda", dtype=torch.bfloat16)`; for FP32 that must stay, TF32:
`torch.set_float32_matmul_precision("high")`. Volta and Turing have FP16 only.
"""

import re
from collections.abc import Iterator

from traceanalyzer.analyses.kernels import MATRIX_CATEGORIES, Kernels, category, uses_tensor_cores
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.gpus import gpu_of, matrix_types
from traceanalyzer.meaning.names import short_name

PLACE = "Compute", 2

_DOUBLE = re.compile(r"\bdouble\b|f64|d884gemm|(?<![a-z])[dz]gem[mv]|_D[BD]_")
"""cuBLAS' `dgemm`, CUTLASS' `d884gemm`, `f64f64` of both; hipBLASLt's `_DB_`, its letter of the type."""

_NO_FASTER = re.compile("gemv|half|bfloat16")
"""Products with a vector, which memory bounds in any precision, and of 16-bit inputs: they need another kernel."""


def precision(run: Run, kernels: Kernels, ranks: Ranks) -> Iterator[Finding]:
    """Matrix kernels compute in 64 bits, or without tensor cores, on GPUs that have them for fewer bits.

    The change is these kernels faster by the ratio of the GPU's peaks: to TF32, or 16 bits where there is none.
    """
    table = kernels.table[kernels.table["kind"] == "compute"]
    table = table.assign(bits=[_bits(str(name)) for name in table["name"]]).dropna(subset="bits")
    devices = ranks.table.set_index("rank")["device_name"].dropna()
    if table.empty:
        return
    rank = int(table.groupby("rank")["total_ns"].sum().idxmax())
    device = devices.get(rank)
    types = matrix_types(device, kernels.table.loc[kernels.table["rank"] == rank, "name"])
    lower = next((kind for kind in ("tf32", "bf16", "fp16") if kind in (types or ())), None)
    own = table[table["rank"] == rank]
    by_name = own.groupby(["name", "bits"], observed=True)["total_ns"].sum() / run.recorded_each
    gpu = gpu_of(device)
    rates = gpu.tflops if gpu else {}
    if lower is None or not run.is_worth(by_name.sum()):
        return
    bits = by_name.groupby("bits").sum().idxmax()
    changes = tuple(
        Change("kernel", rates[now] / rates[lower], name=name)
        for (name, now), ns in by_name.items()
        if {now, lower} <= {*rates} and rates[now] < rates[lower] and run.is_worth(ns)
    )
    who = sorted(map(int, table["rank"].unique()))
    some = () if {*who} == {*run.ranks} else tuple(who)
    how = "compute in 64 bits" if bits == "fp64" else "use no tensor cores"
    peak = (
        f"; {gpu.model} reaches {rates[bits]:.0f} TFLOP/s in {bits.upper()}, {rates[lower]:.0f} in {lower.upper()}"
        if changes and gpu
        else ""
    )
    yield Finding(
        headline=f"Matrix products in {bits.upper()} take {time_text(by_name.sum())}{run.each}.",
        why=f"{short_name(str(by_name.idxmax()[0]))} and others {how}{' on ' + run.who(some) if some else ''}{peak}.",
        fix="Compute in float32 or lower: NumPy arrays and .double() make float64 tensors."
        if bits == "fp64"
        else run.terms.choose(
            {
                "torch": 'torch.set_float32_matmul_precision("high"), or torch.autocast in bfloat16.',
                "jax": 'jax.default_matmul_precision("tensorfloat32"), or bfloat16 inputs.',
                "native": "CUBLAS_COMPUTE_32F_FAST_TF32, or 16-bit inputs.",
            }
        )
        if lower == "tf32"
        else f"torch.autocast in {'bfloat16' if lower == 'bf16' else 'float16 with torch.amp.GradScaler'}.",
        changes=changes,
        named=some,
        evidence=tuple({"kernel": name, "ns": int(ns)} for (name, _), ns in by_name.nlargest(5).items()),
        table="kernels",
        half_of="the extra time in FP32",
        caveat="Lower precision can change convergence: compare the loss.",
    )


def _bits(kernel: str) -> str | None:
    """`fp64` or `fp32` of a matrix kernel whose name tells that it computes in these; `None` of others."""
    if category(kernel, "compute", None) not in MATRIX_CATEGORIES or _NO_FASTER.search(kernel.lower()):
        return None
    if _DOUBLE.search(kernel):
        return "fp64"
    return "fp32" if uses_tensor_cores(kernel) is False else None
