"""How many of each rank's communication calls were matched with the other ranks', by group, and how."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, is_true
from traceanalyzer.analyses.communication.call_waits import CallWaits, listed, looked_at
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.grouping import Groups as Rows
from traceanalyzer.analyses.names import MatchesColumn
from traceanalyzer.meaning.columns import Column
from traceanalyzer.model.tables import columns_of, with_columns

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
    columns = columns_of(held)
    by_key = Rows.of(columns, KEYS, with_absent=True)
    is_matched = columns["is_matched"].astype(bool)
    masks = {
        "matched_calls": is_matched,
        "split_calls": ~columns["transfer_ns"].isna(),
        "inferred_calls": np.asarray(columns["arguments"] == "inferred"),
    }
    counts = {"calls": by_key.counts(), **{n: by_key.sums(mask.astype(np.int64)) for n, mask in masks.items()}}
    table = by_key.table(
        **counts,
        matched_by=by_key.told(columns["matched_by"], listed),
        is_ambiguous=pd.array(by_key.any(is_true(held["is_ambiguous"]).to_numpy()), dtype="boolean"),
        why_unmatched=by_key.told(columns["why_unmatched"], listed),
        why_unsplit=by_key.told(np.where(is_matched, columns["why_not_split"], None), listed),
        unmatched_calls=counts["calls"] - counts["matched_calls"],
        unsplit_calls=counts["matched_calls"] - counts["split_calls"],
    )
    return Matches(with_columns(table, group_label=labels(groups, table)))
