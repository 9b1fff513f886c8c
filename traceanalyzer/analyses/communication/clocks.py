"""Which ranks are of one job and on which host, and how far their clocks are apart."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import RANK, Result, is_true
from traceanalyzer.analyses.communication.matching import LEAST_UNCERTAINTY_NS
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Adds, Column, Unit, numbers, text
from traceanalyzer.meaning.vocabulary import named, numbered

if TYPE_CHECKING:
    from traceanalyzer.analyses.communication.waits import Members
    from traceanalyzer.analyses.results import Results


# Jobs and hosts.


def jobs_of(members: pd.DataFrame, ranks: Iterable[int], meeting: Iterable[tuple[int, ...]] = ()) -> Mapping[int, int]:
    """For each rank the lowest rank of its job; all are one where a call tells neither its group nor its partners.

    Args:
        members: of `Members`.
        ranks: those that are asked for.
        meeting: ranks whose hosts meet in a collective of their CPUs, at least one each.
    """
    asked, meeting = [int(rank) for rank in ranks], tuple(meeting)
    if (members.empty and not meeting) or not asked:
        return {rank: rank for rank in asked}
    groups = [numbers(text) for text in members["group_ranks"].dropna().unique()]
    if members[["group_ranks", "instance"]].isna().all(axis=1).any() or not all(groups):
        return dict.fromkeys(asked, min(asked))
    jobs = connected([*groups, *_met(members), *meeting, *((rank,) for rank in asked)])
    lowest = {rank: min({*job} & {*asked}) for job in jobs for rank in {*job} & {*asked}}
    return {rank: lowest[rank] for rank in asked}


def _met(members: pd.DataFrame) -> Iterable[tuple[int, ...]]:
    """Ranks that next to each other take part in the same instance: of what the trace names no group for."""
    held = members.loc[members["instance"].notna(), ["instance", "rank"]].drop_duplicates()
    held = held.sort_values(["instance", "rank"])
    pairs = held.assign(before=held.groupby("instance")["rank"].shift()).dropna()[["before", "rank"]]
    return ((int(low), int(high)) for low, high in pairs.drop_duplicates().itertuples(index=False))


def connected(links: Iterable[Iterable[int]]) -> list[list[int]]:
    """The sets of ranks that links join, directly or through others, each in ascending order."""
    sets: list[set[int]] = []
    for link in map(set, links):
        apart = [own for own in sets if own.isdisjoint(link)]
        sets = [*apart, link.union(*(own for own in sets if not own.isdisjoint(link)))]
    return sorted(map(sorted, sets))


HOST_RANKS = 8
"""GPUs of a host, where the trace does not say which rank is where."""


def hosts_of(ranks: pd.DataFrame) -> Mapping[int, str]:
    """The host of each rank of `Ranks`; blocks of 8 neighbours where any is not known."""
    if ranks["host"].isna().any():
        return {int(rank): str(rank // HOST_RANKS) for rank in ranks["rank"]}
    return dict(zip(ranks["rank"].astype(int), ranks["host"].astype(str), strict=True))


# Clock offsets between ranks, with their spread.


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


def across(members: "Members", ranks: Ranks) -> Clocks:
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


# What instances that end at one moment on all their ranks tell of the ranks' clocks.


_PAIR = ["base", "rank"]

NAMES = ["reference", "offset_ns", "spread_ns", "instances"]


def chained_offsets(members: pd.DataFrame, hosts: Mapping[int, str], *, by_last_message: bool = True) -> pd.DataFrame:
    """By rank its `reference`, offset to it, spread (largest on the way) and instances (fewest on the way).

    Calls that exchange messages with several peers end with the last of these: only where nothing else ties two ranks
    together do they tell of their clocks. Those of one host are then one clock, where no message ends before both of
    its calls have begun; of others, `by_last_message`, the ends are as if they were one message's, where that
    scatters less than `_between` is unsure.
    """
    pairs = _pairs(members.dropna(subset=["wait_ns", "instance"]))
    edges = _medians(pairs[pairs["ends_together"]])
    rest = _others(pairs[~pairs["ends_together"]], edges)
    if len(rest):
        rest = rest.assign(host=rest["rank"].map(hosts), base_host=rest["base"].map(hosts))
        one_clock = _on_one_clock(rest[rest["host"] == rest["base_host"]])
        rest = _others(rest, one_clock)
        ways = [_between(rest[rest["host"] != rest["base_host"]]), *([_medians(rest)] if by_last_message else [])]
        surest = pd.concat(ways).sort_values("spread_ns", kind="stable").drop_duplicates(_PAIR)
        edges = pd.concat([edges, one_clock, surest], ignore_index=True)
    return _chained(edges)


def _pairs(members: pd.DataFrame) -> pd.DataFrame:
    """A row for each instance and rank but its lowest, `base`: the `difference` of ends, and by how much they overlap.

    `ahead_ns` and `behind_ns` are by how much later each one's call ends than the other's begins.
    """
    held = members[["instance", "rank", "start_ns", "end_ns"]].assign(
        ends_together=is_true(members["ends_together"]), is_single=~members.duplicated(["rank", "call"], keep=False)
    )
    lowest = held.sort_values("rank").drop_duplicates("instance").rename(columns={"rank": "base"})
    pairs = held.merge(lowest.drop(columns="ends_together"), on="instance", suffixes=("", "_of_base"))
    pairs = pairs[pairs["rank"] != pairs["base"]]
    return pairs.assign(
        difference=pairs["end_ns"] - pairs["end_ns_of_base"],
        ahead_ns=pairs["end_ns"] - pairs["start_ns_of_base"],
        behind_ns=pairs["end_ns_of_base"] - pairs["start_ns"],
    )


def _others(pairs: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
    """The rows of ranks that are not in a row of the other table together."""
    of, others = (pd.MultiIndex.from_frame(table[_PAIR]) for table in (pairs, known))
    return pairs[~of.isin(others)]


def _medians(pairs: pd.DataFrame) -> pd.DataFrame:
    """For every two ranks of which one is an instance's lowest: median difference of ends, its spread, instances."""
    by_pair = pairs.groupby(_PAIR)["difference"]
    off = (pairs["difference"] - by_pair.transform("median")).abs().groupby([pairs[name] for name in _PAIR])
    found = {"offset_ns": by_pair.median(), "spread_ns": off.quantile(0.95), "instances": by_pair.size()}
    return pd.DataFrame(found).round().astype("int64").reset_index()


