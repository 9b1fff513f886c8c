"""Communication by phase, range and process group: which part of training communicates, how often, how exposed."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.grouping import Groups as Rows
from traceanalyzer.analyses.grouping import sums_at
from traceanalyzer.analyses.names import CommPhasesColumn
from traceanalyzer.analyses.phases.call_phases import CallPhases
from traceanalyzer.analyses.phases.exposed_calls import ExposedCalls
from traceanalyzer.analyses.same_keys import places_of
from traceanalyzer.meaning.columns import Better, Column, Written
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, columns_of, picked, with_columns, without_rows

_KEYS = ("rank", "phase", "range", "group", "collective")


class CommPhases(Result[CommPhasesColumn]):
    """One row for each rank, phase, range, process group and collective."""

    title: ClassVar[str] = "Communication by phase"
    keys: ClassVar[tuple[str, ...]] = _KEYS
    joined_by: ClassVar[tuple[str, ...]] = ("phase", "collective")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "phase": Column.text("Phase in which the host launched it."),
        "range": Column.text(
            "The user's innermost range around the launch; numbers in it are left out (`blocks.#`).",
            written=Written.KERNEL,
        ),
        "group": Column.text("Process group; absent when the trace does not say.", replaced_by="group_label"),
        "group_label": Column.text(
            "What the group is for and its ranks, as `groups` has it.", label="process group", is_aside_when_one=True
        ),
        "collective": Column.text("Collective or point-to-point operation.", written=Written.COLLECTIVE),
        "calls": Column.count("Communication operations on the GPU.", is_aside=True),
        "size_bytes": Column.size(
            "Sum of their sizes (full arrays); n/a as long as the size of one is unknown.", is_aside=True
        ),
        "total_ns": Column.time("Sum of their durations, waiting for other ranks included.", leads=True),
        "exposed_ns": Column.time(
            "Part of the rank's exposed communication that belongs to them; the rows add up to it."
        ),
        "exposed_wait_ns": Column.time(
            "Part of that in which a call waits for another rank and none moves data.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
    }


def across(
    _parts: Mapping[int, pd.DataFrame],
    calls: Calls,
    call_phases: CallPhases,
    exposed_calls: ExposedCalls,
    groups: Groups,
) -> CommPhases:
    """Join the calls with their phases and add them up."""
    if not len(call_phases):
        return CommPhases(without_rows(CommPhases.columns))
    place = places_of(call_phases.table, calls.table, ("rank", "call"))
    made, held = columns_of(calls.table), place != NONE
    phases = picked(call_phases.table, held)
    columns = {
        name: made[name].take(place[held]) for name in ("group", "collective", "size_bytes", "start_ns", "end_ns")
    }
    columns |= columns_of(phases) | {"range": without_numbers(phases["range"]).array}
    waits, at = array_of(exposed_calls.table, "wait_ns"), places_of(exposed_calls.table, phases, ("rank", "call"))
    by_key = Rows.of(columns, _KEYS, by_appearance=True, with_absent=True)
    sizes, total_ns = columns["size_bytes"], by_key.sums(columns["end_ns"] - columns["start_ns"])
    summed = by_key.table(
        size_bytes=pd.arrays.IntegerArray(by_key.total(sizes).to_numpy(np.int64, na_value=0), by_key.any(sizes.isna())),
        total_ns=total_ns,
        exposed_ns=by_key.sums(columns["exposed_ns"]),
        exposed_wait_ns=by_key.sums(sums_at(at[at != NONE], waits[at != NONE], len(phases))),
        calls=by_key.counts(),
    )
    summed = with_columns(summed, group_label=labels(groups, summed))
    return CommPhases(summed.take(np.lexsort((-total_ns, summed["rank"]))).reset_index(drop=True))


def without_numbers(ranges: pd.Series) -> pd.Series:
    """Names of ranges with `#` for each number in them."""
    return ranges.astype("str").where(ranges.notna()).str.replace(r"\d+", "#", regex=True)
