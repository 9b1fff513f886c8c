"""The tiles below the verdict: one figure each, with its spread over ranks and its definition."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from traceanalyzer.job.run_info import RunInfo
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import ABSENT, text
from traceanalyzer.report.contents import Report
from traceanalyzer.report.words import care
from traceanalyzer.report.words.parts import Split

if TYPE_CHECKING:
    from traceanalyzer.analyses.frames import Frame
    from traceanalyzer.analyses.names import HeadlineColumn


_IN_GRAPHS = "not told inside CUDA graphs"


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure: mean over ranks, spread, and each rank's place on a scale from 0 to 100.

    `sources` are the Results that it comes from; `doubt` says why one of them is to be read with care.
    """

    name: str
    kind: str
    value: str
    detail: str
    spread: tuple[str, ...]
    marks: tuple[tuple[int, float], ...]
    definition: str
    sources: tuple[str, ...] = ("headline",)
    doubt: str | None = None

    @property
    def places(self) -> list[float]:
        """Where marks are drawn: of ranks at one place only one, so that 1,024 ranks stay few marks."""
        return sorted({round(place, 1) for _, place in self.marks})


def tiles(report: Report, split: Split | None) -> list[Tile]:
    """Step time, compute, exposed communication, idle and overlap of the headline's steps; then what else is known."""
    if split is None:
        return []
    frame = report.results["headline"].to_frame().set_index("rank")
    doubts = care.reasons(report.results)
    return [replace(tile, doubt=care.doubt_of(tile.sources, doubts)) for tile in _made(report, frame, split)]


def _made(report: Report, frame: "Frame[HeadlineColumn]", split: Split) -> list[Tile]:
    return [
        _length(frame, split, report.run_info),
        _share(frame["compute_pct"], "Compute", "compute", "Share of the time in which a compute kernel runs.",
               _fused(frame)),
        replace(_share(frame["exposed_comm_pct"], "Exposed communication", _larger_part(split),
                       "Share of the time in which communication but no compute runs.", _transfer_and_wait(split)),
                sources=("headline", "exposed_comm")),
        _share(frame["idle_pct"], "Idle", "idle", "Share of the time in which nothing runs on the GPU."),
        _overlap(frame),
        *_speed(report.run_info),
        *_mfu(report),
        *_memory(report.run_info),
    ]  # fmt: skip


def _larger_part(split: Split) -> str:
    """The kind that stands for exposed communication."""
    is_wait = split.has_wait and split.table["exposed_wait_ns"].sum() > split.table["exposed_transfer_ns"].sum()
    return "wait" if is_wait else "transfer"


def _length(frame: "Frame[HeadlineColumn]", split: Split, info: RunInfo | None) -> Tile:
    each = frame["window_ns"] / split.per
    deviation = frame["step_std_ns"].dropna()
    detail = f"± {text(deviation.mean(), Unit.NS)} between steps" if len(deviation) else split.basis
    if info is not None and info.unprofiled is not None and info.unprofiled.mean is not None:
        detail = f"{detail}; {text(info.unprofiled.mean, Unit.NS)} without the profiler"
    name = "Step time" if split.steps else "Window"
    definition = (
        "From a step's first GPU operation to the next step's: mean over the complete steps that all ranks have."
        if split.steps
        else "From the first to the last GPU operation of the capture."
    )
    return Tile(name, "plain", text(each.mean(), Unit.NS), detail, _spread(each, Unit.NS), (), definition)


def _share(share: pd.Series, name: str, kind: str, definition: str, detail: str = "") -> Tile:
    if share.isna().all():
        return Tile(name, kind, ABSENT, _IN_GRAPHS, (), (), definition)
    marks = tuple((int(rank), float(value)) for rank, value in share.dropna().items())
    return Tile(name, kind, text(share.mean(), Unit.PCT), detail, _spread(share, Unit.PCT), marks, definition)


