"""Communication by training phase and collective."""

from collections.abc import Mapping, Sequence

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
)
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.collectives import summed
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.communication.waits import CallWaits, listed, looked_at
from traceanalyzer.analyses.host.activity import names_around_launches, user_ranges
from traceanalyzer.analyses.phases.phases import EXPOSED_CALLS_PARTS, NAMES, ExposedCalls, Share
from traceanalyzer.analyses.time.headline import Headline, steps_of
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Better, Column, Written, declared
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import array_of, sorted_by, table_of

# Phase, range and exposed time of each communication call.


class CallPhases(Result):
    """One row for each communication call, by the number that `calls` gives it."""

    title = "Phases of communication calls"
    is_detail = True
    keys = ("rank", "call")
    columns = declared(
        rank=RANK,
        call=CALL,
        phase="Phase in which the host launched it.",
        range=INNERMOST_RANGE,
        exposed_ns=(
            "Part of the rank's exposed communication that belongs to the call: no compute runs, and no "
            "communication that started earlier."
        ),
    )


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
            "range": names_around_launches(user_ranges(trace), trace, trace.launch[rows]),
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
    columns = declared(
        rank=RANK,
        phase="Phase in which the host launched it.",
        range="The user's innermost range around the launch; numbers in it are left out (`blocks.#`).",
        group=GROUP_IF_KNOWN,
        group_label=GROUP_LABEL,
        collective=COLLECTIVE,
        calls="Communication operations on the GPU.",
        size_bytes="Sum of their sizes (full arrays); n/a as long as the size of one is unknown.",
        total_ns=Column.time("Sum of their durations, waiting for other ranks included.", leads=True),
        exposed_ns="Part of the rank's exposed communication that belongs to them; the rows add up to it.",
        exposed_wait_ns=Column.lost("Part of that in which a call waits for another rank and none moves data."),
    )


def comm_phases_across(
    calls: Calls,
    call_phases: CallPhases,
    exposed_calls: ExposedCalls,
    groups: Groups,
) -> CommPhases:
    """Join the calls with their phases and add them up."""
    if not len(call_phases):
        return CommPhases.without_rows()
    keys = ["rank", "call"]
    made = calls.table[[*keys, "group", "collective", "size_bytes", "start_ns", "end_ns"]]
    waits = exposed_calls.table.groupby(keys)["wait_ns"].sum() if len(exposed_calls) else pd.Series(dtype="int64")
    table = call_phases.table.merge(made, on=keys)
    table = table.assign(
        range=without_numbers(table["range"]),
        total_ns=table["end_ns"] - table["start_ns"],
        exposed_wait_ns=pd.MultiIndex.from_frame(table[keys]).map(waits.to_dict()).fillna(0).astype("int64"),
    )
    by_key = table.groupby(list(_KEYS), dropna=False, sort=False, observed=True)
    times = by_key[["size_bytes", "total_ns", "exposed_ns", "exposed_wait_ns"]].sum()
    sizes = times["size_bytes"].astype("Int64").mask(by_key["size_bytes"].count() < by_key.size())
    summed = times.assign(size_bytes=sizes, calls=by_key.size()).reset_index()
    summed = summed.assign(group_label=labels(groups, summed))
    return CommPhases(
        summed.sort_values(["rank", "total_ns"], ascending=[True, False], kind="stable", ignore_index=True)
    )


def without_numbers(ranges: pd.Series) -> pd.Series:
    """Names of ranges with `#` for each number in them."""
    return ranges.astype("str").where(ranges.notna()).str.replace(r"\d+", "#", regex=True)


# What each collective does in a mean step: calls, bytes, where its time goes, and how fast it moves data.


_BY_COLLECTIVE_KEYS = ["collective", "group_label"]
_EXPOSED = ("exposed_comm_ns", "exposed_transfer_ns", "exposed_wait_ns", "not_separable_ns")


