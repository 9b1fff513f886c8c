"""Lateness that belongs together: which ranks, in which steps, by what, what it costs the others and what it gains."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent
from traceanalyzer.analyses.blame.episode_gains import cells_of, gains
from traceanalyzer.analyses.blame.lateness import cells, with_excess
from traceanalyzer.analyses.blame.places import places_of
from traceanalyzer.analyses.blame.rank_sets import set_of
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.blame.what_ran import WhatRan
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.groups import Groups
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.time.headline import shared_steps
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.columns import Adds, Column, Written

CAUSES: Mapping[str, str] = {"exposed_copy_ns": "copies"}
"""What a part is called, unless by its own name."""

_ALIKE = 0.6
"""Two ranks are late together when they share this much of the steps in which either is."""

_LEAST_TURNS = 3


class Episodes(Result):
    """One row for each episode, costliest first."""

    title: ClassVar[str] = "Who is late, when and by what"
    keys: ClassVar[tuple[str, ...]] = ("episode",)
    columns: ClassVar[Mapping[str, Column]] = {
        "episode": Column.ident("Position, by cost."),
        "ranks": Column.text("Global ranks that are late together, or in turn."),
        "set": Column.text(
            "What they are: rank, host, hosts, rack, racks, stage (of pipelines), node (a block of 8 neighbours), "
            "group (a process group), device (the same GPU of every host), half, ranks."
        ),
        "place": Column.text("The set by name, such as host b07; of one rank its host, where there are several."),
        "is_in_turn": Column.flag("Each of them in other steps."),
        "numbers": Column.text("Steps in which they are; absent for a capture without."),
        "steps": Column.count("How many steps were compared.", adds=Adds.NONE),
        "is_in_every_step": Column.flag("It happens in every step that was compared."),
        "cause": Column.text(
            "The part of their time that exceeds their peers': compute, copies, transfer, or idle by cause (host, "
            "data, sync, launch, unknown, between_kernels)."
        ),
        "what": Column.text("What `name` is of: operator, kernel, copy, doing (of the host), range; absent without."),
        "name": Column.text(
            "What takes most longer than on the peers; absent when nothing explains half of the excess.",
            written=Written.KERNEL,
        ),
        "excess_ns": Column.time(
            "What they need more than their peers' median: the median over its ranks, the mean over its complete steps "
            "(over all, where none is complete).",
            adds=Adds.DERIVED,
        ),
        "own_ns": Column.time("Their time in that part, a step of the episode.", adds=Adds.DERIVED),
        "peers_ns": Column.time("The peers' median of the same.", adds=Adds.DERIVED),
        "cost_ns": Column.time(
            "What the ranks that wait do wait for it, a step of the episode: never more than they wait.",
            adds=Adds.DERIVED,
        ),
        "waiting_ranks": Column.count("Ranks that wait.", adds=Adds.NONE),
        "most_waiting_rank": Column.ident("The one that waits most in those steps."),
        "collective": Column.text(
            "The collective in which they wait most in those steps; where waits cannot be told from "
            "transfers, the longest.",
            written=Written.COLLECTIVE,
        ),
        "step_ns": Column.time("Mean length of the steps that were compared.", adds=Adds.DERIVED),
        "gain_ns": Column.time(
            "What mending it gains of a mean complete step: the job replayed with these ranks' part as their "
            "peers'; without a replay, a bound. Absent when no complete step has it.",
            adds=Adds.DERIVED,
        ),
        "gain_error_ns": Column.time(
            "By how much the replay without a change misses the recording; absent without a replay.", adds=Adds.DERIVED
        ),
        "gain_is_bound": Column.flag(
            "The gain is the most that can be won: no replay, or one that leaves over 3 % of a step unexplained."
        ),
        "bound_ns": Column.time(
            "The longest own step less the longest without the excess, over the complete steps.", adds=Adds.DERIVED
        ),
        "cost_pct": Column.share("100 · cost / step."),
        "own_host_ns": Column.time(
            "What launching a step takes their hosts: the least of them, each its median; absent without steps.",
            adds=Adds.DERIVED,
        ),
        "peers_host_ns": Column.time("The same of the others: the most of them.", adds=Adds.DERIVED),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(cost_pct=percent(table["cost_ns"], table["step_ns"]))


def across(
    _parts: Mapping[int, pd.DataFrame],
    what_ran: WhatRan,
    step_needs: StepNeeds,
    groups: Groups,
    call_waits: CallWaits,
    steps: Steps,
    ranks: Ranks,
    pipeline: Pipeline,
    replay: Replay,
) -> Episodes:
    """Find the rank-steps that need more than their peers', and put together what belongs together."""
    empty = Episodes(pd.DataFrame(columns=[*Episodes.columns]))
    if step_needs.table.empty or step_needs.table["rank"].nunique() < 2:
        return empty
    late = with_excess(step_needs.table)
    found = cells(late, what_ran.table)
    complete = _complete(late, steps.table)
    rows = [_row(group, late, call_waits.table, complete) for group in _groups(found)]
    if not rows:
        return empty
    table = pd.DataFrame(rows).sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    every = sorted(late["rank"].unique())
    places = places_of(every, ranks.table, groups.table, pipeline.table)
    sets = [set_of(row, every, places) for row in table["ranks"]]
    table = table.assign(set=[each.kind for each in sets], place=[each.name for each in sets])
    table = table.assign(bound_ns=_bounds(table, found, late, steps.table), episode=range(len(table)))
    table = table.assign(**gains(table, found, replay))
    texts = {name: table[name].map(_text) for name in ("ranks", "numbers")}
    return Episodes(table.assign(**texts)[[name for name in Episodes.columns if name != "cost_pct"]])