def _on_one_clock(pairs: pd.DataFrame) -> pd.DataFrame:
    """Ranks of which no message ends before both calls have begun: an offset of 0, as sure as that is."""
    by_pair = pairs.groupby(_PAIR)[["ahead_ns", "behind_ns"]]
    least = by_pair.min()
    found = least.assign(offset_ns=0, spread_ns=least.max(axis=1).clip(lower=0), instances=by_pair.size())
    return found[least.min(axis=1) >= -LEAST_UNCERTAINTY_NS].reset_index()


def _between(pairs: pd.DataFrame) -> pd.DataFrame:
    """Ranks of two hosts, each of one clock: no message ends before both of its calls have begun, whoever is last.

    A host's clock is so much ahead at most as its calls end after the others begin, and at least as these end after its
    own begin; a call with one message ends no later than that of several which holds this one. The offset is in the
    middle, and off by half of what is between.
    """
    later, ahead, behind = pairs["difference"], pairs["ahead_ns"], pairs["behind_ns"]
    ahead = ahead.where(~pairs["is_single_of_base"] | (ahead < later), later)
    behind = behind.where(~pairs["is_single"] | (behind < -later), -later)
    is_back = pairs["base_host"] > pairs["host"]
    sides = [pairs["base_host"].where(~is_back, pairs["host"]), pairs["host"].where(~is_back, pairs["base_host"])]
    most = ahead.where(~is_back, behind).groupby(sides).transform("min")
    least = behind.where(~is_back, ahead).groupby(sides).transform("min")
    own = pairs.assign(
        offset_ns=np.where(is_back, least - most, most - least) // 2,
        spread_ns=((most + least) // 2).clip(lower=0),
        instances=1,
    )
    by_pair = own[most + least >= -LEAST_UNCERTAINTY_NS].groupby(_PAIR)
    return by_pair.agg({"offset_ns": "first", "spread_ns": "first", "instances": "sum"}).reset_index()


def _chained(pairs: pd.DataFrame) -> pd.DataFrame:
    """The same along the pairs of least spread, from the lowest rank of those that share instances."""
    neighbours: dict[int, list[tuple[int, int, int, int]]] = {}
    for base, rank, offset, spread, instances in pairs[[*_PAIR, *NAMES[1:]]].astype(int).itertuples(index=False):
        neighbours.setdefault(base, []).append((spread, rank, offset, instances))
        neighbours.setdefault(rank, []).append((spread, base, -offset, instances))
    found: dict[int, tuple[int, int, int, int]] = {}
    for reference in sorted(neighbours):
        if reference in found:
            continue
        found[reference] = (reference, 0, 0, max(instances for *_, instances in neighbours[reference]))
        waiting = [(*pair, reference) for pair in neighbours[reference]]
        heapify(waiting)
        while waiting:
            spread, rank, offset, count, source = heappop(waiting)
            if rank not in found:
                _, base, widest, fewest = found[source]
                found[rank] = (reference, base + offset, max(widest, spread), min(fewest, count))
                for pair in neighbours[rank]:
                    heappush(waiting, (*pair, rank))
    return pd.DataFrame.from_dict(found, orient="index", columns=NAMES, dtype="Int64")


# One clock for all ranks of a timeline.


@dataclass(frozen=True, slots=True)
class Clock:
    """Where each rank's times are drawn.

    Attributes:
        shifts: what is taken from each rank's times.
        zero_ns: earliest operation, after that: the timeline's 0.
        note: one sentence or two that say what was done.
    """

    shifts: Mapping[int, int]
    zero_ns: int
    note: str

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
        results: `timeline`, else the windows of `ranks`; `clocks`, `ranks` and `steps`.
    """
    if "timeline" in results:
        ranks = results["timeline"].table.groupby("rank")
        spans = ranks.agg(first=("start_ns", "min"), last=("end_ns", "max"))
    else:
        windows = results["ranks"].to_frame().set_index("rank")[["window_start_ns", "window_end_ns"]]
        spans = windows.dropna().set_axis(["first", "last"], axis=1)
    spans, clocks = spans.astype("int64"), results["clocks"].to_frame().set_index("rank").reindex(spans.index)
    offsets = clocks["offset_ns"].where(is_true(clocks["is_significant"]), 0).astype("int64")
    moved, where = _moved(spans.sub(offsets, axis=0), clocks["reference"], results["steps"].table)
    shifts = offsets + moved
    known = clocks.loc[(offsets != 0) & (moved == 0), ["offset_ns", "uncertainty_ns"]]
    known = known.sort_values("offset_ns", key=lambda own: -own.abs(), kind="stable")
    each = [
        f"rank {rank} by {text(offset, Unit.NS)} (± {text(uncertainty, Unit.NS)})"
        for rank, offset, uncertainty in known.itertuples()
    ]
    notes = [f"Clocks are corrected by what shared collectives tell of them: {named(each)}."] if each else []
    if apart := moved.index[moved != 0].tolist():
        notes.append(
            f"The ranks' clocks do not agree: {numbered('rank', apart)} {'is' if len(apart) == 1 else 'are'} drawn "
            f"with {where} at the same place as the others'. Compare lengths, not moments."
        )
    if not notes and len(spans) > 1:
        hosts = results["ranks"].to_frame()["host"].nunique()
        note = f"Times are as the clocks of {hosts} hosts recorded them; they may differ from each other."
        notes.append(note if hosts > 1 else "All ranks on one clock, as recorded.")
    zero_ns = int((spans["first"] - shifts).min()) if len(spans) else 0
    return Clock({int(rank): int(shift) for rank, shift in shifts.items()}, zero_ns, " ".join(notes))


def _moved(spans: pd.DataFrame, reference: pd.Series, steps: pd.DataFrame) -> tuple[pd.Series, str]:
    """What is further taken from the times of ranks that nothing ties to the most, and where they meet those."""
    moved, where = pd.Series(0, index=spans.index), "its first operation"
    # Ranks whose clocks shared collectives tie together; each of the others by itself.
    tied = reference.astype("Float64").fillna(-1.0 - pd.Series(range(len(spans)), index=spans.index))
    groups = sorted(list(ranks) for ranks in spans.groupby(tied).groups.values())
    if len(groups) < 2:
        return moved, where
    anchor, starts = max(groups, key=len), spans["first"]
    # They begin the first step that all ranks have together.
    held = steps.dropna(subset=["start_ns", "step"])
    shared = [step for step, own in held.groupby("step") if own["rank"].nunique() == len(spans)]
    if shared:
        where, held = f"the start of step {shared[0]}", held[held["step"] == shared[0]].set_index("rank")
        starts = held["start_ns"].astype("int64").reindex(spans.index)
    begin, end = spans.loc[anchor, "first"].min(), spans.loc[anchor, "last"].max()
    for group in groups:
        first, last = spans.loc[group, "first"].min(), spans.loc[group, "last"].max()
        overlap = min(last, end) - max(first, begin)
        if group is not anchor and overlap < SHARE * min(last - first, end - begin):
            moved[group] = int(starts[group].min() - starts[anchor].min())
    return moved, where
