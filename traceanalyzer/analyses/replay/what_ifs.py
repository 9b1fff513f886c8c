"""What the job would gain if one thing were different: the table that stands in every report."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, percent
from traceanalyzer.analyses.names import WhatIfsColumn
from traceanalyzer.analyses.replay.change import (
    ALONE,
    EVEN,
    FASTEST,
    HIDDEN,
    IDEAL,
    PEERS,
    UNRECORDED,
    Change,
)
from traceanalyzer.analyses.replay.gains import Engine
from traceanalyzer.analyses.replay.present import can_be_asked
from traceanalyzer.analyses.replay.replay import Replay, gains_of
from traceanalyzer.meaning.columns import Adds, Column

MOST_RANKS = 64
"""Of more ranks no row each is computed."""


@dataclass(frozen=True, slots=True, repr=False)
class WhatIfs(Result[WhatIfsColumn]):
    """One row for each change to the job, those that gain most first."""

    title: ClassVar[str] = "What if"
    keys: ClassVar[tuple[str, ...]] = ("change", "rank")
    columns: ClassVar[Mapping[str, Column]] = {
        "change": Column.text(
            "What is different; `rank as its peers` is one rank's compute, copies and host work as long as on the "
            "ranks that do the same (absent where no other does)."
        ),
        "option": Column.text("The same, as `analyze-traces what-if` takes it.", is_secondary=True),
        "rank": Column.ident("The rank that is changed; absent for all.", absent="all"),
        "before_ns": Column.time(
            "Mean length of the job's complete steps, of the capture without any, as recorded: from when the "
            "last rank began a step to when the last began the next.",
            adds=Adds.DERIVED,
        ),
        "after_ns": Column.time("The same, replayed with the change.", adds=Adds.DERIVED),
        "gain_ns": Column.time("Before − after; never negative.", adds=Adds.DERIVED),
        "gain_pct": Column.share("100 · gain / before."),
        "unprofiled_ns": Column.time(
            "The step without the change and without what recording takes the hosts: an estimated 3.2 µs for each "
            "operator and call that the PyTorch profiler wrote down; absent for other profilers.",
            adds=Adds.DERIVED,
        ),
        "unprofiled_gain_ns": Column.time("What the change gains of that step.", adds=Adds.DERIVED),
        "error_ns": Column.time(
            "By how much the replay without a change misses the recording.",
            adds=Adds.DERIVED,
            label="replay is off by",
        ),
        "error_pct": Column.share("100 · error / before."),
        "unmatched_ns": Column.time(
            "Time a rank and step in communication calls whose partners are not known: waits in them stay.",
            adds=Adds.DERIVED,
        ),
        "is_bound": Column.flag(
            "The error, or that time, is above 3 % of the step, or a rank's capture lacks its host: the gain is a "
            "bound, no forecast.",
            label="only a bound",
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        gain = (table["before_ns"] - table["after_ns"]).clip(lower=0)
        return self._with(
            table,
            {
                "gain_ns": gain,
                "gain_pct": percent(gain, table["before_ns"]),
                "error_pct": percent(table["error_ns"], table["before_ns"]),
            },
        )


STANDARD: Mapping[Change, str] = MappingProxyType(
    {
        Change("waits"): "no waits for other ranks",
        Change("comm"): "transfers take no time",
        Change("comm", HIDDEN): "transfers hidden behind compute",
        Change("copy"): "copies take no time",
        Change("host"): "hosts take no time",
        Change("host", FASTEST): "hosts as fast as the fastest",
        Change("sync"): "no blocking of hosts by the GPU",
        Change("data"): "data ready",
        UNRECORDED: "without the profiler (estimate)",
        Change("compute", ALONE): "kernels as fast as without communication beside them",
        Change("compute", EVEN): "compute even over ranks",
        Change("stage", IDEAL): "pipelines with no more bubble than their schedule's",
    }
)
"""Changes to the whole job that every report answers."""

AS_PEERS = "rank as its peers"


def across(_parts: Mapping[int, pd.DataFrame], replay: Replay) -> WhatIfs:
    """Replay the standard changes, and every rank as its peers; only what the job has, and what is known of it."""
    engine = replay.engine
    scenarios = [] if engine is None else [each for each in _standard(engine) if can_be_asked(engine, each)]
    gains = gains_of(replay, [(change,) for change in scenarios]) or []
    rows = [
        {
            "change": STANDARD.get(change, AS_PEERS),
            "option": f"--{change.part} {str(change).removeprefix(change.part).strip()}",
            "rank": min(change.ranks) if change.ranks else None,
            "before_ns": gain.before_ns,
            "after_ns": gain.after_ns,
            "unprofiled_ns": gain.unprofiled_ns[0] if gain.unprofiled_ns else None,
            "unprofiled_gain_ns": gain.unprofiled_gain_ns,
            "error_ns": gain.error_ns,
            "unmatched_ns": gain.unmatched_ns,
            "is_bound": gain.is_bound,
        }
        for change, gain in zip(scenarios, gains, strict=False)
    ]
    columns = (
        "change", "option", "rank", "before_ns", "after_ns", "unprofiled_ns", "unprofiled_gain_ns", "error_ns",
        "unmatched_ns", "is_bound",
    )  # fmt: skip
    types = {**dict.fromkeys(columns[2:-1], "Int64"), "is_bound": "boolean"}
    table = pd.DataFrame(rows, columns=list(columns)).astype(types)
    return WhatIfs(table.sort_values("after_ns", kind="stable", ignore_index=True))


def _standard(engine: Engine) -> list[Change]:
    ranks = engine.job.nodes if len(engine.job.nodes) <= MOST_RANKS else ()
    to_all = [change for change in STANDARD if engine.has_cost_of_recording or change != UNRECORDED]
    return [*to_all, *(Change("rank", PEERS, frozenset({rank})) for rank in ranks)]
