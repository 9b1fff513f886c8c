"""How the ranks lie beside each other on the timeline: as their clocks say, or aligned at their first step."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.columns import Unit
from traceanalyzer.quantities import text

ENOUGH_OVERLAP = 0.5
"""Share of the shortest rank's time that all ranks must have in common for their clocks to be believed."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Where each rank's times are drawn.

    Attributes:
        shifts: what is taken from each rank's times.
        zero_ns: earliest operation, after that: the timeline's 0.
        note: one sentence that says what was done.
        is_common: the times are as the ranks' clocks recorded them.
    """

    shifts: Mapping[int, int]
    zero_ns: int
    note: str
    is_common: bool

    def shift_ns(self, rank: int) -> int:
        """What is taken from the rank's times."""
        return self.shifts.get(rank, 0)

    def place(self, rank: int, time_ns: int) -> int:
        """Where a moment of a rank lies on the timeline."""
        return int(time_ns) - self.shift_ns(rank) - self.zero_ns


def common_clock(timeline: pd.DataFrame, results: Mapping[str, Result]) -> Clock:
    """The recorded times where the ranks' windows overlap as those of one run do; else first steps side by side."""
    spans = timeline.groupby("rank").agg(first=("start_ns", "min"), last=("end_ns", "max"))
    shared = spans["last"].min() - spans["first"].max()
    if shared >= ENOUGH_OVERLAP * (spans["last"] - spans["first"]).min():
        several = _hosts(results)
        note = (
            f"Times are as the clocks of {several} hosts recorded them; they may differ from each other."
            if several > 1
            else "All ranks on one clock, as recorded."
        )
        note = f"{note} {_offsets(results)}".strip()
        return Clock({}, int(spans["first"].min()), note if len(spans) > 1 else "", is_common=True)
    starts, where = _first_steps(results, spans)
    shifts = {int(rank): int(start) - int(starts.min()) for rank, start in starts.items()}
    zero = min(int(first) - shifts.get(int(rank), 0) for rank, first in spans["first"].items())
    note = (
        f"The ranks' clocks do not agree: each rank is drawn with {where} at the same place. "
        "Compare lengths, not moments."
    )
    return Clock(shifts, zero, note, is_common=False)


def _hosts(results: Mapping[str, Result]) -> int:
    return int(results["ranks"].to_frame()["host"].nunique())


def _offsets(results: Mapping[str, Result]) -> str:
    """How far the clocks are apart as shared collectives tell; nothing where that is not known."""
    frame = results["clocks"].to_frame() if "clocks" in results else pd.DataFrame()
    known = frame[frame["offset_ns"].notna()] if len(frame) else frame
    apart = known[known["is_significant"].fillna(value=False).astype(bool)] if len(known) else known
    if apart.empty:
        return ""
    worst = apart.loc[apart["offset_ns"].abs().idxmax()]
    return (
        f"Rank {worst['rank']}'s is off by {text(abs(worst['offset_ns']), Unit.NS)} against rank {worst['reference']} "
        f"(± {text(worst['uncertainty_ns'], Unit.NS)}), and is drawn as recorded."
    )


def _first_steps(results: Mapping[str, Result], spans: pd.DataFrame) -> tuple[pd.Series, str]:
    """Start of the first step that all ranks have; without one of each rank's first operation."""
    steps = results["steps"].to_frame() if "steps" in results else pd.DataFrame()
    held = steps[steps["start_ns"].notna()] if len(steps) else steps
    if len(held):
        holders = held.groupby("step")["rank"].nunique()
        shared = holders.index[holders == len(spans)]
        if len(shared):
            first = min(shared)
            return held[held["step"] == first].set_index("rank")["start_ns"].astype(
                "int64"
            ), f"the start of step {first}"
    return spans["first"], "its first operation"
