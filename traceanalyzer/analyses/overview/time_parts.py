"""Where each rank's mean step goes, part by part, and what its host and GPU need for a step by themselves."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, all_known
from traceanalyzer.analyses.blame.step_needs import StepNeeds, host_needs_ns
from traceanalyzer.analyses.communication.exposed_comm import ExposedComm
from traceanalyzer.analyses.grouping import sums_at
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.names import StepTimePartsColumn, TimePartsColumn
from traceanalyzer.analyses.same_keys import places_of
from traceanalyzer.analyses.time import breakdown
from traceanalyzer.analyses.time.headline import Headline, steps_of
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.meaning.columns import Adds, Better, Column
from traceanalyzer.meaning.vocabulary import (
    COMM,
    COMM_PARTS,
    COMPUTE,
    COPY,
    IDLE,
    IDLE_CAUSES,
    IDLE_PARTS,
    OPAQUE,
    PARTS,
    TRANSFER,
    Part,
)
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import columns_of, floats, only, rows_where, with_columns, without_rows

EVERY = (*PARTS, *COMM_PARTS, *IDLE_PARTS)
"""The parts that add up to a window, those of exposed communication, and those of idle time."""

_HIDDEN = (COMPUTE, COMM, COPY, *COMM_PARTS)
"""Parts that are not known of a window in which something unknown runs."""

_DEFINED: Mapping[str, Column] = {
    **{part.column: Column.time(part.definition, adds=Adds.DERIVED) for part in (*PARTS, *COMM_PARTS)},
    **{
        cause.column: Column.time(f"Of idle time: {cause.label}. {cause.definition}", adds=Adds.DERIVED)
        for cause in IDLE_CAUSES
    },
}


class TimeParts(Result[TimePartsColumn]):
    """One row for each rank: a mean step of `headline`, or the capture where it is of that.

    The parts of exposed communication, and of idle time, add up to it; they are absent where they do not.
    """

    title: ClassVar[str] = "Parts of a mean step"
    keys: ClassVar[tuple[str, ...]] = ("rank",)
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "basis": Column.text("What the row is of, as in `headline`.", is_secondary=True),
        "steps": Column.count("Number of its steps; absent for a whole capture.", adds=Adds.NONE),
        "window_ns": Column.time("Length of a mean step, or of the capture.", adds=Adds.DERIVED, better=Better.LESS),
        **_DEFINED,
        "host_needs_ns": Column.time(
            "What the host needs for a step by itself: the step's range on it less the calls in which it waits for the "
            "GPU; absent without steps, or where it is not known of each.",
            adds=Adds.DERIVED,
        ),
        "gpu_needs_ns": Column.time(
            "What the GPU needs by itself, without its waits and its idling: compute, exposed transfers and copies; "
            "absent without steps, or where transfers are not told from waits.",
            adds=Adds.DERIVED,
        ),
        **{part.share: Column.share(f"100 · {part.column} / window.", is_secondary=True) for part in EVERY},
        "not_computing_pct": Column.share("100 · (idle + exposed communication + exposed copies) / window."),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        names = [*(part.column for part in COMM_PARTS), *(part.share for part in _HIDDEN), "gpu_needs_ns"]
        return breakdown.known_only(table, names=[*names, "not_computing_pct"], dtype="Float64")


def across(
    _parts: Mapping[int, pd.DataFrame],
    headline: Headline,
    steps: Steps,
    exposed_comm: ExposedComm,
    idle: Idle,
    step_needs: StepNeeds,
) -> TimeParts:
    """Take the headline's parts, divide communication and idle time, and take the mean over its steps."""
    if not len(headline):
        return TimeParts(without_rows(TimeParts.columns))
    # The parts that add up: of a window with unknown time those that are known are too small, and the words say so.
    table = only(headline.table, ["rank", "basis", "steps", "window_ns", *breakdown.PARTS]).reset_index(drop=True)
    chosen = steps_of(headline, steps)
    table = divided(table, _of_ranks(exposed_comm, chosen), COMM, COMM_PARTS, ["rank"])
    table = divided(table, _of_ranks(idle, chosen), IDLE, IDLE_PARTS, ["rank"])
    columns, window = columns_of(table), floats(table["window_ns"])
    count = np.nan_to_num(floats(columns["steps"]), nan=1.0)
    times = {name: floats(columns[name]) for name in ("window_ns", *(part.column for part in EVERY))}
    lost = times[IDLE.column] + times[COMM.column] + times[COPY.column]
    shares = {part.share: 100.0 * _quotient(times[part.column], window) for part in EVERY}
    shares["not_computing_pct"] = 100.0 * _quotient(lost, window)
    means = {name: _quotient(own, count) for name, own in times.items()}
    gpu = sum(means[part.column] for part in (COMPUTE, TRANSFER, COPY))
    means["gpu_needs_ns"] = np.where(np.isnan(floats(columns["steps"])), np.nan, gpu)
    means["host_needs_ns"] = table["rank"].map(_hosts(step_needs, chosen)).to_numpy(dtype=np.float64)
    known = {name: pd.arrays.FloatingArray(own, np.isnan(own)) for name, own in (means | shares).items()}
    return TimeParts(with_columns(table, **known))