def _fused(frame: "Frame[HeadlineColumn]") -> str:
    """Mean share of kernels that compute and communicate at once; empty without any."""
    share = frame["fused_pct"].fillna(0)
    return f"{text(share.mean(), Unit.PCT)} in kernels that communicate too" if share.any() else ""


def _overlap(frame: "Frame[HeadlineColumn]") -> Tile:
    definition = "Share of the communication time that runs under compute; higher is better."
    if frame["overlap_pct"].isna().all():
        why = _IN_GRAPHS if frame["comm_ns"].isna().any() else "no communication"
        return Tile("Overlap", "plain", ABSENT, why, (), (), definition)
    return _share(frame["overlap_pct"], "Overlap", "plain", definition)


def _speed(info: RunInfo | None) -> list[Tile]:
    if info is None or info.tokens_per_s is None:
        return []
    definition = "Tokens of one optimizer step over all ranks / step time without a profiler, as the run recorded it."
    value = f"{info.tokens_per_s:,.0f}"
    return [Tile("Tokens per second", "plain", value, "without the profiler", (), (), definition, sources=())]


def _mfu(report: Report) -> list[Tile]:
    """Of the complete steps; none without a known peak."""
    if "mfu" not in report.results or (mean := report.results["mfu"].by_rank()).empty:
        return []
    mfu = report.results["mfu"]
    first = mfu.known().iloc[0]
    peak = f"of {first['peak_tflops_per_s']:,.0f} TFLOP/s {first['element_type']}, {first['step_source']} step"
    name = "MFU"
    definition = "FLOPs of the model in a step, without recomputation, / (step time · the GPU's peak for that type)."
    marks = tuple((int(rank), float(value)) for rank, value in mean.items())
    is_pipeline = "pipeline" in report.results and len(report.results["pipeline"]) > 0
    if not mfu.is_of_equal_work and not is_pipeline:
        # Whether all of it is the model's, a trace does not tell: a rank may do work that no other does.
        name = "FLOPs of peak"
        peak += "; not called MFU: the ranks do not do the same work"
    value, over_ranks = text(mean.mean(), Unit.PCT), _spread(mean, Unit.PCT)
    return [Tile(name, "plain", value, peak, over_ranks, marks, definition, sources=("headline", "mfu"))]


def _memory(info: RunInfo | None) -> list[Tile]:
    rows = [row for row in (info.memory or ()) if row] if info is not None else []
    peaks = pd.Series({row["rank"]: row.get("peak_allocated_bytes") for row in rows}, dtype="Float64").dropna()
    if peaks.empty:
        return []
    definition = "Most memory that PyTorch's allocator had given out at once, as the run recorded it."
    value = text(peaks.max(), Unit.BYTES)
    over_ranks = _spread(peaks, Unit.BYTES)
    return [Tile("Peak memory", "plain", value, "allocated, largest rank", over_ranks, (), definition, sources=())]


def _transfer_and_wait(split: Split) -> str:
    """Mean shares of transfer and wait, where they are known apart."""
    if not split.has_wait:
        return "transfer and wait not told apart"
    window = split.table["window_ns"]
    shares = {part.column: (100.0 * split.table[part.column] / window).mean() for part in split.parts}
    pieces = [
        f"{part.label.removeprefix('exposed').lstrip(', ')}\u00a0{text(shares[part.column], Unit.PCT)}"
        for part in split.parts
        if part.kind in ("transfer", "wait", "unmatched") and split.table[part.column].any()
    ]
    return "; ".join(pieces)


def _spread(values: pd.Series, unit: Unit) -> tuple[str, ...]:
    """Least and most, and whose they are."""
    known = values.dropna()
    if len(known) < 2:
        return ()
    low, high = known.idxmin(), known.idxmax()
    if text(known[low], unit) == text(known[high], unit):
        return ("the same on both ranks" if len(known) == 2 else f"the same on all {len(known)} ranks",)
    return f"{text(known[low], unit)} on rank {low},", f"{text(known[high], unit)} on rank {high}"
