"""The tiles below the verdict: one figure each, with its spread over ranks and its definition."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.report import Report
from traceanalyzer.report.parts import Split
from traceanalyzer.report.quantities import ABSENT, text


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure: mean over ranks, spread, and each rank's place on a scale from 0 to 100."""

    name: str
    kind: str
    value: str
    detail: str
    spread: tuple[str, ...]
    marks: tuple[tuple[int, float], ...]
    definition: str


def tiles(report: Report, split: Split | None) -> list[Tile]:
    """Step time, compute, exposed communication, idle and overlap, all of the headline's steps."""
    if split is None:
        return []
    frame = report.results["headline"].to_frame().set_index("rank")
    return [
        _length(frame, split),
        _share(frame, "compute", "Compute", "compute", "Share of the time in which a compute kernel runs."),
        _share(frame, "exposed_comm", "Exposed communication", "transfer",
               "Share of the time in which communication but no compute runs.", _transfer_and_wait(split)),
        _share(frame, "idle", "Idle", "idle", "Share of the time in which nothing runs on the GPU."),
        _overlap(frame),
    ]  # fmt: skip


def _length(frame: pd.DataFrame, split: Split) -> Tile:
    each = frame["window_ns"] / split.per
    deviation = frame["step_std_ns"].dropna()
    detail = f"± {text(deviation.mean(), '_ns')} between steps" if len(deviation) else split.basis
    marks = tuple((int(rank), 100.0 * value / each.max()) for rank, value in each.items()) if each.max() else ()
    name = "Step time" if split.steps else "Window"
    definition = (
        "From a step's first GPU operation to the next step's: mean over the complete steps that all ranks have."
        if split.steps
        else "From the first to the last GPU operation of the capture."
    )
    return Tile(name, "plain", text(each.mean(), "_ns"), detail, _spread(each, "_ns"), marks, definition)


def _share(frame: pd.DataFrame, part: str, name: str, kind: str, definition: str, detail: str = "") -> Tile:
    share = frame[f"{part}_pct"]
    if share.isna().all():
        return Tile(name, kind, ABSENT, "", (), (), definition)
    marks = tuple((int(rank), float(value)) for rank, value in share.dropna().items())
    return Tile(name, kind, text(share.mean(), "_pct"), detail, _spread(share, "_pct"), marks, definition)


def _overlap(frame: pd.DataFrame) -> Tile:
    definition = "Share of the communication time that runs under compute; higher is better."
    if frame["overlap_pct"].isna().all():
        return Tile("Overlap", "plain", ABSENT, "no communication", (), (), definition)
    return _share(frame, "overlap", "Overlap", "plain", definition)


def _transfer_and_wait(split: Split) -> str:
    """Mean shares of transfer and wait, where they are known apart."""
    if not split.has_wait:
        return "transfer and wait not told apart"
    window = split.table["window_ns"]
    pieces = [
        f"{part.kind} {text((100.0 * split.table[part.column] / window).mean(), '_pct')}"
        for part in split.parts
        if part.kind in ("transfer", "wait", "unmatched") and split.table[part.column].any()
    ]
    return ", ".join(pieces)


def _spread(values: pd.Series, column: str) -> tuple[str, ...]:
    """Least and most, and whose they are."""
    known = values.dropna()
    if len(known) < 2:
        return ()
    low, high = known.idxmin(), known.idxmax()
    if text(known[low], column) == text(known[high], column):
        return ("the same on both ranks" if len(known) == 2 else f"the same on all {len(known)} ranks",)
    return f"{text(known[low], column)} on rank {low},", f"{text(known[high], column)} on rank {high}"
