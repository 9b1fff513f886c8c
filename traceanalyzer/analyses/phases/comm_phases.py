"""Communication by phase, range and process group: which part of training communicates, how often, how exposed."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.names import CommPhasesColumn
from traceanalyzer.analyses.phases.call_phases import CallPhases
from traceanalyzer.analyses.phases.exposed_calls import ExposedCalls
from traceanalyzer.meaning.columns import Better, Column, Written

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
        return CommPhases(pd.DataFrame(columns=list(CommPhases.columns)))
    columns = ["rank", "call", "group", "collective", "size_bytes", "start_ns", "end_ns"]
    table = call_phases.table.merge(calls.table[columns], on=["rank", "call"], validate="one_to_one")
    table["range"] = without_numbers(table["range"])
    waits = exposed_calls.table.groupby(["rank", "call"])["wait_ns"].sum().rename("exposed_wait_ns")
    table = table.join(waits, on=["rank", "call"])
    table = table.assign(exposed_wait_ns=table["exposed_wait_ns"].fillna(0).astype("int64"))
    table["total_ns"] = table["end_ns"] - table["start_ns"]
    table["is_unknown"] = table["size_bytes"].isna()
    by_key = table.groupby(list(_KEYS), dropna=False, sort=False)
    summed = by_key[["size_bytes", "total_ns", "exposed_ns", "exposed_wait_ns"]].sum(min_count=1)
    summed["size_bytes"] = summed["size_bytes"].where(~by_key["is_unknown"].any()).astype("Int64")
    summed = summed.assign(calls=by_key.size()).reset_index()
    summed = summed.assign(group_label=labels(groups, summed))
    return CommPhases(summed.sort_values(["rank", "total_ns"], ascending=[True, False], ignore_index=True))


def without_numbers(ranges: pd.Series) -> pd.Series:
    """Names of ranges with `#` for each number in them."""
    return ranges.astype("str").where(ranges.notna()).str.replace(r"\d+", "#", regex=True)
