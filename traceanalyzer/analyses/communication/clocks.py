"""Clock offsets between ranks, with their spread, and one common clock."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result, is_true
from traceanalyzer.analyses.communication.clock_offsets import NAMES, chained_offsets
from traceanalyzer.analyses.communication.jobs import hosts_of
from traceanalyzer.analyses.communication.matching import LEAST_UNCERTAINTY_NS
from traceanalyzer.analyses.communication.waits import Members
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Adds, Column, Unit, text
from traceanalyzer.meaning.vocabulary import named, numbered
from traceanalyzer.model.tables import without_rows

if TYPE_CHECKING:
    from traceanalyzer.analyses.results import Results


class Clocks(Result):
    """One row for each rank. A collective that synchronises ends at one moment on all its ranks."""

    title = "Clock offsets"
    keys = ("rank",)
    is_of_one_run = True
    columns = {
        "rank": RANK,
        "reference": Column.ident(
            "Lowest of the ranks that it shares instances with, directly or not; absent without any."
        ),
        "offset_ns": Column.time(
            "Rank's clock − the median of those ranks' clocks (of two ranks: the lower one's): median "
            "difference of the ends of shared synchronising instances; 0 of ranks of one host that share only calls "
            "with several peers, of which none ends before both have begun; of two hosts that share only such calls "
            "the middle of the offsets with which none does, where that is surer.",
            adds=Adds.DERIVED,
        ),
        "spread_ns": Column.time("95% of those differences are within this of their median.", adds=Adds.DERIVED),
        "uncertainty_ns": Column.time(
            "The spread, never less than 30 µs: what a figure that depends on clocks is sure to.", adds=Adds.DERIVED
        ),
        "is_significant": Column.flag("The offset is larger than its uncertainty."),
        "instances": Column.count("Instances that the offset comes from.", is_compared=False),
    }

    def offsets_ns(self) -> dict[int, int]:
        """By rank how far its clock is ahead, where that is known."""
        known = self.table[self.table["offset_ns"].notna()]
        return dict(zip(known["rank"].astype(int), known["offset_ns"].astype(int), strict=True))

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        uncertainty = table["spread_ns"].clip(lower=LEAST_UNCERTAINTY_NS)
        is_significant = (table["offset_ns"].abs() > uncertainty).where(table["offset_ns"].notna())
        return table.assign(uncertainty_ns=uncertainty, is_significant=is_significant.astype("boolean"))


def across(members: Members, ranks: Ranks) -> Clocks:
    """Median differences of each rank to the lowest rank of an instance, chained over groups, closest first.

    Offsets are against the median rank of those that are connected, once there are more than two.
    """
    none = pd.DataFrame(columns=NAMES, dtype="Int64")
    known = chained_offsets(members.table, hosts_of(ranks.table)) if len(members) else none
    groups = known.groupby("reference")["offset_ns"]
    median = groups.transform(lambda own: int(np.median(own.to_numpy(dtype=np.int64))) if len(own) > 2 else 0)
    known = known.assign(offset_ns=(known["offset_ns"] - median).astype("Int64"))
    order = pd.Index(ranks.table["rank"].astype("int64"), name="rank")
    return Clocks(known.reindex(order).reset_index())


@dataclass(frozen=True, slots=True)
class Clock:
    """Where each rank's times are drawn.

    Attributes:
        shifts: what is taken from each rank's times.
        zero_ns: earliest operation, after that: the timeline's 0.
        note: one sentence or two that say what was done.
        is_common: the times are as the ranks' clocks recorded them, or corrected by what is known of those clocks.
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

    def places(self, table: pd.DataFrame, column: str) -> np.ndarray:
        """The same of a column of moments, each of its row's `rank`."""
        return self.shifted(table, column) - self.zero_ns

    def shifted(self, table: pd.DataFrame, column: str) -> np.ndarray:
        """A column of moments, each less what is taken from the times of its row's `rank`."""
        shifts = table["rank"].map(dict(self.shifts)).fillna(0)
        moments: np.ndarray = table[column].to_numpy(dtype=np.int64) - shifts.to_numpy(dtype=np.int64)
        return moments


