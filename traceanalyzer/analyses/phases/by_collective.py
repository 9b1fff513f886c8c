"""What each collective does in a mean step: calls, bytes, where its time goes, and how fast it moves data."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, percent, ratio
from traceanalyzer.analyses.communication.call_waits import CallWaits, listed, looked_at
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.collectives import summed
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.grouping import told_of_each
from traceanalyzer.analyses.names import ByCollectiveColumn
from traceanalyzer.analyses.phases.exposed_calls import ExposedCalls
from traceanalyzer.analyses.time.headline import Headline, steps_of
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.model.tables import table_of

_KEYS = ["collective", "group_label"]
_RATES = ["bus_bytes", "bus_ns", "bus_peak_gbps"]


class ByCollective(Result[ByCollectiveColumn]):
    """One row for each collective and group, most exposed first: of a mean step of `headline`, or of the capture."""

    title: ClassVar[str] = "Communication by collective"
    keys: ClassVar[tuple[str, ...]] = ("collective", "group_label")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "collective": Column.text("Collective or point-to-point operation.", written=Written.COLLECTIVE),
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
            "Of it, the remainder: unmatched calls, and those whose ranks do not wait alike."
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
        return self._with(table, {"busbw_gbps": busbw, "peak_pct": percent(busbw, table["bus_peak_gbps"])})


def across(
    _parts: Mapping[int, pd.DataFrame],
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
        return ByCollective(pd.DataFrame(columns=[*ByCollective.columns, *_RATES]))
    made = made.assign(group_label=labels(groups, made), duration_ns=made["end_ns"] - made["start_ns"])
    exposed = _exposed(exposed_calls, chosen, made)
    per = len(chosen) or 1
    by_rank = made.groupby([*_KEYS, "rank"], dropna=False)
    own = table_of(
        {
            "calls": by_rank.size() / per,
            "size_bytes": by_rank["size_bytes"].sum().where(by_rank["size_bytes"].count() == by_rank.size()) / per,
            "total_ns": by_rank["duration_ns"].sum() / per,
        }
    )
    own = own.join(exposed / per).fillna(dict.fromkeys(exposed.columns, 0)).reset_index()
    # What is not told apart is not known to be 0.
    is_told = by_rank["transfer_ns"].count().to_numpy() > 0
    own = own.assign(**{name: own[name].where(is_told) for name in ("exposed_transfer_ns", "exposed_wait_ns")})
    by_key = own.groupby(_KEYS, dropna=False)
    table = by_key[["calls", "size_bytes", "total_ns", *exposed.columns]].mean()
    table["size_bytes"] = table["size_bytes"].where(by_key["size_bytes"].count() == by_key.size())
    highest = own.loc[by_key["exposed_comm_ns"].idxmax()]
    named = made.groupby(_KEYS, dropna=False)
    # Both are in the order of their keys, which do not join where a group is absent.
    table = table.assign(
        group_size=named["group_size"].max().array,
        dtype=told_of_each(named, "dtype", listed).array,
        highest_exposed_ns=highest["exposed_comm_ns"].array,
        highest_rank=highest["rank"].array,
    ).join(_rates(made, ranks, groups))
    return ByCollective(table.sort_values("exposed_comm_ns", ascending=False, kind="stable").reset_index())


def _exposed(exposed_calls: ExposedCalls, steps: Sequence[int], calls: pd.DataFrame) -> pd.DataFrame:
    """Exposed time by collective, group and rank, and its parts."""
    stretches = exposed_calls.table
    stretches = stretches[stretches["step"].isin(steps)] if steps else stretches
    stretches = stretches.merge(calls[["rank", "call", *_KEYS]], on=["rank", "call"])
    parts = stretches.rename(
        columns={
            "transfer_ns": "exposed_transfer_ns",
            "wait_ns": "exposed_wait_ns",
            "unmatched_ns": "not_separable_ns",
        }
    )
    parts = parts.assign(exposed_comm_ns=parts["end_ns"] - parts["start_ns"])
    columns = ["exposed_comm_ns", "exposed_transfer_ns", "exposed_wait_ns", "not_separable_ns"]
    return parts.groupby([*_KEYS, "rank"], dropna=False)[columns].sum().astype("float64")


def _rates(calls: pd.DataFrame, ranks: Ranks, groups: Groups) -> pd.DataFrame:
    """What bus bandwidth is made of; rates of ranks and size classes count by their transfer."""
    known = summed(calls, ranks, groups).to_frame()
    known = known[known["busbw_gbps"].notna()]
    rows = known.assign(bus_bytes=known["busbw_gbps"] * known["transfer_ns"])
    by_key = rows.groupby(_KEYS, dropna=False)
    is_one_way = by_key["peak_pct"].count() > 0
    return table_of(
        {
            "bus_bytes": by_key["bus_bytes"].sum(),
            "bus_ns": by_key["transfer_ns"].sum(),
            "bus_peak_gbps": by_key["link_peak_gbps"].first().where(is_one_way),
        }
    )
