"""What of each rank's peak of memory is more or less: by the traces' events, and by the snapshots beside them."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from traceanalyzer.diff import Capture
from traceanalyzer.report.comparison import DiffReport
from traceanalyzer.report.writers.tables import write_frame
from traceanalyzer.snapshots.comparison import CATEGORY, COLUMNS, PEAK, MemoryChange, said

EVENTS, SNAPSHOTS = "traces", "snapshots"
"""Where a row comes from: bytes as the allocator rounds them, or as they were asked for."""

CATEGORIES = "memory_categories"
"""The analysis whose joined table stands here, and nowhere else on a page."""

Memory = Mapping[str, Mapping[str, MemoryChange]]
"""Run → source → what changed."""

MOST_RANKS, MOST_SITES = 4, 10
"""On a page: the ranks whose peaks changed most, and of each so many lines; `memory.csv` has all."""


def of(report: DiffReport) -> Memory:
    """What each source tells of each other run; runs of which none tells are left out."""
    base, *others = report.comparison.sides
    made: dict[str, dict[str, MemoryChange]] = {}
    for side in others:
        table = _of_events(base.first, side.first)
        own = {} if table.empty else {EVENTS: MemoryChange(table, tuple(said(table)))}
        if side.label in report.snapshots:
            own[SNAPSHOTS] = report.snapshots[side.label]
        if own:
            made[side.label] = own
    return made


def _of_events(base: Capture, other: Capture) -> pd.DataFrame:
    """Rows as of `snapshots.compared`, of ranks that both captures tell; a peak is the sum of its categories."""
    tables = [capture.table(CATEGORIES) for capture in (base, other)]
    if any(table is None for table in tables):
        return pd.DataFrame(columns=list(COLUMNS))
    keys = ["rank", "category"]
    sides = [table.set_index(keys)["peak_bytes"].astype("int64") for table in tables if table is not None]
    both = pd.concat(sides, axis=1, keys=["base_bytes", "other_bytes"]).fillna(0).astype("int64").reset_index()
    shared = set.intersection(*({*side.index.get_level_values("rank")} for side in sides))
    own = both[both["rank"].isin(shared) & both[["base_bytes", "other_bytes"]].any(axis=1)]
    peaks = own.groupby("rank", as_index=False)[["base_bytes", "other_bytes"]].sum()
    parts = own.rename(columns={"category": "name"}).assign(of=CATEGORY)
    table = pd.concat([peaks.assign(of=PEAK, name=PEAK), parts], ignore_index=True)
    table["change_bytes"] = table["other_bytes"] - table["base_bytes"]
    order = pd.DataFrame({"rank": table["rank"], "is_part": table["of"] != PEAK, "size": -table["change_bytes"].abs()})
    return table.loc[order.sort_values([*order]).index, list(COLUMNS)].astype({"rank": "Int64"})


def frame(memory: Memory) -> pd.DataFrame:
    """All rows, with the run and the source that they are of."""
    tables = [
        one.table.assign(run=run, source=source) for run, sources in memory.items() for source, one in sources.items()
    ]
    columns = ["run", "source", *COLUMNS]
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)


def sentences(memory: Memory) -> list[str]:
    """What changed, each with its run and source."""
    return [
        f"{run}, by its {source}: {sentence}"
        for run, sources in memory.items()
        for source, one in sources.items()
        for sentence in one.sentences
    ]


def shown(change: MemoryChange) -> pd.DataFrame:
    """The rows for a page: of the ranks whose peaks changed most, in order of rank, with their first lines."""
    table = change.table
    peaks = table[table["of"] == PEAK]
    first = peaks["change_bytes"].abs().sort_values(ascending=False, kind="stable").index[:MOST_RANKS]
    ranks = peaks.loc[first, "rank"]
    own = table[table["rank"].isin(ranks) | (table["rank"].isna() & ranks.isna().any())]
    place = own.groupby(["rank", "of"], dropna=False).cumcount()
    return own[place < MOST_SITES]


def write_csv(memory: Memory, folder: Path) -> list[Path]:
    """`memory.csv`, where there is anything to write."""
    table = frame(memory)
    if table.empty:
        return []
    path = folder / "memory.csv"
    write_frame(table, path)
    return [path]
