"""Two runs' snapshots beside each other: what of each rank's peak is more or less, by category and by site."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.meaning.quantities import size_text
from traceanalyzer.snapshots.examination import Examined
from traceanalyzer.snapshots.words import capital, folded

PEAK, CATEGORY, SITE = "peak", "category", "site"

_LEAST_SHARE = 0.01
"""Of the larger peak, from which a change is named in a sentence."""


COLUMNS = ("rank", "of", "name", "base_bytes", "other_bytes", "change_bytes")


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """A run's memory against the base's.

    Attributes:
        table: as `compared` gives it.
        sentences: what it tells.
    """

    table: pd.DataFrame
    sentences: tuple[str, ...]


def compared(base: Sequence[Examined], other: Sequence[Examined]) -> pd.DataFrame:
    """The peaks of ranks that both have, and what they are made of.

    Returns:
        `rank`, `of` (PEAK, CATEGORY or SITE), `name`, `base_bytes`, `other_bytes`, `change_bytes` (other less base),
        largest change first; the changes by category, and those by site, add up to that of the peak.
    """
    sides = [{one.snapshot.rank: one for one in side} for side in (base, other)]
    parts = [
        _joined(*(side[rank] for side in sides)).assign(rank=rank)
        for rank in sorted(sides[0].keys() & sides[1].keys(), key=lambda rank: (rank is None, rank or 0))
    ]
    if not parts:
        return pd.DataFrame(columns=list(COLUMNS))
    return pd.concat(parts, ignore_index=True)[list(COLUMNS)].astype({"rank": "Int64"})


def _joined(base: Examined, other: Examined) -> pd.DataFrame:
    tables = []
    for of in (PEAK, CATEGORY, SITE):
        both = pd.concat([_part(base, of), _part(other, of)], axis=1, keys=["base_bytes", "other_bytes"])
        table = both.fillna(0).astype("int64").rename_axis("name").reset_index()
        change = table["other_bytes"] - table["base_bytes"]
        order = change.abs().sort_values(ascending=False, kind="stable").index
        tables.append(table.assign(change_bytes=change, of=of).loc[order])
    return pd.concat(tables, ignore_index=True)


def _part(one: Examined, of: str) -> pd.Series:
    if of == PEAK:
        return pd.Series({PEAK: one.peak_bytes})
    table = one.peak_categories if of == CATEGORY else one.peak_sites
    return table.groupby("category" if of == CATEGORY else SITE)["size_bytes"].sum()


def change(base: Sequence[Examined], other: Sequence[Examined]) -> MemoryChange:
    """What of each rank's peak is more or less, by the snapshots; and which ranks only one of the runs has."""
    table = compared(base, other)
    made = said(table)
    ranks = [{one.snapshot.label for one in side} for side in (base, other)]
    for here, others, where in ((ranks[0], ranks[1], "base"), (ranks[1], ranks[0], "other")):
        alone = sorted(here - others)
        if alone:
            made.append(
                f"Only the {where} run has a snapshot of {', '.join(alone[:8])}{' and more' * (len(alone) > 8)}."
            )
    return MemoryChange(table, tuple(made))


def said(table: pd.DataFrame) -> list[str]:
    """What a table as of `compared` tells, in sentences; ranks of which the same can be said are one."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for rank, own in table.groupby("rank", dropna=False):
        label = "the snapshot" if pd.isna(rank) else f"rank {rank}"
        told = _change(capital(label), own)
        alike.setdefault(told.replace(capital(label), "", 1), []).append((told, label))
    return [folded(*told) for told in alike.values()]


def _change(who: str, own: pd.DataFrame) -> str:
    peak = own[own["of"] == PEAK].iloc[0]
    least = _LEAST_SHARE * max(peak["base_bytes"], peak["other_bytes"])
    named = [
        _named(own[(own["of"] == of) & (own["change_bytes"].abs() >= max(least, 1))].head(3)) for of in (CATEGORY, SITE)
    ]
    told = (
        f"{who}'s peak is {size_text(int(peak['other_bytes']))}, as it was"
        if not peak["change_bytes"]
        else f"{who}'s peak goes from {size_text(int(peak['base_bytes']))} to {size_text(int(peak['other_bytes']))}"
    )
    return f"{told}{'; '.join(['', *filter(None, named)]).replace('; ', ': ', 1)}."


def _named(rows: pd.DataFrame) -> str:
    return ", ".join(f"{row.name} {_signed(row.change_bytes)}" for row in rows.itertuples(index=False, name="Row"))


def _signed(change: int) -> str:
    return f"{'+' if change > 0 else '−'}{size_text(abs(int(change)))}"
