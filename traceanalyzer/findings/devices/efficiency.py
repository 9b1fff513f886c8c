"""Rules about a busy GPU that does little: tensor cores unused, memory-bound kernels, low MFU."""

from collections.abc import Mapping, Sequence

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.kernels.kernel_names import MATRIX_CATEGORIES
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.categories import Categories
from traceanalyzer.analyses.operators.efficiency import Efficiency
from traceanalyzer.analyses.operators.mfu import Mfu
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.phases.phases import Phases
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, count_of_steps, plain
from traceanalyzer.findings.devices.written_out import WRITTEN_OUT
from traceanalyzer.findings.engine_tools import infers
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.lateness import late_by, said_with_gain
from traceanalyzer.findings.tools import tools_of
from traceanalyzer.meaning.gains import gain_said
from traceanalyzer.meaning.gpus import Gpu, gpu_of, matrix_types
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.severities import Severity
from traceanalyzer.meaning.wholes import rate
from traceanalyzer.model.tables import rows_where

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

_MOST_ROWS = 5

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
            evidence=plain(table.head(_MOST_ROWS).reset_index()),
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
            evidence=plain(own.head(_MOST_ROWS)),
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
            evidence=plain(table[["rank", "step", "model_flops", "step_ns", "mfu_pct"]].head(_MOST_ROWS)),
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
