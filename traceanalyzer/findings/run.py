"""What every kind of finding measures by: the run's mean step, its ranks by name, its replay and its framework."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.blame.rank_sets import JOB, Place, name_of
from traceanalyzer.analyses.breakdown import complete_steps, shared_steps
from traceanalyzer.analyses.replay.changes import OF_HOSTS, Change
from traceanalyzer.analyses.replay.gains import Engine
from traceanalyzer.analyses.statistics import LEAST_PCT, PERCENT, SHARE, few_longer
from traceanalyzer.findings.savings import saved_ns
from traceanalyzer.findings.terms import Terms
from traceanalyzer.meaning.vocabulary import numbered


def count_of_steps(table: pd.DataFrame) -> int | None:
    """Of how many complete steps the rows of a headline are; `None` of a whole trace."""
    steps = table["steps"].iloc[0]
    return None if pd.isna(steps) else int(steps)


@dataclass(frozen=True)
class Run:
    """A run as kinds of findings ask about it.

    Attributes:
        results: all Results; a kind takes those that it needs as parameters.
        engine: the job's graph; `None` where nothing can be replayed.
        steps: the complete steps that all ranks share; `None` where figures cover the whole trace.
        window_ns: length of a mean step (or of the trace) by rank.
    """

    results: Results
    engine: Engine | None
    steps: tuple[int, ...] | None
    window_ns: pd.Series

    @classmethod
    def of(cls, results: Results) -> "Run":
        """The run of these Results, which hold `headline` and `steps`."""
        headline = results["headline"].table
        engine = results["replay"].engine if "replay" in results else None
        windows = headline.set_index("rank")["window_ns"].astype("float64")
        numbers = None
        if not headline.empty and headline["steps"].notna().iloc[0]:
            numbers = tuple(shared_steps(complete_steps(results["steps"].table), set(windows.index)))
            windows /= int(headline["steps"].iloc[0])
        return cls(results, engine, numbers, windows)

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks of the capture."""
        return tuple(map(int, self.window_ns.index))

    @property
    def step_ns(self) -> float:
        """Length of a mean step of a mean rank; 0 without ranks."""
        return float(self.window_ns.mean()) if len(self.window_ns) else 0.0

    @property
    def count(self) -> int:
        """By what sums over the complete steps are divided; 1 for a whole trace."""
        return len(self.steps) if self.steps else 1

    @property
    def each(self) -> str:
        """`/step` behind a time, or nothing for a whole trace."""
        return "/step" if self.steps else ""

    @property
    def per(self) -> str:
        """`per step`, or `in the trace`."""
        return "per step" if self.steps else "in the trace"

    @cached_property
    def terms(self) -> Terms:
        """What tools are called for this run's vendor and framework."""
        return Terms.of(self.results)

    def is_worth(self, time_ns: float) -> bool:
        """Whether a time per step is at least the smallest saving that is a finding."""
        return self.step_ns > 0 and 100 * time_ns >= LEAST_PCT * self.step_ns

    def within(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rows of the complete steps, of a table with a `step`; all rows for a whole trace."""
        return table if self.steps is None else table[table["step"].isin(self.steps)]

    def per_step(self, table: pd.DataFrame, columns: Sequence[str], by: Iterable[str] = ("rank",)) -> pd.DataFrame:
        """Sums of the columns over the complete steps divided by their number, a row for each key; absent stays NA.

        A table with rows for whole traces (`step` absent) gives those where the run has no complete step.
        """
        if "step" in table:
            table = self.within(table) if self.steps is not None else table[table["step"].isna()]
        numbers = table[[*columns]].astype("Float64")
        return numbers.groupby([table[name] for name in by], observed=True).sum(min_count=1) / self.count

    @cached_property
    def recorded(self) -> int:
        """By what sums over all ranks and all that was recorded are divided: a mean step, or a mean rank's trace."""
        numbered = 0 if self.steps is None else int(self.results["steps"].table["step"].notna().sum())
        return max(numbered, len(self.ranks))

    @property
    def recorded_each(self) -> float:
        """By what a rank's sums over all that was recorded are divided."""
        return self.recorded / len(self.ranks)

    def shorter_operators(self, spared_ns: pd.Series) -> tuple[Change, ...]:
        """Operators with so much less GPU time (ns by name, over all that was recorded), if together worth it."""
        own_ns = self.results["operators"].table.groupby("operator", observed=True)["gpu_own_ns"].sum()
        spared_ns = spared_ns[spared_ns.index.isin(own_ns.index[own_ns > 0])].sort_values(ascending=False)
        if not self.is_worth(spared_ns.sum() / self.recorded):
            return ()
        worth = spared_ns[[self.is_worth(ns / self.recorded) for ns in spared_ns]]
        spared_ns = worth if len(worth) else spared_ns[100 * spared_ns >= PERCENT * spared_ns.sum()]
        left = {str(name): max(0.0, 1 - float(ns) / float(own_ns[name])) for name, ns in spared_ns.items()}
        return tuple(
            Change("operator", part if 100 * part >= PERCENT else 0.0, name=name) for name, part in left.items()
        )

    def few_steps(self, table: pd.DataFrame, column: str) -> tuple[int, ...]:
        """The few steps in which most of a time is; empty where it is in all of them, or of a whole trace."""
        if not self.steps or self.count < 2:
            return ()
        by_step = self.within(table).groupby("step")[column].sum().reindex(self.steps).fillna(0).astype("float64")
        few = by_step[few_longer(by_step)]
        return tuple(map(int, few.index)) if len(few) and few.sum() >= SHARE * by_step.sum() else ()

    def can_replay(self, *changes: Change) -> bool:
        """Whether the graph holds what the changes are about."""
        if self.engine is None:
            return False
        return self.engine.has_hosts or not any(change.part in OF_HOSTS for change in changes)

    def saved_ns(self, *changes: Change) -> int:
        """What the changes, made together, save of a mean step, with the typical profiler overhead; 0 if unknown."""
        if self.engine is None or not self.can_replay(*changes):
            return 0
        return max(0, saved_ns(self.engine, changes))

    def peers_of(self, ranks: Collection[int]) -> str:
        """All other ranks in words: `rank 0` of two, else `its peers` or `their peers`."""
        others, is_one = {*self.ranks} - {*ranks}, len(ranks) == 1
        return numbered("rank", others) if is_one and len(others) == 1 else f"{'its' if is_one else 'their'} peers"

    def who(self, ranks: Collection[int]) -> str:
        """Ranks in words: `rank 5 (host b07)`, `ranks 8–15 (host b07)`, `both ranks`, `all 8 ranks`."""
        return in_words(ranks, self.ranks, self.results.get("places"))


def in_words(ranks: Collection[int], every: Sequence[int], places: Any) -> str:
    """Some of `every` rank in words, with the name of their `Places` where chance would hardly put them there."""
    chosen = sorted({int(rank) for rank in ranks})
    if len(chosen) > 1 and set(chosen) >= {*every}:
        return "both ranks" if len(chosen) == 2 else f"all {len(chosen):,} ranks"
    known: tuple[Place, ...] = places.places() if places is not None else ()
    name = name_of(chosen, every, known, places.whole(len(every)) if places is not None else JOB)
    return f"{numbered('rank', chosen)}{f' ({name})' if name else ''}"
