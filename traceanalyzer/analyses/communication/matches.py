"""How many of each rank's communication calls were matched with the other ranks', by group, and how."""

from collections.abc import Mapping
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.communication.call_waits import CallWaits, listed, looked_at
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.grouping import told_of_each
from traceanalyzer.analyses.names import MatchesColumn
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model.tables import table_of

KEYS = ("rank", "group", "group_ranks")


class Matches(Result[MatchesColumn]):
    """One row for each rank and process group; calls whose group is unknown have a row without one."""

    title: ClassVar[str] = "Calls matched over ranks"
    keys: ClassVar[tuple[str, ...]] = KEYS
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "group": Column.text("Process group; absent when the trace does not say.", replaced_by="group_label"),
        "group_label": Column.text(
            "What the group is for and its ranks, as `groups` has it.", label="process group", is_aside_when_one=True
        ),
        "group_ranks": Column.text("Global ranks of the group.", is_secondary=True, replaced_by="group_label"),
        "calls": Column.count(
            "Communication calls that are looked at; they are matched over the whole capture.", is_aside=True
        ),
        "matched_calls": Column.count("Calls whose instance was found on all ranks of the group.", is_compared=False),
        "unmatched_calls": Column.count(
            "The others; they keep their duration, their transfer and wait are not known.", is_compared=False
        ),
        "split_calls": Column.count(
            "Matched calls whose transfer and wait are known.", is_compared=False, is_secondary=True
        ),
        "unsplit_calls": Column.count(
            "Matched calls whose ranks do not wait alike, so that transfer and wait cannot be told apart.",
            is_compared=False,
        ),
        "inferred_calls": Column.count("Calls whose arguments come from a later step.", is_compared=False),
        "matched_by": Column.text("How they were found."),
        "is_ambiguous": Column.flag(
            "A clock offset that decided had a rival with 90 % of its votes: waits of these calls are n/a."
        ),
        "why_unmatched": Column.text("Why the unmatched calls are so."),
        "why_unsplit": Column.text("Why matched calls are not split: one root, or uneven splits."),
    }


def across(_parts: Mapping[int, pd.DataFrame], call_waits: CallWaits, calls: Calls, groups: Groups) -> Matches:
    """Count the calls."""
    held = looked_at(call_waits, calls)
    if held.empty:
        return Matches(held.reindex(columns=list(Matches.columns)))
    facts = {
        "is_split": held["transfer_ns"].notna(),
        "is_inferred": held["arguments"] == "inferred",
        "why_unsplit": held["why_not_split"].where(held["is_matched"].astype(bool), None),
    }
    by_key = held.assign(**facts).groupby(list(KEYS), dropna=False, sort=True)
    table = table_of(
        {
            "calls": by_key.size(),
            "matched_calls": by_key["is_matched"].sum(),
            "split_calls": by_key["is_split"].sum(),
            "inferred_calls": by_key["is_inferred"].sum(),
            "matched_by": told_of_each(by_key, "matched_by", listed),
            "is_ambiguous": by_key["is_ambiguous"].any(),
            "why_unmatched": told_of_each(by_key, "why_unmatched", listed),
            "why_unsplit": told_of_each(by_key, "why_unsplit", listed),
        }
    ).reset_index()
    others = {
        "unmatched_calls": table["calls"] - table["matched_calls"],
        "unsplit_calls": table["matched_calls"] - table["split_calls"],
    }
    return Matches(table.assign(**others, group_label=labels(groups, table)))