class ByCollective(Result):
    """One row for each collective and group, most exposed first: of a mean step of `headline`, or of the capture."""

    title = "Communication by collective"
    keys = ("collective", "group_label")
    is_of_one_run = True
    derived = {"busbw_gbps": "bus_bytes / bus_ns", "peak_pct": "busbw_gbps / bus_peak_gbps"}
    columns = declared(
        collective=COLLECTIVE,
        group_label=Column.text(
            "Process group: what it is for, and its ranks.", label="process group", is_aside_when_one=True
        ),
        group_size=Column.number("Ranks in the group.", is_aside=True),
        dtype=Column.text("Element types.", written=Written.DTYPE, is_aside=True),
        calls="Calls: mean over the ranks that make them.",
        size_bytes="Full arrays of these calls: mean likewise; n/a while the size of one is unknown.",
        total_ns="Sum of their durations: mean likewise.",
        exposed_comm_ns=Column.spent(
            "Time in which such a call but no compute runs: mean likewise. The next columns are its parts."
        ),
        exposed_transfer_ns=Column.lost("Of it, time in which data moves."),
        exposed_wait_ns=Column.lost("Of it, time in which the call waits for a later rank."),
        not_separable_ns=Column.time(
            "Of it, the remainder: unmatched calls, and those whose ranks do not wait alike.", label="unattributed"
        ),
        highest_exposed_ns="Largest exposed time of a rank.",
        highest_rank="Whose that is.",
        busbw_gbps=Column.rate(
            "Bus bandwidth while data moves, decimal GB/s: waits are not in it.", better=Better.MORE
        ),
        peak_pct=Column.share("100 · busbw / what the GPU's links carry in one direction.", better=Better.MORE),
    )


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
        return ByCollective.without_rows()
    made = made.assign(group_label=labels(groups, made).astype("str"), total_ns=made["end_ns"] - made["start_ns"])
    by_rank = made.groupby([*_BY_COLLECTIVE_KEYS, "rank"], dropna=False, observed=True)
    by_key = made.groupby(_BY_COLLECTIVE_KEYS, dropna=False, observed=True)
    # What is not told apart is not known to be 0.
    is_told = by_rank["transfer_ns"].count() > 0
    sums = by_rank[["size_bytes", "total_ns"]].sum().assign(calls=by_rank.size())
    sums = sums.astype("float64").join(_exposed(exposed_calls, chosen, made)).fillna(dict.fromkeys(_EXPOSED, 0))
    sums = sums.assign(**{name: sums[name].where(is_told) for name in ("exposed_transfer_ns", "exposed_wait_ns")})
    per_step = sums / (len(chosen) or 1)
    exposed = per_step["exposed_comm_ns"].groupby(_BY_COLLECTIVE_KEYS, dropna=False)
    table = per_step.groupby(_BY_COLLECTIVE_KEYS, dropna=False).mean()
    sizes = table["size_bytes"].astype("Float64").mask(by_key["size_bytes"].count() < by_key.size())
    table = table.assign(
        size_bytes=sizes,
        group_size=by_key["group_size"].max(),
        dtype=by_key["dtype"].agg(lambda own: listed(own.dropna().unique().tolist())),
        highest_exposed_ns=exposed.max(),
        highest_rank=[rank for *_, rank in exposed.idxmax()],
    )
    table = table.join(_rates(made, ranks, groups))
    return ByCollective(sorted_by(table.reset_index(), "exposed_comm_ns"))


def _exposed(exposed_calls: ExposedCalls, steps: Sequence[int], calls: pd.DataFrame) -> pd.DataFrame:
    """Exposed time of each collective, group and rank, and its parts."""
    stretches = exposed_calls.table
    stretches = stretches[stretches["step"].isin(steps)] if steps else stretches
    times = dict(
        zip(
            _EXPOSED,
            (stretches["end_ns"] - stretches["start_ns"], *(stretches[name] for name in EXPOSED_CALLS_PARTS)),
            strict=True,
        )
    )
    keys = ["rank", "call"]
    table = calls[[*keys, *_BY_COLLECTIVE_KEYS]].merge(stretches[keys].assign(**times), on=keys)
    return table.groupby([*_BY_COLLECTIVE_KEYS, "rank"], dropna=False, observed=True)[[*_EXPOSED]].sum()


def _rates(calls: pd.DataFrame, ranks: Ranks, groups: Groups) -> pd.DataFrame:
    """What bus bandwidth is made of; rates of ranks and size classes count by their transfer."""
    known = summed(calls, ranks, groups).to_frame()
    known = known[known["busbw_gbps"].notna()]
    known = known.assign(bus_bytes=known["busbw_gbps"] * known["transfer_ns"])
    rows = known.groupby(_BY_COLLECTIVE_KEYS, dropna=False, observed=True)
    peaks = rows["link_peak_gbps"].first().where(rows["peak_pct"].count() > 0)
    return (
        rows[["bus_bytes", "transfer_ns"]].sum().rename(columns={"transfer_ns": "bus_ns"}).assign(bus_peak_gbps=peaks)
    )
