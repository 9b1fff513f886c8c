"""Expected, not measured: what collectives cost by ring and tree, and a step on more ranks or with other sharding."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.communication.collectives import bus_factors
from traceanalyzer.analyses.replay.changes import RUN_TO_RUN, Change
from traceanalyzer.analyses.replay.replay import Engine, Replay
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.job.model_state import Model, needs

NEEDED = ("replay", "collectives", "ranks", "headline")
"""Results that a projection stands on."""

ASSUMPTIONS = (
    "Each rank does the work that it was recorded with (weak scaling): compute, launches and sizes stay.",
    "All ranks share the model's state or replicate it; waits for stragglers stay as recorded.",
    "Low end: bandwidth alone, all-reduces by the shorter one of ring and tree.",
    "High end: a ring, with what the smallest recorded calls take beyond bandwidth at each hop.",
)


@dataclass(frozen=True, slots=True)
class Links:
    """What the recorded transfers say of the links: bus bandwidth, and latency of a hop."""

    gbps: float
    hop_ns: float

    def ring_ns(self, collective: str, size_bytes: float, ranks: int) -> float:
        """Time of a call: bytes over the bus, and a hop for each of the ring's steps."""
        factor = float(bus_factors(pd.Series([collective]), pd.Series([ranks])).iloc[0])
        return factor * size_bytes / self.gbps + _hops(collective, ranks) * self.hop_ns

    def tree_ns(self, size_bytes: float, ranks: int) -> float:
        """Time of an all-reduce: up and down a binary tree, its bytes twice over the bus."""
        return 2 * size_bytes / self.gbps + 2 * math.ceil(math.log2(ranks)) * self.hop_ns

    def expected_ns(self, collective: str, size_bytes: float, ranks: int) -> float:
        """The shorter one of those that the collective has."""
        ring_ns = self.ring_ns(collective, size_bytes, ranks)
        return min(ring_ns, self.tree_ns(size_bytes, ranks)) if collective == "all_reduce" else ring_ns


def _hops(collective: str, ranks: int) -> int:
    return (2 if collective == "all_reduce" else 1) * (ranks - 1)


def recorded_calls(results: Mapping[str, Result]) -> tuple[pd.DataFrame, int]:
    """Mean calls by collective and class of size, over ranks, and the ranks of the job.

    Raises:
        InputError: nothing is known of transfers, or they are not all of the whole job.
    """
    held = results["collectives"].to_frame()
    held = held[held["why_not_split"].isna() & held["size_bytes"].notna() & held["busbw_gbps"].notna()]
    if held.empty:
        raise InputError("no transfer of a collective is known: a projection needs traces of all ranks of a group")
    world = int(results["ranks"].to_frame()["world_size"].max())
    if set(held["group_size"]) != {world} or (held["collective"] == "send_recv").any():
        raise InputError(
            "only a job whose collectives are of all its ranks (data parallelism, sharded or not) can be projected: "
            "this one has smaller groups, or sends and receives"
        )
    sums = held.groupby(["collective", "size_class"], as_index=False)[["calls", "size_bytes", "transfer_ns"]].sum()
    best = held.groupby(["collective", "size_class"])["busbw_gbps"].max().to_numpy(dtype=float)
    numbers = {name: sums[name].to_numpy(dtype=float) for name in ("calls", "size_bytes", "transfer_ns")}
    return sums[["collective", "size_class"]].assign(
        calls=sums["calls"],
        call_bytes=numbers["size_bytes"] / numbers["calls"],
        call_ns=numbers["transfer_ns"] / numbers["calls"],
        transfer_ns=numbers["transfer_ns"],
        busbw_gbps=best,
    ), world


def links_of(calls: pd.DataFrame, world: int) -> Links:
    """The best bus bandwidth of any class, and what the smallest call takes beyond it, by hop."""
    bandwidth = Links(float(calls["busbw_gbps"].max()), 0.0)
    small = calls.loc[calls["call_bytes"].idxmin()]
    over_ns = small["call_ns"] - bandwidth.ring_ns(small["collective"], small["call_bytes"], world)
    return replace(bandwidth, hop_ns=max(0.0, float(over_ns)) / _hops(small["collective"], world))


def costs(calls: pd.DataFrame, links: Links, sizes: Sequence[int]) -> pd.DataFrame:
    """A row for each class of calls and number of ranks: `ring_ns` and `tree_ns` of a call, beside the measured one."""
    rows = [
        {
            "collective": row.collective,
            "size_class": row.size_class,
            "call_bytes": round(row.call_bytes),
            "measured_ns": round(row.call_ns),
            "ranks": ranks,
            "ring_ns": round(links.ring_ns(row.collective, row.call_bytes, ranks)),
            "tree_ns": round(links.tree_ns(row.call_bytes, ranks)) if row.collective == "all_reduce" else None,
        }
        for row in calls.itertuples()
        for ranks in sizes
    ]
    return pd.DataFrame(rows).astype({"tree_ns": "Int64"})


def _growth(calls: pd.DataFrame, now: Links, then: Links, world: int, ranks: int, *, by_ring: bool) -> dict[str, float]:
    """How many times as long the transfers of each collective take on so many ranks."""

    def cost_ns(links: Links, row: Any, size: int) -> float:
        cost = links.ring_ns if by_ring else links.expected_ns
        return cost(row.collective, row.call_bytes, size)

    grown = [row.transfer_ns * cost_ns(then, row, ranks) / cost_ns(now, row, world) for row in calls.itertuples()]
    sums = calls.assign(grown_ns=grown).groupby("collective")[["grown_ns", "transfer_ns"]].sum()
    return {str(name): float(row["grown_ns"] / row["transfer_ns"]) for name, row in sums.iterrows()}