def _text(numbers: Sequence[int]) -> str | None:
    return ",".join(map(str, numbers)) or None


def _groups(found: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Cells of one cause and name; of those the ranks that are late in the same steps, or in turn."""
    for _, rows in found.groupby(["part", found["name"].fillna("")], sort=False):
        yield from _together(rows)


def _together(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Ranks whose steps are mostly the same; the rest in turn where there are several, each in other steps."""
    steps = {int(rank): frozenset(own) for rank, own in rows.groupby("rank")["step"]}
    sets: list[list[int]] = []
    for rank in sorted(steps, key=lambda each: (-len(steps[each]), each)):
        home = next((ranks for ranks in sets if _overlap(steps[ranks[0]], steps[rank]) >= _ALIKE), None)
        if home is None:
            sets.append([rank])
        else:
            home.append(rank)
    total = rows["step"].nunique()
    if len(sets) > 1 and total >= _LEAST_TURNS and all(2 * len(steps[ranks[0]]) <= total for ranks in sets):
        yield rows.assign(is_in_turn=True)
        return
    for ranks in sets:
        yield rows[rows["rank"].isin(ranks)].assign(is_in_turn=False)


def _overlap(one: frozenset[int], other: frozenset[int]) -> float:
    return len(one & other) / len(one | other)


def _complete(late: pd.DataFrame, steps: pd.DataFrame) -> list[int]:
    """Steps that are complete on every rank that is compared."""
    complete = steps[steps["is_complete"].fillna(value=False).astype(bool)] if len(steps) else steps
    return shared_steps(complete, set(late["rank"])) or []


def _mean_step(values: pd.Series, step: pd.Series, complete: Sequence[int]) -> int:
    """Mean over the complete steps, or over all without one, of the median over ranks."""
    each = values.astype("float64").groupby(step).median()
    held = each[each.index.isin(complete)]
    return round(float((held if len(held) else each).mean()))


def _row(group: pd.DataFrame, late: pd.DataFrame, calls: pd.DataFrame, complete: Sequence[int]) -> dict[str, Any]:
    part = str(group["part"].iloc[0])
    numbers = sorted(group["step"].unique())
    ranks = sorted(group["rank"].unique())
    every = late["step"].nunique()
    is_late = pd.MultiIndex.from_frame(late[["rank", "step"]]).isin(pd.MultiIndex.from_frame(group[["rank", "step"]]))
    own, others = late[is_late], late[~is_late & late["step"].isin(numbers)]
    peers = others[others["peers"].isin(own["peers"])]
    peers = peers if len(peers) else others
    others = others if len(others) else own
    excess_ns = _mean_step(group["excess_ns"], group["step"], complete)
    waited = others[["exposed_wait_ns", "exposed_unmatched_ns", "exposed_transfer_ns"]].sum(axis=1)
    cost_ns = min(excess_ns, _mean_step(waited, others["step"], complete))
    return {
        "ranks": tuple(map(int, ranks)),
        "is_in_turn": bool(group["is_in_turn"].iloc[0]),
        "numbers": tuple(int(number) for number in numbers if number >= 0),
        "steps": every,
        "is_in_every_step": len(numbers) == every,
        "cause": CAUSES.get(part, part.removesuffix("_ns")),
        "part": part,
        "what": _known(group["what"].iloc[0]),
        "name": _known(group["name"].iloc[0]),
        "excess_ns": excess_ns,
        "own_ns": _mean_step(own[part], own["step"], complete),
        "peers_ns": _mean_step(peers[part], peers["step"], complete) if len(peers) else pd.NA,
        "cost_ns": cost_ns,
        "waiting_ranks": others["rank"].nunique(),
        "most_waiting_rank": int(waited.groupby(others["rank"]).sum().idxmax()),
        "collective": _collective(calls, numbers, set(others["rank"])),
        "step_ns": int((late["end_ns"] - late["begin_ns"]).mean()),
        "own_host_ns": _of_hosts(own, "min"),
        "peers_host_ns": _of_hosts(others, "max"),
        "total_ns": cost_ns * len(numbers),
    }


def _known(name: object) -> str | None:
    return name if isinstance(name, str) else None


def _of_hosts(rows: pd.DataFrame, which: str) -> object:
    """The least or the most of the ranks' median host time for a step."""
    known = rows[rows["needed_host_ns"].notna()]
    if known.empty:
        return pd.NA
    return round(float(known["needed_host_ns"].astype("float64").groupby(known["rank"]).median().agg(which)))


def _collective(calls: pd.DataFrame, numbers: Sequence[int], ranks: set[int]) -> str | None:
    """Where these ranks wait most."""
    held = calls[calls["rank"].isin(ranks)] if len(calls) else calls
    held = held[held["step"].isin(numbers)] if len(held) and max(numbers) >= 0 else held
    if held.empty:
        return None
    waited = held["wait_ns"].fillna(held["end_ns"] - held["start_ns"]).astype("int64")
    waited = waited.groupby(held["collective"].astype("object")).sum()
    return str(waited.idxmax()) if len(waited) else None


def _bounds(table: pd.DataFrame, found: pd.DataFrame, late: pd.DataFrame, steps: pd.DataFrame) -> pd.array:
    """For each episode by how much the longest own step is shorter without its excess, over complete steps."""
    numbers = _complete(late, steps) or [-1]
    wide = late.pivot_table(index="step", columns="rank", values="excess_ns")
    waits = late.groupby("step")["exposed_wait_ns"].min()
    bounds = [_bound(row, found, wide, waits, numbers) for row in table.to_dict("records")]
    return pd.array(bounds, dtype="Int64")


def _bound(
    row: Mapping[str, Any], found: pd.DataFrame, wide: pd.DataFrame, waits: pd.Series, numbers: list[int]
) -> Any:
    own = cells_of(row, found)
    own = own[own["step"].isin(numbers)]
    if own.empty:
        return pd.NA
    less = wide.copy()
    for cell in own.itertuples():
        less.loc[cell.step, cell.rank] -= cell.excess_ns
    held = own["step"].unique()
    shorter = (wide.max(axis=1) - less.max(axis=1).clip(lower=0)).loc[held]
    # Where every rank waits, ranks are late at different times of the step: one hides no other.
    gained = np.minimum(shorter + waits.reindex(held), own.groupby("step")["excess_ns"].max().reindex(held))
    return round(float(gained.clip(lower=0).sum()) / len(numbers))
