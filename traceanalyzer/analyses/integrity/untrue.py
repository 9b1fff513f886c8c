"""Ranks of which so much is damaged that no figure of them is true, and what it is."""

from collections.abc import Mapping
from types import MappingProxyType

import pandas as pd

from traceanalyzer.analyses.integrity.integrity_checks import (
    BACKWARDS,
    FAR_APART,
    NESTED,
    NO_DURATION,
    OTHER_UNIT,
    OUT_OF_ORDER,
    OUTSIDE,
    SHARED,
    TOO_SHORT,
    UNREADABLE,
)
from traceanalyzer.meaning.severities import HIGH

IMPOSSIBLE: Mapping[str, str] = MappingProxyType(
    {
        NESTED: "operations run inside others of their stream, which runs one after the other",
        FAR_APART: "operations lie over a day apart",
        OUTSIDE: "operations lie outside of the recording",
        NO_DURATION: "operations take no time",
        TOO_SHORT: "kernels run for less time than any GPU needs",
        OTHER_UNIT: "times are in another unit than those of the other ranks",
        BACKWARDS: "events end before they start",
        UNREADABLE: "those of many events are no numbers, or none that can be",
    }
)
"""Checks that find times that cannot be, and what these are."""

NOT_THEIR_OWN: Mapping[str, str] = MappingProxyType(
    {
        SHARED: "operations share the numbers of their launches",
        OUT_OF_ORDER: "operations of one stream run in another order than they were launched in",
    }
)
"""Checks that find that it is not known which call launched what."""


def gravely(integrity: pd.DataFrame, check: str) -> list[int]:
    """Ranks of which a check found so much that their figures are wrong."""
    return sorted(rank for found, rank in _grave(integrity) if found == check)


def _grave(integrity: pd.DataFrame) -> list[tuple[str, int]]:
    """Check and rank of all that is so much."""
    # Lists: rules and sentences ask again and again, and pandas' own way takes a millisecond for each check.
    columns = [integrity[name].tolist() for name in ("check", "severity", "rank")]
    rows = zip(*columns, strict=True)
    return [(check, int(rank)) for check, severity, rank in rows if severity == HIGH and not pd.isna(rank)]


def untrue_ranks(integrity: pd.DataFrame) -> dict[int, str]:
    """Of each rank whose times cannot be true, or whose operations are not known to be of which step, the first why."""
    checks, grave = {**IMPOSSIBLE, **NOT_THEIR_OWN}, sorted(_grave(integrity), key=lambda found: found[1])
    return {rank: what for check, what in reversed(checks.items()) for found, rank in grave if found == check}


def told(integrity: pd.DataFrame) -> str | None:
    """`what the file of rank 0 tells cannot be true: operations take no time`; `None` where none is damaged so much."""
    ranks = untrue_ranks(integrity)
    if not ranks:
        return None
    first, more = min(ranks), len(ranks) - 1
    whose = f"the files of rank {first} and {more} more tell" if more else f"the file of rank {first} tells"
    return f"what {whose} cannot be true: {ranks[first]}"
