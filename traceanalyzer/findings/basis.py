"""What findings measure by: mean complete step of each rank, or the whole capture without such steps."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.headline import shared_steps


@dataclass(frozen=True, slots=True)
class Basis:
    """The headline's window.

    Attributes:
        steps: how many complete steps it is the sum of; `None` for a whole capture.
        numbers: of those steps.
        window_ns: its length by rank.
    """

    steps: int | None
    numbers: tuple[int, ...]
    window_ns: pd.Series

    @classmethod
    def of(cls, headline: Result, steps: Result) -> "Basis":
        """The basis of a headline that has at least one row."""
        windows = headline.table.set_index("rank")["window_ns"].astype("int64")
        count = headline.table["steps"].iloc[0]
        if pd.isna(count):
            return cls(None, (), windows)
        complete = steps.table[steps.table["is_complete"].fillna(value=False).astype(bool)]
        return cls(int(count), tuple(shared_steps(complete, set(windows.index))), windows)

    @property
    def per(self) -> int:
        """By what to divide for a mean step; 1 for a whole capture."""
        return self.steps or 1

    @property
    def of_a_step(self) -> str:
        """Words for what a share is of."""
        return "of the capture" if self.steps is None else "of a step"

    def within(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rows of a table with a `step` that belong to the basis: all of them for a whole capture."""
        return table if self.steps is None else table[table["step"].isin(self.numbers)]

    def scaled(self, cost_ns: int, window_ns: int, rank: int) -> int:
        """A cost measured over `window_ns`, as a mean step of the rank would hold it by its length."""
        return round(cost_ns * self.mean_ns(rank) / window_ns) if window_ns else 0

    def mean_ns(self, rank: int) -> float:
        """Mean length of the rank's steps, or its whole window."""
        return float(self.window_ns[rank]) / self.per


def mean_steps(by_step: Result, basis: Basis, columns: list[str]) -> pd.DataFrame:
    """Means over the basis' steps of a Result with a row for each rank and step (`step` absent: the whole)."""
    table = by_step.table
    if basis.steps is None:
        return table[table["step"].isna()].set_index("rank")[columns].astype("float64")
    return basis.within(table).groupby("rank")[columns].mean().astype("float64")


def milliseconds(time_ns: float) -> str:
    """`45.9 ms`, three significant digits; `0.83 µs` below a thousandth of one."""
    return f"{time_ns / 1e6:.3g} ms" if time_ns >= 1e3 else f"{time_ns / 1e3:.2g} µs"


def severity(share_pct: float) -> str:
    """By the share of time that is lost."""
    return "high" if share_pct >= 20 else "medium" if share_pct >= 5 else "low"
