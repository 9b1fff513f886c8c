"""Results of several runs beside each other: what differs, in what, and whether the comparison is fair."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from traceanalyzer.diff import fairness as diff_fairness
from traceanalyzer.diff import joins
from traceanalyzer.diff import metrics as diff_metrics
from traceanalyzer.diff.captures import Capture, Side
from traceanalyzer.diff.fairness import Fairness
from traceanalyzer.diff.joins import TableDiff
from traceanalyzer.errors import UsageError

__all__ = ["Capture", "Comparison", "Fairness", "Side", "TableDiff", "compare"]


@dataclass(frozen=True)
class Comparison:
    """Runs beside each other; the first is the base. Tables are joined when they are asked for.

    Attributes:
        sides: the runs.
        fairness: what differs between them.
        metrics: a row for each figure and run, with its difference to the base (`diff.metrics.COLUMNS`).
        is_forced: made although it is not fair.
    """

    sides: tuple[Side, ...]
    fairness: Fairness
    metrics: pd.DataFrame
    is_forced: bool = False

    def __repr__(self) -> str:
        tables = sum(map(len, self.tables.values()))
        figures = self.metrics["metric"].nunique()
        return f"{type(self).__name__}({' against '.join(reversed(self.runs))}: {figures} figures, {tables} tables)"

    @property
    def base(self) -> Side:
        """The run that others are compared with."""
        return self.sides[0]

    @property
    def others(self) -> tuple[Side, ...]:
        """The other runs."""
        return self.sides[1:]

    @property
    def runs(self) -> list[str]:
        """Names of all runs, base first."""
        return [side.label for side in self.sides]

    @property
    def ranking(self) -> list[str]:
        """Runs by step time (or time per token), shortest first."""
        steps = self.metrics[self.metrics["metric"] == "step_ns"].set_index("run")["value"]
        return sorted(self.runs, key=lambda run: (pd.isna(steps[run]), steps[run]) if run in steps else (True, 0.0))

    @property
    def different(self) -> str:
        """In what the runs differ besides their times, and what follows: the first line of every report of it."""
        own_times = self.metrics[self.metrics["metric"] == "unprofiled_step_ns"]["value"]
        return diff_fairness.line(
            self.fairness.facts,
            self.runs,
            is_fair=self.fairness.is_fair,
            is_damaged=self.fairness.is_damaged,
            has_own_times=len(own_times) == len(self.sides) and bool(own_times.notna().all()),
        )

    @cached_property
    def tables(self) -> dict[str, list[TableDiff]]:
        """For each other run its tables joined with the base's."""
        return {run: self._joined(run) for run in self.runs[1:]}

    @cached_property
    def by_rank(self) -> dict[str, list[TableDiff]]:
        """The same for each rank."""
        return {run: self._joined(run, by_rank=True) for run in self.runs[1:]}

    def table(self, run: str, analysis: str) -> TableDiff | None:
        """An analysis' table of a run, joined with the base's; `None` where it has none."""
        return next((table for table in self.tables[run] if table.analysis == analysis), None)

    def _joined(self, run: str, names: Collection[str] | None = None, *, by_rank: bool = False) -> list[TableDiff]:
        other = next(side.first for side in self.others if side.label == run)
        return joins.tables(self.base.first, other, self.fairness.scale, names, by_rank=by_rank)

    @property
    def is_empty(self) -> bool:
        """Whether no figure and no table of any other run differs from the base's."""
        if self.metrics[["change", "change_pct_points"]].fillna(0).to_numpy(dtype=float).any():
            return False
        statuses = {status for tables in self.tables.values() for table in tables for status in table.frame["status"]}
        return statuses <= {joins.SAME}


def compare(sides: Sequence[Side], *, force: bool = False) -> Comparison:
    """Compare runs with the first of them.

    Args:
        sides: two or more runs.
        force: compare even what did not do the same work.

    Raises:
        UsageError: fewer than two runs, or they are not comparable and `force` is not set.
    """
    if len(sides) < 2:
        raise UsageError("diff takes at least two runs: BASE OTHER [OTHER…]")
    judged = diff_fairness.judge(sides)
    if not judged.is_fair and not force:
        reasons = "".join(f"\n  - {reason}" for reason in judged.refusals)
        runs = [side.label for side in sides]
        first = diff_fairness.line(judged.facts, runs, is_fair=False, has_own_times=False, is_damaged=judged.is_damaged)
        what = "cannot be compared" if judged.is_damaged else "did not do the same work"
        how = "`analyze-traces diff --force` (in Python force=True) compares them all the same, and says so."
        raise UsageError(f"{first}\nthese runs {what}:{reasons}\n{how}")
    return Comparison(tuple(sides), judged, diff_metrics.table(sides, judged.scale), is_forced=not judged.is_fair)