def common_clock(results: "Results") -> Clock:
    """The clock of the ranks of a timeline.

    Offsets that shared collectives tell, and that are larger than their uncertainty, are taken from the ranks' times.
    Ranks that no collective ties to the others keep their recorded times where these overlap as those of one run do;
    else they begin their first common step with the others (without one, their first operation).

    Args:
        results: `timeline`, else `ranks`, whose windows stand for it; of `clocks`, `ranks` and `steps` what is there.
    """
    if "timeline" in results:
        ranks = results["timeline"].table.groupby("rank")
        spans = ranks.agg(first=("start_ns", "min"), last=("end_ns", "max")).astype("int64")
    else:
        known = results["ranks"].to_frame().dropna(subset=["window_start_ns", "window_ns"]).set_index("rank")
        first, length = known["window_start_ns"].astype("int64"), known["window_ns"].astype("int64")
        spans = pd.DataFrame({"first": first, "last": first + length})
    names = ["offset_ns", "uncertainty_ns", "is_significant", "reference"]
    measured = results["clocks"].to_frame() if "clocks" in results else without_rows(["rank", *names])
    clocks = measured.set_index("rank").reindex(index=spans.index, columns=names)
    is_corrected = is_true(clocks["is_significant"]) & clocks["offset_ns"].notna()
    offsets = clocks["offset_ns"].where(is_corrected, 0).fillna(0).astype("int64")
    moved, where = _moved(spans.sub(offsets, axis=0), clocks["reference"], results)
    shifts = offsets + moved
    known = (
        clocks[is_corrected & (moved == 0)]
        .astype({"offset_ns": "int64"})
        .sort_values("offset_ns", key=lambda own: -own.abs(), kind="stable")
    )
    each = [
        f"rank {rank} by {text(offset, Unit.NS)} (± {text(uncertainty, Unit.NS)})"
        for rank, offset, uncertainty in zip(known.index, known["offset_ns"], known["uncertainty_ns"], strict=True)
    ]
    notes = [f"Clocks are corrected by what shared collectives tell of them: {named(each)}."] if each else []
    if apart := moved.index[moved != 0].tolist():
        notes.append(
            f"The ranks' clocks do not agree: {numbered('rank', apart)} {'is' if len(apart) == 1 else 'are'} drawn "
            f"with {where} at the same place as the others'. Compare lengths, not moments."
        )
    if not notes and len(spans) > 1:
        hosts = int(results["ranks"].to_frame()["host"].nunique()) if "ranks" in results else 0
        note = f"Times are as the clocks of {hosts} hosts recorded them; they may differ from each other."
        notes.append(note if hosts > 1 else "All ranks on one clock, as recorded.")
    zero_ns = int((spans["first"] - shifts).min()) if len(spans) else 0
    return Clock({int(rank): int(shift) for rank, shift in shifts.items()}, zero_ns, " ".join(notes), not apart)


def _moved(spans: pd.DataFrame, reference: pd.Series, results: "Results") -> tuple[pd.Series, str]:
    """What is further taken from the times of ranks that nothing ties to the most, and where they meet those."""
    moved = pd.Series(0, index=spans.index, dtype="int64")
    # Ranks whose clocks shared collectives tie together; each of the others by itself.
    tied = reference.astype("Float64").fillna(-1.0 - pd.Series(range(len(spans)), index=spans.index))
    groups = sorted(list(ranks) for _, ranks in spans.index.groupby(tied.to_numpy(dtype=float)).items())
    if len(groups) < 2:
        return moved, ""
    anchor = max(groups, key=len)
    starts, where = _first_steps(results, spans)
    begin, end = spans.loc[anchor, "first"].min(), spans.loc[anchor, "last"].max()
    for group in groups:
        first, last = spans.loc[group, "first"].min(), spans.loc[group, "last"].max()
        shared = min(last, end) - max(first, begin)
        if group is not anchor and shared < SHARE * min(last - first, end - begin):
            moved[group] = int(starts[group].min() - starts[anchor].min())
    return moved, where


def _first_steps(results: "Results", spans: pd.DataFrame) -> tuple[pd.Series, str]:
    """Start of the first step that all ranks have; without one of each rank's first operation."""
    if "steps" in results and len(results["steps"].table):
        held = results["steps"].table.dropna(subset=["start_ns", "step"])
        holders = held.groupby("step")["rank"].nunique()
        shared = holders.index[holders == len(spans)]
        if len(shared):
            starts = held[held["step"] == shared[0]].set_index("rank")["start_ns"].astype("int64")
            return starts.reindex(spans.index), f"the start of step {shared[0]}"
    return spans["first"], "its first operation"
