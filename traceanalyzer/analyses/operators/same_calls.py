"""The operator calls that all ranks make as often: what a rank's host takes for them, beside the others'."""

from collections.abc import Collection

import pandas as pd
from msgspec import Struct

from traceanalyzer.model.tables import rows_where

_WAITS = 2.0
"""Times this rank's host time in an operator: others that take longer wait in it."""


class SameCalls(Struct, frozen=True):
    """A rank's host in the operators that every rank calls as often, those aside in which the others wait.

    Attributes:
        calls: of this rank by operator, those in which the others wait included.
        own_ns: its host time in each operator itself.
        others_ns: the same of the other ranks, a column each.
        covered: part of the rank's host time in operators that these take.
    """

    calls: pd.Series
    own_ns: pd.Series
    others_ns: pd.DataFrame
    covered: float

    @property
    def others_sum_ns(self) -> float:
        """The others' median of all of them together."""
        return float(self.others_ns.sum().median())

    @property
    def pace(self) -> float | None:
        """How many times as long as the others' the rank's host takes for them; `None` where the others take none."""
        others = self.others_sum_ns
        return float(self.own_ns.sum()) / others if others else None


def same_calls(operators: pd.DataFrame, rank: int, among: Collection[int] | None = None) -> SameCalls | None:
    """Of the table of operators; all ranks are those `among`, if given. `None` for a rank without others."""
    table = operators if among is None else rows_where(operators, operators["rank"].isin(among))
    table = table[table["calls"].notna() & table["host_self_ns"].notna()].astype(
        {"operator": "object", "calls": "int64", "host_self_ns": "int64"}
    )
    wide = table.groupby(["operator", "rank"])[["calls", "host_self_ns"]].sum().unstack("rank", fill_value=0)  # noqa: PD010
    if wide.empty or rank not in wide["calls"] or wide["calls"].shape[1] < 2:
        return None
    alike = wide[wide["calls"].eq(wide["calls"][rank], axis=0).all(axis=1)]
    own, others = alike["host_self_ns"][rank], alike["host_self_ns"].drop(columns=rank)
    # Whom this rank's host keeps waiting waits within operators: for a queue that is full, or for a copy.
    is_work = others.median(axis=1) <= _WAITS * own
    whole = float(wide["host_self_ns"][rank].sum())
    return SameCalls(alike["calls"][rank], own[is_work], others[is_work], float(own[is_work].sum()) / max(whole, 1.0))