def _quotient(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """NaN where the whole is 0, or either is absent."""
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole != 0)


def leaves(table: pd.DataFrame) -> tuple[Part, ...]:
    """The parts of these rows that add up to their windows: wholes where they are not divided."""
    comm = COMM_PARTS if table[TRANSFER.column].notna().any() else (COMM,)
    idle = IDLE_PARTS if table[IDLE_PARTS[0].column].notna().any() else (IDLE,)
    return (COMPUTE, *comm, COPY, OPAQUE, *idle)


def _hosts(needs: StepNeeds, steps: list[int]) -> pd.Series:
    """Mean over the steps, of ranks of which each is known."""
    own = rows_where(needs.table, needs.table["step"].isin(steps)) if steps and len(needs) else needs.table.iloc[:0]
    return host_needs_ns(own, least=len(steps)) if len(own) else pd.Series(dtype="float64")


class StepTimeParts(Result[StepTimePartsColumn]):
    """One row for each rank and step that has a window, divided as `time_parts` divides a mean step."""

    title: ClassVar[str] = "Parts of each step"
    keys: ClassVar[tuple[str, ...]] = ("rank", "step")
    is_of_one_run: ClassVar[bool] = True
    is_detail: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "step": Column.ident("Step."),
        "is_complete": Column.flag("Neither open nor partial: counts in means."),
        "window_ns": Column.time("Length of the step's GPU window.", better=Better.LESS),
        **{name: Column.time(column.definition) for name, column in _DEFINED.items()},
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return breakdown.known_only(table, names=[part.column for part in COMM_PARTS])


def of_steps(_parts: Mapping[int, pd.DataFrame], steps: Steps, exposed_comm: ExposedComm, idle: Idle) -> StepTimeParts:
    """Divide communication and idle time of each step."""
    held = steps.table
    if len(held):
        held = held[held["step"].notna() & held["window_ns"].notna()]
    if held.empty:
        return StepTimeParts(without_rows(StepTimeParts.columns))
    keys = ["rank", "step"]
    table = held[[*keys, "is_complete", "window_ns", *breakdown.PARTS]].reset_index(drop=True)
    table = divided(table, _of_each(exposed_comm), COMM, COMM_PARTS, keys)
    return StepTimeParts(divided(table, _of_each(idle), IDLE, IDLE_PARTS, keys))


def _of_ranks(detail: Result, steps: list[int]) -> pd.DataFrame:
    """The rows of these steps; none: that of the whole capture."""
    table: pd.DataFrame = detail.to_frame()
    if not len(table):
        return table
    return rows_where(table, table["step"].isin(steps) if steps else table["step"].isna())


def _of_each(detail: Result) -> pd.DataFrame:
    table: pd.DataFrame = detail.to_frame()
    return rows_where(table, table["step"].notna()) if len(table) else table


def divided(
    table: pd.DataFrame, rows: pd.DataFrame, whole: Part, parts: tuple[Part, ...], keys: list[str]
) -> pd.DataFrame:
    """The table with `whole`'s parts as columns, summed over these rows; absent unless they add up on every row."""
    columns = [part.column for part in parts]
    place = places_of(rows, table, keys) if len(rows) else np.empty(0, dtype=np.int64)
    held = place[place != NONE]
    own = rows_where(rows, place != NONE) if len(rows) else rows
    if len(np.unique(held)) == len(table) and only(own, columns).notna().all(axis=None):
        sums = {name: sums_at(held, own[name].to_numpy(dtype=np.int64), len(table)) for name in columns}
        if np.array_equal(np.sum([*sums.values()], axis=0), table[whole.column].to_numpy(dtype=np.int64)):
            return with_columns(table, **{name: all_known(values) for name, values in sums.items()})
    absent = pd.arrays.IntegerArray(np.zeros(len(table), dtype=np.int64), np.ones(len(table), dtype=bool))
    return with_columns(table, **dict.fromkeys(columns, absent))