@dataclass(frozen=True, slots=True)
class Projection:
    """A measured run carried over to other numbers of ranks and to other sharding.

    Attributes:
        ranks: of the run.
        step_ns: its step, without the profiler where that is known.
        by_ranks: `ranks`, `step_low_ns`, `step_high_ns`, `efficiency_low_pct`, `efficiency_high_pct`.
        by_strategy: the same ranks with the model's state shared otherwise: `strategy`, `state_bytes`, `comm_bytes` of
            a rank and step, `comm_ns`, `step_low_ns` (without it), `step_high_ns` (all exposed); empty without a model.
        collectives: `costs` at each number of ranks.
        links: what they stand on.
        assumptions: what they suppose.
    """

    ranks: int
    step_ns: int
    by_ranks: pd.DataFrame
    by_strategy: pd.DataFrame
    collectives: pd.DataFrame
    links: Links
    assumptions: tuple[str, ...]


def project(
    results: Mapping[str, Result],
    sizes: Sequence[int],
    *,
    model: Model | None = None,
    network_gbps: float | None = None,
) -> Projection:
    """Replay the job with the transfers that more ranks would have.

    Args:
        results: those that are `NEEDED`.
        sizes: numbers of ranks.
        model: for the strategies.
        network_gbps: bus bandwidth between hosts, for sizes beyond one host; without it that of the recorded links.

    Raises:
        UsageError: a size of fewer than two ranks.
        InputError: the job cannot be replayed, or is not of one group.
    """
    if any(size < 2 for size in sizes):
        raise UsageError("a projection is to two ranks or more")
    calls, world = recorded_calls(results)
    links = links_of(calls, world)
    ranks = results["ranks"].to_frame()
    a_host = int(ranks.groupby("host").size().max()) if ranks["host"].notna().all() else world
    replay = results["replay"]
    assert isinstance(replay, Replay)
    if replay.engine is None:
        raise InputError(f"the job cannot be replayed: {replay.why_not}")
    step_ns, without_ns = round(_steps_ns(replay.engine)[0]), round(_steps_ns(replay.engine, Change("comm"))[0])
    rows = []
    for size in sizes:
        far = network_gbps if network_gbps and size > a_host else links.gbps
        corners = (
            _growth(calls, Links(links.gbps, 0), Links(links.gbps, 0), world, size, by_ring=False),
            _growth(calls, links, Links(far, links.hop_ns), world, size, by_ring=True),
        )
        ends = [
            _steps_ns(replay.engine, *(Change("collective", factor, name=name) for name, factor in grown.items()))
            for grown in corners
        ]
        off = RUN_TO_RUN if replay.engine.has_cost_of_recording else 0
        low, high = round(np.min(ends) * (1 - off)), round(np.max(ends) * (1 + off))
        rows.append(
            {
                "ranks": size,
                "step_low_ns": low,
                "step_high_ns": high,
                "efficiency_low_pct": 100 * step_ns / high,
                "efficiency_high_pct": min(100.0, 100 * step_ns / low),
            }
        )
    hop = f"{links.hop_ns / 1e3:.1f} µs a hop" if links.hop_ns else "no latency: no small collective was recorded"
    said = [*ASSUMPTIONS, f"Links: {links.gbps:.0f} GB/s bus bandwidth, {hop}."]
    if max(sizes) > a_host:
        between = f"{network_gbps:.0f} GB/s between them" if network_gbps else "as fast between them as within one"
        said.append(f"More than {a_host} ranks are on several hosts: {between}.")
    strategies = _strategies(model, links, world, without_ns) if model else pd.DataFrame()
    table = costs(calls, links, [world, *(size for size in sizes if size != world)])
    return Projection(world, step_ns, pd.DataFrame(rows), strategies, table, links, tuple(said))


def _steps_ns(engine: Engine, *changes: Change) -> np.ndarray:
    """The mean step after changes, without the profiler by its cost."""
    steps: np.ndarray = engine.steps([(*changes, *cost) for cost in engine.costs]).mean(axis=0)
    return steps


def _strategies(model: Model, links: Links, ranks: int, without_ns: int) -> pd.DataFrame:
    """Each way to share the state: what it holds, what it exchanges, and between which lengths a step then is."""
    rows = []
    for strategy in ("ddp", "zero1", "zero2", "zero3"):
        parameter_bytes = (2 if model.precision == "bf16" else 4) * model.params
        gathers = {"ddp": 0, "zero3": 2}.get(strategy, 1)  # zero1 and zero2 gather what was updated
        reduce_ns = links.ring_ns("all_reduce" if strategy == "ddp" else "reduce_scatter", parameter_bytes, ranks)
        comm_ns = round(reduce_ns + gathers * links.ring_ns("all_gather", parameter_bytes, ranks))
        rows.append(
            {
                "strategy": strategy,
                "state_bytes": needs(replace(model, strategy=strategy, dp=ranks)).state_bytes,
                "comm_bytes": round(max(2, 1 + gathers) * parameter_bytes * (ranks - 1) / ranks),
                "comm_ns": comm_ns,
                "step_low_ns": without_ns,
                "step_high_ns": without_ns + comm_ns,
            }
        )
    return pd.DataFrame(rows)
