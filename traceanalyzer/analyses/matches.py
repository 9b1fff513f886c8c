"""How many of each rank's communication calls were matched with the other ranks', by group, and how."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.call_waits import CallWaits

KEYS = ("rank", "group", "group_ranks")


class Matches(Result):
    """One row for each rank and process group; calls whose group is unknown have a row without one."""

    title: ClassVar[str] = "Calls matched over ranks"
    keys: ClassVar[tuple[str, ...]] = KEYS
    columns: ClassVar[Mapping[str, str]] = {
        "rank": "Global rank.",
        "group": "Process group; absent when the trace does not say.",
        "group_ranks": "Global ranks of the group.",
        "calls": "Communication calls in the capture.",
        "matched_calls": "Calls whose instance was found on all ranks of the group.",
        "unmatched_calls": "The others; they keep their duration, their transfer and wait are not known.",
        "split_calls": "Matched calls whose transfer and wait are known: neither one root nor uneven splits.",
        "inferred_calls": "Calls whose arguments come from a later step.",
        "matched_by": "How they were found.",
        "is_ambiguous": "A clock offset that decided had a rival with 90 % of its votes: read its waits with care.",
        "why_unmatched": "Why the unmatched calls are so.",
    }


def across(_parts: Mapping[int, pd.DataFrame], call_waits: CallWaits) -> Matches:
    """Count the calls."""
    calls = call_waits.table
    if calls.empty:
        return Matches(calls.reindex(columns=list(Matches.columns)))
    groups = calls.assign(is_split=calls["transfer_ns"].notna(), is_inferred=calls["arguments"] == "inferred").groupby(
        list(KEYS), dropna=False, sort=True
    )
    table = pd.DataFrame(
        {
            "calls": groups.size(),
            "matched_calls": groups["is_matched"].sum(),
            "split_calls": groups["is_split"].sum(),
            "inferred_calls": groups["is_inferred"].sum(),
            "matched_by": groups["matched_by"].agg(_listed),
            "is_ambiguous": groups["is_ambiguous"].any(),
            "why_unmatched": groups["why_unmatched"].agg(_listed),
        }
    ).reset_index()
    return Matches(table.assign(unmatched_calls=table["calls"] - table["matched_calls"]))


def _listed(values: pd.Series) -> str | None:
    return "; ".join(sorted(set(values.dropna()))) or None
