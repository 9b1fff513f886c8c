"""Rows of a Result that a page shows where it has many: the longest gaps, the changes that gain something."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.host.gaps import GapTable
from traceanalyzer.analyses.replay.what_ifs import WhatIfs

MOST_GAPS = 20

LEAST_GAP_NS = 50_000
"""Where none is longer, a sentence is enough: it is what a launch takes."""

LEAST_GAIN_PCT = 0.1
"""Of a step: changes that gain less are named, without a row."""

MOST_GAINS = 8
"""Rows that are shown at first."""


@dataclass(frozen=True, slots=True)
class LongestGaps:
    """The first of the gaps by length; `are_notable` when the longest is worth a table."""

    rows: pd.DataFrame
    longest_ns: int

    @property
    def are_notable(self) -> bool:
        """Whether there is a long one."""
        return self.longest_ns >= LEAST_GAP_NS


def longest_gaps(gaps: GapTable) -> LongestGaps:
    """Of a table that has rows."""
    rows: pd.DataFrame = gaps.to_frame().nlargest(MOST_GAPS, "length_ns")
    return LongestGaps(rows, int(rows["length_ns"].iloc[0]))


@dataclass(frozen=True, slots=True)
class Gains:
    """Changes that gain something, how many of them a page shows at first, and the names of the others.

    `are_bounds`: what gains of the others are is not known to this part of a step.
    """

    rows: pd.DataFrame
    first: int
    others: tuple[str, ...]
    are_bounds: bool


def gains(what_ifs: WhatIfs) -> Gains:
    """By what each change gains of a step; one that gains for some rank is no other."""
    frame: pd.DataFrame = what_ifs.to_frame()
    rows = frame[is_true(frame["gain_pct"] >= LEAST_GAIN_PCT)]
    little = frame.loc[is_true(frame["gain_pct"] < LEAST_GAIN_PCT), "change"].unique()
    others = [str(name) for name in little if name not in set(rows["change"])]
    are_bounds = bool(is_true(frame.loc[frame["change"].isin(others), "is_bound"]).any())
    return Gains(rows, min(max(len(rows), 1), MOST_GAINS), tuple(others), are_bounds)
