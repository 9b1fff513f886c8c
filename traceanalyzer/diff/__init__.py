"""Results of several runs beside each other: what differs, in what, and whether the comparison is fair."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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

    def side(self, run: str) -> Side:
        """The run of that name."""
        return next(side for side in self.sides if side.label == run)

    def values(self, metric: str, run: str) -> list[Any]:
        """A figure's value in the base and in the run; `None` where it is not known."""
        return [diff_metrics.value(self.metrics, metric, one) for one in (self.base.label, run)]

    @property
    def ranking(self) -> list[str]:
        """Runs by step time (or time per token), shortest first."""
        steps = {run: diff_metrics.value(self.metrics, "step_ns", run) for run in self.runs}
        return sorted(steps, key=lambda run: (steps[run] is None, steps[run] or 0.0))

    @property
    def different(self) -> str:
        """In what the runs differ besides their times, and what follows: the first line of every report of it."""
        own_times = (diff_metrics.value(self.metrics, "unprofiled_step_ns", run) for run in self.runs)
        return self.fairness.line(has_own_times=None not in own_times)

    @cached_property
    def tables(self) -> dict[str, list[TableDiff]]:
        """For each other run its tables joined with the base's."""
        return {side.label: joins.tables(self.base.first, side.first, self.fairness.scale) for side in self.others}

    def table(self, run: str, analysis: str) -> TableDiff | None:
        """An analysis' table of a run, joined with the base's; `None` where it has none."""
        return next((table for table in self.tables[run] if table.analysis == analysis), None)

    @property
    def is_empty(self) -> bool:
        """Whether no figure and no table of any other run differs from the base's."""
        if self.metrics[["change", "change_pct_points"]].fillna(0).to_numpy(dtype=float).any():
            return False
        return not any(table.differing for tables in self.tables.values() for table in tables)


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
        what = "cannot be compared" if judged.is_damaged else "did not do the same work"
        how = "`analyze-traces diff --force` (in Python force=True) compares them all the same, and says so."
        raise UsageError(f"{judged.line()}\nthese runs {what}:{reasons}\n{how}")
    return Comparison(tuple(sides), judged, diff_metrics.table(sides, judged.scale), is_forced=not judged.is_fair)
