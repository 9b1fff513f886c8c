"""Communication by training phase and collective."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import (
    CALL,
    COLLECTIVE,
    GROUP_IF_KNOWN,
    GROUP_LABEL,
    INNERMOST_RANGE,
    RANK,
    Result,
    all_known,
    percent,
    ratio,
)
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.collectives import summed
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.communication.waits import CallWaits, listed, looked_at
from traceanalyzer.analyses.grouping import Groups as Rows
from traceanalyzer.analyses.grouping import places_of, sums_at
from traceanalyzer.analyses.host.activity import names_around_launches, user_ranges
from traceanalyzer.analyses.phases.phases import NAMES, ExposedCalls, Share
from traceanalyzer.analyses.time.headline import Headline, steps_of
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, columns_of, picked, table_of, with_columns, without_rows

# Phase, range and exposed time of each communication call.


class CallPhases(Result):
    """One row for each communication call, by the number that `calls` gives it."""

    title = "Phases of communication calls"
    is_detail = True
    keys = ("rank", "call")
    columns = {
        "rank": RANK,
        "call": CALL,
        "phase": Column.text("Phase in which the host launched it."),
        "range": INNERMOST_RANGE,
        "exposed_ns": Column.time(
            "Part of the rank's exposed communication that belongs to the call: no compute runs, and no "
            "communication that started earlier."
        ),
    }


def per_rank(
    trace: RankTrace, calls: pd.DataFrame, phase_of_op: np.ndarray, shares: Mapping[str, Share]
) -> pd.DataFrame:
    """Phase and exposed time inside the window of the rank's calls; the times add up to exposed communication."""
    if calls.empty:
        return pd.DataFrame()
    rows = array_of(calls, "gpu_op")
    own, times = shares["exposed_comm_ns"].inside(trace.window)
    exposed = np.zeros(len(trace.gpu_ops), dtype=np.int64)
    np.add.at(exposed, own, times)
    return table_of(
        {
            "call": array_of(calls, "call"),
            "phase": np.array(NAMES, dtype=object)[phase_of_op[rows]],
            "range": names_around_launches(user_ranges(trace), trace, array_of(trace.gpu_ops, "launch")[rows]),
            "exposed_ns": exposed[rows],
        }
    )


# Communication by phase, range and process group: which part of training communicates, how often, how exposed.


_KEYS = ("rank", "phase", "range", "group", "collective")


