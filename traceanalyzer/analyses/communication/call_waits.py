"""How much of each communication call is transfer and how much is waiting for another rank."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from traceanalyzer import kinds
from traceanalyzer.analyses.base import Result, is_true
from traceanalyzer.analyses.communication.members import Members
from traceanalyzer.analyses.names import CallWaitsColumn
from traceanalyzer.analyses.same_keys import places_of
from traceanalyzer.meaning.columns import Better, Column, Written
from traceanalyzer.model.schema import NONE

AMBIGUOUS = "ambiguous: which calls are one collective cannot be told from their times"
ONE_ROOT = "has one root: its ranks do not wait alike"
UNEVEN = "uneven all-to-all: its ranks do not wait alike"
MAYBE_UNEVEN = "all-to-all that may be uneven: the trace leaves out some of its sizes"
EXPERTS = "tokens to and from experts: its ranks send different amounts and do not wait alike"
ONE_SIDED = "one-sided: its ranks do not wait alike"
UNKNOWN = "the trace does not say which collective it is"


class CallWaits(Result[CallWaitsColumn]):
    """One row for each communication call. The wait comes first: [start, end − transfer)."""

    title: ClassVar[str] = "Transfer and wait of each call"
    is_detail: ClassVar[bool] = True
    keys: ClassVar[tuple[str, ...]] = ("rank", "call")
    columns: ClassVar[Mapping[str, Column]] = {
        "rank": Column.ident("Global rank."),
        "call": Column.ident("Position among the rank's communication operations."),
        "step": Column.ident("Step that launched it; absent for none."),
        "start_ns": Column.moment("Start on the GPU."),
        "end_ns": Column.moment("End on the GPU."),
        "collective": Column.text("Collective or point-to-point operation.", written=Written.COLLECTIVE),
        "group": Column.text("Process group; absent when the trace does not say.", replaced_by="group_label"),
        "instance": Column.ident("Instance that decides its transfer; absent when unmatched."),
        "transfer_ns": Column.time(
            "Shortest duration over the instance's ranks; absent when it cannot be told.", is_news_when_zero=True
        ),
        "wait_ns": Column.time(
            "Duration − transfer; absent when it cannot be told. Where a rank of the group has no trace the wait for "
            "those that have one; the rest of the call may be a wait for that rank.",
            is_news_when_zero=True,
            better=Better.LESS,
        ),
        "waits_for": Column.ident("Rank with the least wait in the instance; absent for itself."),
        "is_matched": Column.flag("Whether its instance is known on all ranks of its group."),
        "matched_by": Column.text("How the instance was found."),
        "is_ambiguous": Column.flag("The clock offset that decided had a rival with 90 % of its votes."),
        "why_not_split": Column.text("Why the transfer is absent."),
    }


def across(_parts: Mapping[int, pd.DataFrame], members: Members) -> CallWaits:
    """The instance with the shortest transfer decides for a call that exchanges messages with several peers."""
    table = members.table.sort_values(["rank", "call", "transfer_ns"], na_position="last", kind="stable")
    table = table.drop_duplicates(["rank", "call"], ignore_index=True)
    if table.empty:
        return CallWaits(table.reindex(columns=list(CallWaits.columns)))
    is_matched = is_true(table["is_whole"])
    return CallWaits(table.assign(is_matched=is_matched, why_not_split=_why(table, is_matched)))


def looked_at(call_waits: Result, calls: Result) -> pd.DataFrame:
    """The calls that are looked at: all, or those of the selected steps (they are matched over the whole capture)."""
    is_held = places_of(call_waits.table, calls.table, ("rank", "call")) != NONE
    return call_waits.table.take(np.flatnonzero(is_held)).reset_index(drop=True)


def listed(texts: Iterable[str]) -> str | None:
    """The distinct texts in order; absent without any."""
    return "; ".join(sorted(set(texts))) or None


def _why(table: pd.DataFrame, is_matched: pd.Series) -> pd.Series:
    is_told = is_matched | table["transfer_ns"].notna()
    why = table["why_unmatched"].astype("object").where(~is_told, None)
    unlike = is_matched & table["transfer_ns"].isna()
    # One rank's uneven splits, or splits that are not known, are those of the whole instance.
    is_uneven = table["is_uneven"].fillna(value=False).groupby(table["instance"]).transform("any")
    reasons = {
        AMBIGUOUS: table["is_ambiguous"].fillna(value=False),
        ONE_ROOT: table["collective"].isin(kinds.ROOTED),
        UNEVEN: (table["collective"] == "all_to_all") & is_uneven.fillna(value=False),
        MAYBE_UNEVEN: table["collective"] == "all_to_all",
        EXPERTS: table["collective"].isin(kinds.EXPERTS),
        ONE_SIDED: table["collective"] == "rma",
    }
    reason = np.select([mask.to_numpy(dtype=bool) for mask in reasons.values()], list(reasons), default=UNKNOWN)
    return why.where(~unlike, pd.Series(reason, index=table.index, dtype="object"))
