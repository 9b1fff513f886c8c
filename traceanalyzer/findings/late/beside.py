"""A rank beside others, by operators: work of its own, the same calls that take its host longer, more calls."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.work_names import with_shapes
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.names import EfficiencyColumn
from traceanalyzer.analyses.operators.efficiency import Efficiency
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.operators.same_calls import same_calls
from traceanalyzer.findings.alike import of_the_others
from traceanalyzer.model.tables import rows_where

SLOWER = 1.2
"""A host that takes this much longer for the same calls is slow."""

MORE = 1.15
"""A host that makes this many times as many calls is busy."""

_AS_MANY = 0.02
"""Of a rank's calls: who differs by less makes as many."""

_A_QUARTER = 0.25

_COVERED = 0.9
"""Of a host's time in operators, the part that must be in calls that all ranks make."""

_MOST_ROWS = 5
_SHOWN: list[EfficiencyColumn] = ["rank", "operator", "shapes", "calls", "gpu_ns", "tflops_per_s"]


def of_as_many_steps(operators: Operators, by_step: pd.DataFrame) -> Operators:
    """The operators of the ranks of which as many steps were recorded as of most: others' counts are of more or less.

    `by_step` has `rank` and `step` of each step that was recorded, complete or not.
    """
    if not len(by_step):
        return operators
    ranks, steps = np.unique(Groups.of(by_step, ["rank", "step"]).keys["rank"], return_counts=True)
    numbers, times = np.unique(steps, return_counts=True)
    if len(numbers) < 2:
        return operators
    kept = ranks[steps == numbers[times == times.max()].max()]
    return replace(operators, table=rows_where(operators.table, operators.table["rank"].isin(kept)))


def own_work(efficiency: Efficiency, rank: int, others: Collection[int]) -> pd.DataFrame:
    """Rows of the rank whose operator and shapes none of the others runs, longest first; without communication."""
    table = efficiency.to_frame()
    table = table[(table["family"] != "communication") & table["shapes"].notna()]
    keys = pd.MultiIndex.from_frame(table[["operator", "shapes"]].astype("object"))
    is_own = (table["rank"] == rank) & ~keys.isin(keys[table["rank"].isin(others)])
    return table.loc[is_own, _SHOWN].sort_values("gpu_ns", ascending=False, kind="stable")


def named(row: pd.Series) -> str:
    """`aten::mm of [8192, 8192] × [8192, 8192]`."""
    return with_shapes(str(row["operator"]), row["shapes"])


class SlowHost(Struct, frozen=True):
    """How much longer a rank's host takes for the calls that every rank makes as often.

    Attributes:
        calls: of operators.
        times: its host time in them / the others' median.
        more_ns: the same, less the median.
        most: operators that take at least a quarter of that more, with how much.
        rows: the operators with most beyond the others' median: `operator`, `calls`, `host_self_ns`,
            `others_host_self_ns`.
    """

    calls: int
    times: float
    more_ns: float
    most: dict[str, float]
    rows: pd.DataFrame


def slow_host(
    operators: Operators, rank: int, least_times: float, among: Collection[int] | None = None
) -> SlowHost | None:
    """`None` unless nearly all of the rank's host time is in operators that all ranks call as often, and is longer.

    All ranks are those `among`, if given.
    """
    same = same_calls(operators.to_frame(), rank, among)
    pace = None if same is None else same.pace
    if same is None or pace is None or same.covered < _COVERED or pace < least_times:
        return None
    own, others = same.own_ns, same.others_ns
    rows = pd.DataFrame(
        {
            "calls": same.calls[own.index],
            "host_self_ns": own,
            "others_host_self_ns": others.median(axis=1).round(),
        }
    )
    beyond = (rows["host_self_ns"] - rows["others_host_self_ns"]).sort_values(ascending=False, kind="stable")
    more_ns = float(own.sum()) - same.others_sum_ns
    most = {str(name): float(ns) for name, ns in beyond[beyond >= _A_QUARTER * more_ns].items()}
    shown = rows.loc[beyond.index[:_MOST_ROWS]].reset_index()
    return SlowHost(int(same.calls.sum()), pace, more_ns, most, shown)


class MoreCalls(Struct, frozen=True):
    """How many more operator calls some ranks' hosts make than the others'.

    Attributes:
        ranks: they; each makes about as many.
        calls: of the one of them that makes most.
        others_calls: the others' median.
        only_other: the other one's rank, where there is one alone.
        name: the operator with most of the host time in calls beyond the others'; absent where none has a quarter.
        rows: the operators with most: `operator`, `calls`, `others_calls`, `more_ns` (of host time).
    """

    ranks: tuple[int, ...]
    calls: int
    others_calls: int
    only_other: tuple[int, ...]
    name: str | None
    rows: pd.DataFrame

    @property
    def times(self) -> float:
        """The ranks' calls over the others'."""
        return self.calls / self.others_calls

    @property
    def others(self) -> str:
        """Whose the others' calls are, in words."""
        return of_the_others(self.only_other)


def more_calls(operators: Operators, rank: int, least_times: float) -> MoreCalls | None:
    """`None` unless the rank, and those that make as many calls (within 2 %), make so many times the others' median."""
    table = operators.to_frame()
    table = rows_where(table, table["calls"].notna() & table["host_self_ns"].notna()).astype(
        {"operator": "object", "calls": "int64", "host_self_ns": "int64"}
    )
    wide = table.groupby(["operator", "rank"])[["calls", "host_self_ns"]].sum().unstack("rank", fill_value=0)  # noqa: PD010
    if wide.empty or rank not in wide["calls"]:
        return None
    calls, ns = wide["calls"], wide["host_self_ns"]
    sums = calls.sum()
    is_alike = (sums - sums[rank]).abs() <= _AS_MANY * sums[rank]
    others = calls.loc[:, ~is_alike]
    if others.empty:
        return None
    total, typical = int(sums[is_alike].max()), int(others.sum().median())
    if not typical or total < least_times * typical:
        return None
    beyond = (calls[rank] - others.median(axis=1)).clip(lower=0)
    each = ns[rank] / calls[rank].where(calls[rank] > 0)
    more = (beyond * each).fillna(0).sort_values(ascending=False, kind="stable")
    rows = pd.DataFrame({"calls": calls[rank], "others_calls": others.median(axis=1), "more_ns": more.round()})
    name = str(more.index[0]) if more.iloc[0] >= _A_QUARTER * more.sum() else None
    only_other = tuple(map(int, others.columns)) if others.shape[1] == 1 else ()
    ranks = tuple(int(other) for other in sums.index[is_alike])
    return MoreCalls(ranks, total, typical, only_other, name, rows.loc[more.index[:_MOST_ROWS]].reset_index())
