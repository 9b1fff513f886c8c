"""Why a rank copies longer: more bytes than its peers, as many over a slower link, or what no other rank copies."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.streams.copies import Copies
from traceanalyzer.findings.basis import EXPLAINED_PCT, plain
from traceanalyzer.findings.devices.copy_bound import WORDS
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.late_advice import PAGEABLE
from traceanalyzer.findings.late.late_words import who
from traceanalyzer.findings.late.lateness import of_lead, said
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import digits, text
from traceanalyzer.meaning.sentences import first_upper

ALIKE = 1.05
"""Times as many bytes that are as many."""

_LINK = (
    "As many bytes take {who} longer, so look at the link between host and GPU: generation and lanes of PCI Express "
    "(nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv), the NUMA node that the "
    "host's memory lies on, and what else copies at that time."
)
_MORE = "Let {who} copy as much as the others, keep on the GPU what it copies more, or copy it beside compute."
_ALONE = "Find what {who} copies there and the others do not: leave it out, or copy it beside compute."


def other_copies(
    episodes: Episodes, copies: Copies, *, explained_pct: float = EXPLAINED_PCT, alike_bytes_times: float = ALIKE
) -> list[Finding]:
    """What differs on a rank that is late by copies in every step: bytes or their rate, where that explains half of it.

    Pageable memory is told by its own rule.
    """
    if not len(copies):
        return []
    table = copies.to_frame()
    table = table[table["direction"].isin([*WORDS])]
    found = []
    for row in said(episodes):
        late = {*numbers(row["ranks"])}
        if row["cause"] != "copies" or not row["is_in_every_step"] or late >= {*table["rank"]}:
            continue
        own = table[table["rank"].isin(late)]
        if PAGEABLE in (row["name"] or "").lower():
            continue
        beside = _of_ranks(table.drop(own.index), len({*table["rank"]} - late))
        told = _said(_of_ranks(own, len(late)), beside, row, explained_pct / 100, alike_bytes_times)
        found += [_finding(*told, own, row, of_lead(episodes, row))] if told else []
    return found


def _of_ranks(copies: pd.DataFrame, ranks: int) -> pd.DataFrame:
    """Bytes and time of a mean rank's copies by direction."""
    return copies.groupby("direction")[["size_bytes", "total_ns"]].sum().astype("float64") / ranks


def _said(
    own: pd.DataFrame, theirs: pd.DataFrame, row: Mapping[str, Any], part: float, alike: float
) -> tuple[str, str] | None:
    """What is told of the direction whose copies take longest beyond the others', and what to do."""
    if own.empty:
        return None
    theirs = theirs.reindex(own.index, fill_value=0.0)
    way = (own["total_ns"] - theirs["total_ns"]).idxmax()
    (moved, time_ns), (moved_by_them, their_ns) = own.loc[way], theirs.loc[way]
    if time_ns <= their_ns or not moved or moved_by_them > alike * moved:
        return None
    verb = "copy" if len(numbers(row["ranks"])) > 1 else "copies"
    copied = f"{first_upper(who(row))} {verb} {text(moved, Unit.BYTES)} {WORDS[way]} in the capture"
    if not moved_by_them:
        return f"{copied}, which no other rank does.", _ALONE
    if moved > alike * moved_by_them:
        is_why = moved / moved_by_them - 1 >= part * (time_ns / their_ns - 1)
        return (f"{copied}, the others {text(moved_by_them, Unit.BYTES)}.", _MORE) if is_why else None
    rates = f"at {digits(moved / time_ns)} GB/s, they at {digits(moved_by_them / their_ns)} GB/s"
    return f"{copied}, as many bytes as the others: {rates}.", _LINK


def _finding(title: str, advice: str, own: pd.DataFrame, row: Mapping[str, Any], part_of: str) -> Finding:
    return Finding(
        severity="low",
        title=title,
        evidence=plain(
            own[
                ["rank", "direction", "source_memory", "target_memory", "copies", "size_bytes", "total_ns", "rate_gbps"]
            ]
        ),
        recommendation=advice.format(who=who(row)),
        gain_ns=row["gain_ns"],
        named=numbers(row["ranks"]),
        table="copies",
        part_of=part_of,
        tells_why=True,
    )