class CommPhases(Result):
    """One row for each rank, phase, range, process group and collective."""

    title = "Communication by phase"
    keys = _KEYS
    joined_by = ("phase", "collective")
    columns = {
        "rank": RANK,
        "phase": Column.text("Phase in which the host launched it."),
        "range": Column.text(
            "The user's innermost range around the launch; numbers in it are left out (`blocks.#`).",
            written=Written.KERNEL,
        ),
        "group": GROUP_IF_KNOWN,
        "group_label": GROUP_LABEL,
        "collective": COLLECTIVE,
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


def comm_phases_across(
    calls: Calls,
    call_phases: CallPhases,
    exposed_calls: ExposedCalls,
    groups: Groups,
) -> CommPhases:
    """Join the calls with their phases and add them up."""
    if not len(call_phases):
        return CommPhases.without_rows()
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


# What each collective does in a mean step: calls, bytes, where its time goes, and how fast it moves data.


_BY_COLLECTIVE_KEYS = ["collective", "group_label"]
_RATES = ["bus_bytes", "bus_ns", "bus_peak_gbps"]


class ByCollective(Result):
    """One row for each collective and group, most exposed first: of a mean step of `headline`, or of the capture."""

    title = "Communication by collective"
    keys = ("collective", "group_label")
    is_of_one_run = True
    columns = {
        "collective": COLLECTIVE,
        "group_label": Column.text(
            "Process group: what it is for, and its ranks.", label="process group", is_aside_when_one=True
        ),
        "group_size": Column.number("Ranks in the group.", is_aside=True),
        "dtype": Column.text("Element types.", written=Written.DTYPE, is_aside=True),
        "calls": Column.count("Calls: mean over the ranks that make them.", is_aside=True),
        "size_bytes": Column.size(
            "Full arrays of these calls: mean likewise; n/a while the size of one is unknown.", is_aside=True
        ),
        "total_ns": Column.time("Sum of their durations: mean likewise."),
        "exposed_comm_ns": Column.time(
            "Time in which such a call but no compute runs: mean likewise. The next columns are its parts.",
            better=Better.LESS,
        ),
        "exposed_transfer_ns": Column.time(
            "Of it, time in which data moves.", is_news_when_zero=True, better=Better.LESS
        ),
        "exposed_wait_ns": Column.time(
            "Of it, time in which the call waits for a later rank.", is_news_when_zero=True, better=Better.LESS
        ),
        "not_separable_ns": Column.time(
            "Of it, the remainder: unmatched calls, and those whose ranks do not wait alike.", label="unattributed"
        ),
        "highest_exposed_ns": Column.time("Largest exposed time of a rank.", adds=Adds.EXTREME),
        "highest_rank": Column.ident("Whose that is."),
        "busbw_gbps": Column.rate(
            "Bus bandwidth while data moves, decimal GB/s: waits are not in it.", better=Better.MORE
        ),
        "peak_pct": Column.share("100 · busbw / what the GPU's links carry in one direction.", better=Better.MORE),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        busbw = ratio(table["bus_bytes"], table["bus_ns"])
        return table.assign(busbw_gbps=busbw, peak_pct=percent(busbw, table["bus_peak_gbps"]))


def by_collective_across(
    call_waits: CallWaits,
    calls: Calls,
    exposed_calls: ExposedCalls,
    groups: Groups,
    ranks: Ranks,
    headline: Headline,
    steps: Steps,
) -> ByCollective:
    """Add up each rank's calls, then take the mean over the ranks that make them."""
    chosen = steps_of(headline, steps)
    made = looked_at(call_waits, calls)
    made = made[made["step"].isin(chosen)] if chosen else made
    if made.empty:
        return ByCollective(without_rows([*ByCollective.columns, *_RATES]))
    columns = columns_of(made) | {"group_label": labels(groups, made).astype("str").array}
    by_rank = Rows.of(columns, (*_BY_COLLECTIVE_KEYS, "rank"), with_absent=True)
    by_key, every = (
        Rows.of(by_rank.keys, _BY_COLLECTIVE_KEYS, with_absent=True),
        Rows.of(columns, _BY_COLLECTIVE_KEYS, with_absent=True),
    )
    exposed = _exposed(exposed_calls, chosen, columns, by_rank)
    sums = {
        "calls": by_rank.counts(),
        "size_bytes": by_rank.sums(columns["size_bytes"].to_numpy(dtype=np.int64, na_value=0)),
        "total_ns": by_rank.sums(columns["end_ns"] - columns["start_ns"]),
        **exposed,
    }
    # What is not told apart is not known to be 0.
    is_told = by_rank.any(~columns["transfer_ns"].isna())
    told = {name: np.where(is_told, exposed[name], np.nan) for name in ("exposed_transfer_ns", "exposed_wait_ns")}
    per_step = table_of({name: values / (len(chosen) or 1) for name, values in (sums | told).items()})
    means = per_step.groupby(by_key.of_row).mean()  # by pandas: its sums of fractions carry what rounding loses
    is_unknown = every.any(columns["size_bytes"].isna())
    group_size = every.largest(columns["group_size"].to_numpy(dtype=np.int64, na_value=NONE))
    highest = by_key.at_largest(exposed["exposed_comm_ns"])
    table = by_key.table(
        **columns_of(means.assign(size_bytes=means["size_bytes"].astype("Float64").mask(is_unknown))),
        group_size=pd.arrays.IntegerArray(group_size, group_size == NONE),
        dtype=every.told(columns["dtype"], listed),
        highest_exposed_ns=array_of(per_step, "exposed_comm_ns")[highest],
        highest_rank=by_rank.keys["rank"][highest],
        **_rates(made, ranks, groups, by_key),
    )
    order = np.argsort(-array_of(means, "exposed_comm_ns"), kind="stable")
    return ByCollective(table.take(order).reset_index(drop=True))


def _exposed(
    exposed_calls: ExposedCalls, steps: Sequence[int], calls: Mapping[str, Any], by_rank: Rows
) -> dict[str, np.ndarray]:
    """Exposed time of each collective, group and rank, and its parts."""
    stretches = exposed_calls.table
    stretches = stretches[stretches["step"].isin(steps)] if steps else stretches
    place = places_of(stretches, calls, ("rank", "call"))
    columns, held = columns_of(stretches), place != NONE
    lengths = {
        "exposed_comm_ns": columns["end_ns"] - columns["start_ns"],
        "exposed_transfer_ns": columns["transfer_ns"],
        "exposed_wait_ns": columns["wait_ns"],
        "not_separable_ns": columns["unmatched_ns"],
    }
    rows = by_rank.of_row[place[held]]
    return {name: sums_at(rows, values[held], len(by_rank)) for name, values in lengths.items()}


def _rates(calls: pd.DataFrame, ranks: Ranks, groups: Groups, by_key: Rows) -> dict[str, Any]:
    """What bus bandwidth is made of; rates of ranks and size classes count by their transfer."""
    known = summed(calls, ranks, groups).to_frame()
    columns = columns_of(known[known["busbw_gbps"].notna()])
    rows = Rows.of(columns, _BY_COLLECTIVE_KEYS, with_absent=True)
    transfer = columns["transfer_ns"].to_numpy(dtype=np.int64)
    moved = columns["busbw_gbps"].to_numpy(dtype=np.float64) * transfer
    has_peak = rows.any(~columns["peak_pct"].isna())
    peaks = rows.first_known(columns["link_peak_gbps"])
    rates = {
        "bus_bytes": pd.Series(moved).groupby(rows.of_row).sum().astype("Float64").array,
        "bus_ns": all_known(rows.sums(transfer)),
        "bus_peak_gbps": pd.arrays.IntegerArray(peaks.to_numpy(dtype=np.int64, na_value=0), peaks.isna() | ~has_peak),
    }
    place = places_of(by_key.keys, rows.keys, _BY_COLLECTIVE_KEYS)
    return {name: values.take(place, allow_fill=True) for name, values in rates.items()}
