"""The tiles below the verdict: one figure each, with its spread over ranks and its definition."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import pandas as pd

from traceanalyzer.analyses.overview.over_ranks import Figure, OverRanks
from traceanalyzer.job.run_info import RunInfo, peak_memory
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import ABSENT, text
from traceanalyzer.meaning.vocabulary import TRANSFER, UNMATCHED, WAIT
from traceanalyzer.report.contents import Report
from traceanalyzer.report.words import care
from traceanalyzer.report.words.parts import Split, over_ranks_of

if TYPE_CHECKING:
    from traceanalyzer.analyses.frames import Frame, Row
    from traceanalyzer.analyses.names import HeadlineColumn, OverRanksColumn


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
    made = _made(report, frame, over_ranks_of(report.results), split)
    return [replace(tile, doubt=care.doubt_of(tile.sources, doubts)) for tile in made]


def _made(report: Report, frame: "Frame[HeadlineColumn]", over: OverRanks, split: Split) -> list[Tile]:
    return [
        _length(over, split, report.run_info),
        _share(frame["compute_pct"], over.of("compute_pct"), "Compute", "compute",
               "Share of the time in which a compute kernel runs.", _fused(over)),
        replace(_share(frame["exposed_comm_pct"], over.of("exposed_comm_pct"), "Exposed communication",
                       _larger_part(over), "Share of the time in which communication but no compute runs.",
                       _transfer_and_wait(over, split)),
                sources=("headline", "exposed_comm")),
        *_copies(frame, over),
        _share(frame["idle_pct"], over.of("idle_pct"), "Idle", "idle",
               "Share of the time in which nothing runs on the GPU."),
        _overlap(frame, over),
        *_speed(report.run_info),
        *_mfu(report, over),
        *_memory(report.run_info),
    ]  # fmt: skip


def _copies(frame: "Frame[HeadlineColumn]", over: OverRanks) -> list[Tile]:
    """Only where they take more than communication: else the line of tiles has no room for it."""
    copies, comm = over.of("exposed_copy_pct"), over.of("exposed_comm_pct")
    if not (copies["mean_pct"] or 0) > (comm["mean_pct"] or 0):
        return []
    definition = "Share of the time in which a copy, but neither compute nor communication, runs."
    return [_share(frame["exposed_copy_pct"], copies, "Exposed copy", "copy", definition)]


def _larger_part(over: OverRanks) -> str:
    """The kind that stands for exposed communication."""
    wait, transfer = (over.of(name)["mean_pct"] or 0 for name in ("exposed_wait_pct", "exposed_transfer_pct"))
    return "wait" if wait > transfer else "transfer"


def _length(over: OverRanks, split: Split, info: RunInfo | None) -> Tile:
    length, deviation_ns = over.of("window_ns"), over.of("step_std_ns")["mean_ns"]
    detail = split.basis if deviation_ns is None else f"± {text(deviation_ns, Unit.NS)} between steps"
    if info is not None and info.unprofiled is not None and info.unprofiled.mean is not None:
        detail = f"{detail}; {text(info.unprofiled.mean, Unit.NS)} without the profiler"
    name = "Step time" if split.steps else "Window"
    definition = (
        "From a step's first GPU operation to the next step's: mean over the complete steps that all ranks have."
        if split.steps
        else "From the first to the last GPU operation of the capture."
    )
    return Tile(name, "plain", text(length["mean_ns"], Unit.NS), detail, _spread(length, Unit.NS), (), definition)


def _share(
    of_ranks: pd.Series, over: "Row[OverRanksColumn]", name: str, kind: str, definition: str, detail: str = ""
) -> Tile:
    if not over["ranks"]:
        return Tile(name, kind, ABSENT, _IN_GRAPHS, (), (), definition)
    marks = tuple((int(rank), float(value)) for rank, value in of_ranks.dropna().items())
    return Tile(name, kind, text(over["mean_pct"], Unit.PCT), detail, _spread(over, Unit.PCT), marks, definition)


def _fused(over: OverRanks) -> str:
    """Mean share of kernels that compute and communicate at once; empty without any."""
    mean = over.of("fused_pct")["mean_pct"]
    return f"{text(mean, Unit.PCT)} in kernels that communicate too" if mean else ""


def _overlap(frame: "Frame[HeadlineColumn]", over: OverRanks) -> Tile:
    definition = "Share of the communication time that runs under compute; higher is better."
    overlap = over.of("overlap_pct")
    if not overlap["ranks"]:
        why = _IN_GRAPHS if frame["comm_ns"].isna().any() else "no communication"
        return Tile("Overlap", "plain", ABSENT, why, (), (), definition)
    return _share(frame["overlap_pct"], overlap, "Overlap", "plain", definition)


def _speed(info: RunInfo | None) -> list[Tile]:
    if info is None or info.tokens_per_s is None:
        return []
    definition = "Tokens of one optimizer step over all ranks / step time without a profiler, as the run recorded it."
    value = f"{info.tokens_per_s:,.0f}"
    return [Tile("Tokens per second", "plain", value, "without the profiler", (), (), definition, sources=())]


def _mfu(report: Report, over: OverRanks) -> list[Tile]:
    """Of the complete steps; none without a known peak."""
    if "mfu" not in report.results or (of_ranks := report.results["mfu"].by_rank()).empty:
        return []
    mfu, mean = report.results["mfu"], over.of("mfu_pct")
    first = mfu.known().iloc[0]
    peak = f"of {first['peak_tflops_per_s']:,.0f} TFLOP/s {first['element_type']}, {first['step_source']} step"
    name = "MFU"
    definition = "FLOPs of the model in a step, without recomputation, / (step time · the GPU's peak for that type)."
    is_pipeline = "pipeline" in report.results and len(report.results["pipeline"]) > 0
    if not mfu.is_of_equal_work and not is_pipeline:
        # Whether all of it is the model's, a trace does not tell: a rank may do work that no other does.
        name = "FLOPs of peak"
        peak += "; not called MFU: the ranks do not do the same work"
    return [replace(_share(of_ranks, mean, name, "plain", definition, peak), sources=("headline", "mfu"))]


def _memory(info: RunInfo | None) -> list[Tile]:
    rows = {} if info is None else peak_memory(info)
    peaks = {rank: row["peak_allocated_bytes"] for rank, row in rows.items() if "peak_allocated_bytes" in row}
    if not peaks:
        return []
    definition = "Most memory that PyTorch's allocator had given out at once, as the run recorded it."
    least, most = min(peaks, key=lambda rank: peaks[rank]), max(peaks, key=lambda rank: peaks[rank])
    ends = ((peaks[least], least), (peaks[most], most))
    over_ranks = _ends(len(peaks), *ends, Unit.BYTES)
    value = text(peaks[most], Unit.BYTES)
    return [Tile("Peak memory", "plain", value, "allocated, largest rank", over_ranks, (), definition, sources=())]


def _transfer_and_wait(over: OverRanks, split: Split) -> str:
    """Mean shares of transfer and wait, where they are known apart."""
    if not split.has_wait:
        return "transfer and wait not told apart"
    pieces = [
        f"{part.label.removeprefix('exposed').lstrip(', ')}\u00a0{text(mean, Unit.PCT)}"
        for part in split.parts
        if part.kind in _OF_COMM and (mean := over.of(_OF_COMM[part.kind])["mean_pct"])
    ]
    return "; ".join(pieces)


_OF_COMM: Mapping[str, Figure] = MappingProxyType(
    {TRANSFER.kind: "exposed_transfer_pct", WAIT.kind: "exposed_wait_pct", UNMATCHED.kind: "exposed_unmatched_pct"}
)


def _spread(over: "Row[OverRanksColumn]", unit: Unit) -> tuple[str, ...]:
    """Least and most, and whose they are."""
    low, high = (over["least_ns"], over["most_ns"]) if unit is Unit.NS else (over["least_pct"], over["most_pct"])
    return _ends(over["ranks"], (low, over["least_rank"]), (high, over["most_rank"]), unit)


def _ends(ranks: int, low: tuple[float, int], high: tuple[float, int], unit: Unit) -> tuple[str, ...]:
    if ranks < 2:
        return ()
    least, most = text(low[0], unit), text(high[0], unit)
    if least == most:
        return ("the same on both ranks" if ranks == 2 else f"the same on all {ranks:,} ranks",)
    return f"{least} on rank {low[1]},", f"{most} on rank {high[1]}"
