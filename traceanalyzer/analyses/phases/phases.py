"""How each rank's GPU time splits into forward, backward, optimizer, data and communication set-up."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent, stack, typed
from traceanalyzer.analyses.communication.exposed_comm import PARTS as EXPOSED_PARTS
from traceanalyzer.analyses.names import PhasesColumn
from traceanalyzer.analyses.phases.exposed_calls import ExposedCalls
from traceanalyzer.analyses.phases.op_phases import NAMES
from traceanalyzer.analyses.phases.phase_parts import Share
from traceanalyzer.analyses.time.breakdown import PARTS, known_only
from traceanalyzer.meaning.columns import Better, Column
from traceanalyzer.model import RankTrace, Window
from traceanalyzer.model.plain import known_of, whole_of
from traceanalyzer.model.tables import array_of, column_of, table_of, under_each_other


class Phases(Result[PhasesColumn]):
    """One row for each rank, window (`step` absent: the whole) and phase; the rows of a window add up to it."""

    title: ClassVar[str] = "Phases"
    keys: ClassVar[tuple[str, ...]] = ("rank", "step", "phase")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "step": Column.ident("Step; absent for the whole window."),
        "phase": Column.text(
            "Phase in which the host launched the operation that the time belongs to; unattributed when neither "
            "the user's ranges nor autograd tell."
        ),
        "total_ns": Column.time("Time of the window that belongs to the phase: the sum of its parts."),
        "compute_ns": Column.time(
            "Compute. Of kernels that run together the first to start counts.", better=Better.LESS
        ),
        "exposed_comm_ns": Column.time(
            "Communication while no compute runs: the sum of the next three.", better=Better.LESS
        ),
        "exposed_transfer_ns": Column.time(
            "Part of it in which data moves.", is_news_when_zero=True, better=Better.LESS
        ),
        "exposed_wait_ns": Column.time(
            "Part of it in which a call waits for another rank and none moves data.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "exposed_unmatched_ns": Column.time("The remainder: it cannot be told.", better=Better.LESS),
        "exposed_copy_ns": Column.time("Copies while neither runs.", better=Better.LESS),
        "opaque_ns": Column.time(
            "CUDA graphs recorded whole, while nothing else runs. Of their window the parts above are n/a."
        ),
        "idle_ns": Column.time(
            "Idle time before an operation of the phase.", is_news_when_zero=True, better=Better.LESS
        ),
        "operations": Column.count("GPU operations of the phase that start in the window."),
        "share_pct": Column.share("100 · total / window."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        total = table[list(PARTS)].sum(axis=1).astype("int64")
        unknown = table.groupby(["rank", "step"], dropna=False)["opaque_ns"].transform("sum")
        return self._with(
            known_only(table, unknown, EXPOSED_PARTS),
            {"total_ns": total, "share_pct": percent(total, table["window_ns"])},
        )


def per_rank(
    trace: RankTrace,
    breakdown: pd.DataFrame,
    steps: pd.DataFrame,
    phase_of_op: np.ndarray,
    shares: Mapping[str, Share],
) -> pd.DataFrame:
    """Each window's parts by the phase that launched what they belong to; checked against the breakdown.

    Phases that hold no time and no operation are left out.
    """
    if trace.gpu_ops.empty:
        return pd.DataFrame()
    windows, number = _windows(breakdown, steps)
    columns = _parts(trace, windows, phase_of_op, shares)
    asked = np.repeat(np.arange(len(number)), len(NAMES))
    held = np.any([columns[name] != 0 for name in (*PARTS, "operations")], axis=0)
    columns |= {"step": number[asked], "window_ns": windows["window_ns"][asked]}
    return table_of({name: values[held] for name, values in columns.items()})


def across(parts: Mapping[int, pd.DataFrame], exposed_calls: ExposedCalls) -> Phases:
    """The ranks' rows under each other, with their exposed communication split into transfer and wait."""
    table = stack(parts, (*Phases.columns, "window_ns"))
    if table.empty:
        return Phases(table)
    split = _by_phase(exposed_calls.table) if len(exposed_calls) else _by_phase(_NO_STRETCHES)
    table = table.merge(split, on=list(Phases.keys), how="left")
    table = table.fillna(dict.fromkeys(EXPOSED_PARTS, 0)).astype(dict.fromkeys(EXPOSED_PARTS, "int64"))
    assert (table[list(EXPOSED_PARTS)].sum(axis=1) == table["exposed_comm_ns"]).all(), "must add up to exposed comm"
    return Phases(table)


