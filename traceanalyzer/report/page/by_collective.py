"""What each collective does in a mean step: calls, bytes, where its time goes, and how fast it moves data."""

from collections.abc import Mapping

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.base import percent, ratio
from traceanalyzer.analyses.communication.call_waits import listed, looked_at
from traceanalyzer.analyses.communication.collectives import summed
from traceanalyzer.analyses.communication.groups import labels
from traceanalyzer.meaning.columns import Adds, Better, Column, Written
from traceanalyzer.report.words.parts import headline_steps

DEFINITIONS: Mapping[str, Column] = {
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
    "exposed_transfer_ns": Column.time("Of it, time in which data moves.", is_news_when_zero=True, better=Better.LESS),
    "exposed_wait_ns": Column.time(
        "Of it, time in which the call waits for a later rank.", is_news_when_zero=True, better=Better.LESS
    ),
    "not_separable_ns": Column.time("Of it, the remainder: unmatched calls, and those whose ranks do not wait alike."),
    "highest_exposed_ns": Column.time("Largest exposed time of a rank.", adds=Adds.EXTREME),
    "highest_rank": Column.ident("Whose that is."),
    "busbw_gbps": Column.rate("Bus bandwidth while data moves, decimal GB/s: waits are not in it.", better=Better.MORE),
    "peak_pct": Column.share("100 · busbw / what the GPU's links carry in one direction.", better=Better.MORE),
}

_KEYS = ["collective", "group_label"]


def by_collective(results: Results) -> pd.DataFrame:
    """One row for each collective and group, most exposed first: of a mean step of the headline, or the capture."""
    steps = headline_steps(results)
    calls = looked_at(results["call_waits"], results["calls"])
    calls = calls[calls["step"].isin(steps)] if steps else calls
    calls = calls.assign(group_label=labels(results["groups"], calls))
    if calls.empty:
        return pd.DataFrame(columns=_KEYS)
    exposed = _exposed(results, steps, calls)
    per = len(steps) or 1
    by_rank = calls.assign(duration_ns=calls["end_ns"] - calls["start_ns"]).groupby([*_KEYS, "rank"], dropna=False)
    own = pd.DataFrame(
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
    groups = own.groupby(_KEYS, dropna=False)
    table = groups[["calls", "size_bytes", "total_ns", *exposed.columns]].mean()
    table["size_bytes"] = table["size_bytes"].where(groups["size_bytes"].count() == groups.size())
    highest = own.loc[groups["exposed_comm_ns"].idxmax()]
    named = calls.groupby(_KEYS, dropna=False)
    # Both are in the order of their keys, which do not join where a group is absent.
    table = table.assign(
        group_size=named["group_size"].max().array,
        dtype=named["dtype"].agg(listed).array,
        highest_exposed_ns=highest["exposed_comm_ns"].array,
        highest_rank=highest["rank"].array,
    ).join(_rates(calls, results))
    table = table.sort_values("exposed_comm_ns", ascending=False, kind="stable").reset_index()
    return table[[name for name in DEFINITIONS if name in table and not _is_empty(table[name])]]


def _exposed(results: Results, steps: list[int], calls: pd.DataFrame) -> pd.DataFrame:
    """Exposed time by collective, group and rank, and its parts."""
    stretches = results["exposed_calls"].table
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


def _rates(calls: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Bus bandwidth and its share of the peak; rates of ranks and size classes count by their transfer."""
    known = summed(calls, results["ranks"], results["groups"]).to_frame()
    known = known[known["busbw_gbps"].notna()]
    rows = known.assign(bus_bytes=known["busbw_gbps"] * known["transfer_ns"])
    groups = rows.groupby(_KEYS, dropna=False)
    busbw = ratio(groups["bus_bytes"].sum(), groups["transfer_ns"].sum())
    is_one_way = groups["peak_pct"].count() > 0
    return pd.DataFrame(
        {"busbw_gbps": busbw, "peak_pct": percent(busbw, groups["link_peak_gbps"].first()).where(is_one_way)}
    )


def _is_empty(column: pd.Series) -> bool:
    """Whether a column tells nothing: absent everywhere, or a part that no row has."""
    return bool(column.isna().all() or (column.name == "not_separable_ns" and not column.any()))
