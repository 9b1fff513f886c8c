"""Which Results the integrity checks make unreliable, and why: the marks of reports and the answers of gates."""

import pandas as pd

from traceanalyzer.analyses.engine import reached_by
from traceanalyzer.meaning.vocabulary import GRAVE


def by_check(integrity: pd.DataFrame) -> list[tuple[str, tuple[str, ...]]]:
    """A sentence for each check that marks, gravest first, of the rank that it concerns most; and what it reaches."""
    frame = integrity[integrity["severity"].isin(GRAVE)]
    made = []
    for _, rows in frame.groupby("check", sort=False):
        worst = rows.loc[rows["count"].fillna(0).idxmax()]
        sentence = str(worst["sentence"]) if pd.isna(worst["rank"]) else f"Rank {worst['rank']}: {worst['sentence']}"
        if len(rows) > 1:
            sentence += f" The same is found on {len(rows) - 1:,} other rank{'s' if len(rows) > 2 else ''}."
        named = {name for text in rows["affects"] for name in str(text).split(", ")}
        made.append((sentence, reached_by(named)))
    return made


def reasons(integrity: pd.DataFrame | None) -> dict[str, tuple[str, ...]]:
    """By name of each Result whose figures are in doubt, why, sentence by sentence; none without the table."""
    found: dict[str, tuple[str, ...]] = {}
    for sentence, affects in by_check(integrity) if integrity is not None and len(integrity) else ():
        for name in affects:
            found[name] = (*found.get(name, ()), sentence)
    return found