_NO_STRETCHES = pd.DataFrame(columns=["rank", "step", "phase", "transfer_ns", "wait_ns", "unmatched_ns"])


def _by_phase(stretches: pd.DataFrame) -> pd.DataFrame:
    """Sums of the stretches for each rank, step and phase, and for whole windows (`step` absent)."""
    names = ["transfer_ns", "wait_ns", "unmatched_ns"]
    texts = {"rank": "int64", "step": "Int64", "phase": "object"}
    stretches = typed(stretches, texts | dict.fromkeys(names, "int64"))
    in_steps = stretches[stretches["step"].notna()].groupby(["rank", "step", "phase"])[names].sum().reset_index()
    whole = stretches.groupby(["rank", "phase"])[names].sum().reset_index()
    whole["step"] = pd.array([pd.NA] * len(whole), dtype="Int64")
    table = under_each_other([whole, in_steps]) if len(in_steps) else whole
    return table.rename(columns={name: f"exposed_{name}" for name in names})


def _windows(breakdown: pd.DataFrame, steps: pd.DataFrame) -> tuple[dict[str, np.ndarray], Any]:
    """Parts and start of the whole window (its start is 0) and of every step that has one; the steps' numbers."""
    held = ~column_of(steps, "start_ns").isna() if len(steps) else np.zeros(0, dtype=bool)
    names = (*PARTS, "window_ns")
    columns = {name: array_of(breakdown, name) for name in names} | {"start_ns": np.zeros(1, np.int64)}
    if not held.any():
        return columns, pd.array([pd.NA], dtype="Int64")
    columns = {name: np.append(own, whole_of(steps, name)[held]) for name, own in columns.items()}
    number, is_absent = np.append(1, whole_of(steps, "step")[held]), np.append(True, ~known_of(steps, "step")[held])
    return columns, pd.arrays.IntegerArray(number, is_absent)


def _parts(
    trace: RankTrace, windows: Mapping[str, np.ndarray], phase: np.ndarray, shares: Mapping[str, Share]
) -> dict[str, Any]:
    """For each window and phase the window's parts that belong to the phase, and its operations."""
    held = [trace.window, *_of_steps(windows["start_ns"][1:], windows["window_ns"][1:])]
    table: dict[str, Any] = {"phase": np.tile(np.array(NAMES, dtype=object), len(held))}
    for part in PARTS:
        times = [_by_phase_of(phase, *shares[part].inside(window)) for window in held]
        assert (np.sum(times, axis=1) == windows[part]).all(), "the phases must add up to the breakdown"
        table[part] = np.concatenate(times)
    begins = array_of(trace.gpu_ops, "start_ns")
    counts = [
        sum(np.bincount(phase[first:past], minlength=len(NAMES)) for first, past in np.searchsorted(begins, limits))
        for limits in (window.stretches for window in held)
    ]
    return {**table, "operations": np.concatenate(counts)}


def _of_steps(starts: np.ndarray, lengths: np.ndarray) -> list[Window]:
    ends = starts + lengths
    return [Window(((start, end),), "step") for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _by_phase_of(phase: np.ndarray, rows: np.ndarray, times: np.ndarray) -> np.ndarray:
    # A weighted bincount works on floats, which are exact up to 2⁵³ ns, 104 days, only.
    sums = np.zeros(len(NAMES), dtype=np.int64)
    np.add.at(sums, phase[rows], times)
    return sums
