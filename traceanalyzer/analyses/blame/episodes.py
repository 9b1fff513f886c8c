"""Stragglers: which ranks are, in which steps, by what, which change stands for the remedy, and who waits for them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, percent
from traceanalyzer.analyses.blame.excess import cells, named, with_excess
from traceanalyzer.analyses.blame.rank_sets import Places, name_of, with_roles, with_slower_ns
from traceanalyzer.analyses.blame.slow_transfers import (
    TRANSFER,
    SlowerCalls,
    groups_of_slow_links,
    transfers,
)
from traceanalyzer.analyses.blame.step_budget import StepNeeds, WhatRan, host_needs_ns
from traceanalyzer.analyses.breakdown import Headline, Steps, complete_steps, shared_steps
from traceanalyzer.analyses.communication.clocks import Clocks, jobs_of
from traceanalyzer.analyses.communication.waits import CallWaits, Members, Waits
from traceanalyzer.analyses.host.activity import NOTHING
from traceanalyzer.analyses.host.host_names import is_autograd_node, is_framework_range
from traceanalyzer.analyses.intervals import Intervals, overlapping
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.phases import ExposedCalls
from traceanalyzer.analyses.replay.changes import OF_HOSTS, PEERS, Change, Changeable
from traceanalyzer.analyses.replay.critical_path import PathStretches
from traceanalyzer.analyses.replay.replay import Engine, Replay
from traceanalyzer.analyses.statistics import LEAST_PCT, RATIO, SHARE, SIGMAS
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.meaning.columns import Adds, Column, Written, declared
from traceanalyzer.meaning.vocabulary import COMPUTE, COPY, DATA, HOST, IDLE_CAUSES, UNKNOWN
from traceanalyzer.model.tables import array_of, picked, rows_where, table_of, under_each_other, without_rows


def cells_of(row: Mapping[str, Any], found: pd.DataFrame) -> pd.DataFrame:
    """The cells of an episode."""
    name = found["name"].isna() if pd.isna(row["name"]) else found["name"] == row["name"]
    is_own = (found["part"] == row["part"]) & name & found["rank"].isin(row["ranks"])
    return found[is_own & found["step"].isin(row["numbers"] or (-1,))]


# One episode's figures: what its ranks need more, what the others wait, and how late their hosts are.


_HOSTS_DIFFER = 0.15
"""Deviation of the logarithm of the CPU time of a step, where nothing is wrong.

Of the two hosts of 66 recordings of jobs without a fault (two H200s of one machine, PyTorch's profiler) one needs 1.24
times as long as the other (root of the mean square); they differ by more than 1.5 times in four of the 66. Of 55 more
(two H100s of another machine) it is 1.19 times, and more than 1.5 in one.
"""


def cause_of(part: str) -> str:
    """What a part of the time that is longer is called as a cause: `compute`, `copies`, `data`."""
    return "copies" if part == COPY.column else part.removesuffix("_ns")


def is_of_every_host(row: Mapping[str, Any], operators: pd.DataFrame) -> bool:
    """Whether no rank is a straggler: hosts, or loaders, take no longer than the others by more than these differ.

    Of an operator that the others call as often, or of unrecorded code, two runs of the same work are the measure; in
    some steps the rank's own others. A range of PyTorch's own, or a node of autograd, is no name for it: every host is
    in that. Other stages call other operators, so that between those no name tells.
    """
    own, apart, name = row["own_host_ns"], row["apart_host_ns"], row["name"]
    if row["cause"] == DATA.key:
        return bool(row["own_ns"] < row["apart_ns"])
    if row["cause"] != HOST.key or pd.isna(own) or pd.isna(apart):
        return False
    if row["is_beside_stages"]:
        return bool(own < apart)
    is_alike = name is not None and is_called_alike(name, row["ranks"], operators)
    if is_alike and not row["is_in_every_step"]:
        return bool(row["host_times"] < RATIO)
    if is_alike or (name == NOTHING and row["is_in_every_step"]):
        return bool(own < RATIO * row["peers_host_ns"])
    return bool(own < apart) and (name is None or is_framework_range(name) or is_autograd_node(name))


def is_called_alike(name: str, ranks: Collection[int], operators: pd.DataFrame) -> bool:
    """Whether it is an operator that the other ranks call as often, within a fifth."""
    operator, _, _ = name.partition(" of ")
    calls = operators[operators["operator"] == operator].groupby("rank")["calls"].sum()
    is_own = calls.index.isin(ranks)
    if not is_own.any() or is_own.all():
        return False
    return bool(calls[is_own].max() < RATIO * calls[~is_own].median())


def apart_ns(others: pd.Series) -> float:
    """From which time on a host is apart from these by more than chance, each its time for a step.

    Beyond them, and beyond what they differ by: the one that happens to be the slowest is no fault. Of few hosts little
    is known of how they differ: what two hosts of healthy jobs do counts as what one of them tells.
    """
    known = np.log(others[others > 0].to_numpy(dtype=np.float64))
    far = 0.0
    if len(known):
        variance = (_HOSTS_DIFFER**2 + float(((known - known.mean()) ** 2).sum())) / len(known)
        far = float(np.exp(known.mean() + SIGMAS * np.sqrt(variance * (1 + 1 / len(known)))))
    return max(far, RATIO * float(others.max()))


def row_of(group: pd.DataFrame, late: pd.DataFrame, calls: pd.DataFrame, complete: Sequence[int]) -> dict[str, Any]:
    """The columns of `Episodes` for some cells of one part; `late` are all steps of their job."""
    part = str(group["part"].iloc[0])
    numbers = sorted(group["step"].unique())
    is_own = _ranks_and_steps(late).isin(_ranks_and_steps(group))
    own, others = rows_where(late, is_own), rows_where(late, ~is_own & late["step"].isin(numbers))
    peers = rows_where(others, others["peers"].isin(own["peers"]))
    is_of_stages = peers.empty and len(others) > 0
    peers, others = peers if len(peers) else others, others if len(others) else own
    excess_ns = _mean_step(group["excess_ns"], group["step"], complete)
    waited = _waits(others, late)
    cost_ns = min(excess_ns, _mean_step(waited, others["step"], complete))
    own_ns = _mean_step(own[part], own["step"], complete)
    # Of transfers the measure are sister groups, some of which may be as late.
    peers_ns: Any = max(own_ns - excess_ns, 0)
    if part != TRANSFER:
        peers_ns = _mean_step(peers[part], peers["step"], complete) if len(peers) else pd.NA
    same_work_ratio = _times(group)
    is_slow_stage = part == COMPUTE.column and is_of_stages and not pd.isna(same_work_ratio)
    if is_slow_stage:  # other stages compute something else
        peers_ns = round(own_ns / same_work_ratio)
    hosts = host_needs_ns(_of_steps(others, complete))
    if is_of_stages:  # of as many operations
        operations = late.groupby("rank")["operations"].mean()
        hosts *= operations[own["rank"].unique()].mean() / operations[hosts.index]
    own_hosts = host_needs_ns(_of_steps(own, complete))
    usual_hosts = host_needs_ns(rows_where(late, ~is_own & late["rank"].isin(own["rank"])))
    return {
        "ranks": tuple(sorted(map(int, group["rank"].unique()))),
        "is_in_turn": bool(group["is_in_turn"].iloc[0]),
        "numbers": tuple(int(number) for number in numbers if number >= 0),
        "steps": late["step"].nunique(),
        # Of several complete steps in all of these, else in all that were compared.
        "is_in_every_step": {*(complete if len(complete) > 1 else late["step"])} <= {*numbers},
        "cause": cause_of(part),
        "part": part,
        "what": _known(group["what"].iloc[0]),
        "name": _known(group["name"].iloc[0]),
        "same_work_ratio": same_work_ratio,
        "is_slow_stage": is_slow_stage,
        "is_beside_stages": is_of_stages,
        "excess_ns": excess_ns,
        "own_ns": own_ns,
        "peers_ns": peers_ns,
        "cost_ns": cost_ns,
        "wait_ns": _mean_step(others[_EXPOSED[: 3 if part == TRANSFER else 2]].sum(axis=1), others["step"], complete),
        "waiting_ranks": others["rank"].nunique(),
        "most_waiting_rank": int(waited.groupby(others["rank"]).sum().idxmax()),
        "collective": _collective(calls, numbers, set(others["rank"])),
        "step_ns": int((late["end_ns"] - late["begin_ns"]).mean()),
        "own_host_ns": pd.NA if own_hosts.empty else round(own_hosts.min()),
        "peers_host_ns": pd.NA if hosts.empty else round(hosts.max()),
        "apart_host_ns": pd.NA if hosts.empty else round(apart_ns(hosts)),
        "host_times": float((own_hosts / usual_hosts).min()),
        "apart_ns": apart_ns(_of_steps(others, complete).groupby("rank")[part].mean().astype("float64")),
        "total_ns": cost_ns * len(numbers),
    }


_EXPOSED = ["exposed_wait_ns", "exposed_unmatched_ns", "exposed_transfer_ns"]


def _waits(others: pd.DataFrame, late: pd.DataFrame) -> pd.Series:
    """By row of the others what they wait in that step while no compute runs, or in the next, whichever is more.

    What comes after a step's last collective (saving, evaluating) is waited for in the next step's first.
    """
    rows = late.sort_values(["rank", "step"])
    now = rows[_EXPOSED].sum(axis=1)
    following = now.groupby(rows["rank"]).shift(-1, fill_value=0)
    return now.where(now >= following, following).reindex(others.index)


def _ranks_and_steps(table: pd.DataFrame) -> pd.MultiIndex:
    return pd.MultiIndex.from_frame(table[["rank", "step"]])


def _times(group: pd.DataFrame) -> Any:
    """How many times as long the same kernels take; absent where they do not make most of the excess."""
    same = rows_where(group, group["same_ns"].notna())
    if 2 * same["excess_ns"].sum() < group["excess_ns"].sum() or not same["peers_same_ns"].sum():
        return pd.NA
    return float(same["same_ns"].sum() / same["peers_same_ns"].sum())


def _known(name: object) -> str | None:
    return name if isinstance(name, str) else None


def _of_steps(rows: pd.DataFrame, complete: Sequence[int]) -> pd.DataFrame:
    """The rows of complete steps, as all that is said of a step; all of them where none is."""
    held = rows_where(rows, rows["step"].isin(complete))
    return held if len(held) else rows


def _collective(calls: pd.DataFrame, numbers: Sequence[int], ranks: set[int]) -> str | None:
    """Where these ranks wait most."""
    held = rows_where(calls, calls["rank"].isin(ranks) & (calls["step"].isin(numbers) | (max(numbers) < 0)))
    waited = (held["wait_ns"] + held["unmatched_ns"]).astype("int64").groupby(held["collective"].astype("object")).sum()
    return str(waited.idxmax()) if len(waited) else None


def _mean_step(values: pd.Series, step: pd.Series, complete: Sequence[int]) -> int:
    """Mean over the complete steps, or over all without one, of the median over ranks."""
    each = values.astype("float64").groupby(step).median()
    held = each[each.index.isin(complete)]
    return round(float((held if len(held) else each).mean()))


# What mending an episode gains: the job replayed with its ranks' part as their peers', or a bound.


_PART_OF_REPLAY: Mapping[str, Changeable] = {
    "compute_ns": "compute",
    "exposed_copy_ns": "copy",
    "transfer_ns": "comm",
    **dict.fromkeys((cause.column for cause in IDLE_CAUSES if cause is not UNKNOWN), "cpu"),
    DATA.column: "data",
}
"""What the replay makes as fast as on the peers; what is in none of these it cannot change."""


def _in_steps(row: Mapping[str, Any]) -> frozenset[int] | None:
    """The steps that are changed; all where it is in most: work of one may run, or be waited for, in another."""
    is_in_most = row["is_in_every_step"] or len(row["numbers"]) > SHARE * row["steps"]
    return None if is_in_most else frozenset(row["numbers"]) or None


def _changes(
    row: Mapping[str, Any], found: pd.DataFrame, replay: Replay, among: Sequence[frozenset[int]]
) -> tuple[Change, ...]:
    """What was longer as on the peers; of slow links among these groups. None where the replay cannot make it.

    What peers take in all is left of a loader, of a stage that no other rank has, and of kernels that no peer runs.
    """
    part, engine = _PART_OF_REPLAY.get(row["part"]), replay.engine
    if part is None or (engine is not None and not engine.has_hosts and part in OF_HOSTS):
        return ()
    own = cells_of(row, found)
    peers_ns = 0 if pd.isna(row["peers_ns"]) else row["peers_ns"]
    left = min(1.0, round(float(peers_ns / max(row["own_ns"], 1)), 4))
    as_peers, scaled = (
        tuple(Change(part, to, ranks, steps) for ranks, steps in _where(row, own, among))
        for to in (0.0 if part == "data" else PEERS, left)
    )
    if part == "data" or row["is_slow_stage"]:
        return scaled
    if part == "compute" and engine is not None:
        return as_peers if engine.shortened([as_peers]).sum() >= SHARE * own["excess_ns"].sum() else scaled
    return as_peers


def _where(
    row: Mapping[str, Any], own: pd.DataFrame, among: Sequence[frozenset[int]]
) -> list[tuple[frozenset[int], frozenset[int] | None]]:
    """Ranks, and the steps in which they are late; of ranks in turn those that are late in the same steps.

    Of slow links each group that they move data over: a transfer is all its ranks'.
    """
    if among or not row["is_in_turn"]:
        return [(ranks, _in_steps(row)) for ranks in among or [frozenset(row["ranks"])]]
    together: dict[frozenset[int], set[int]] = {}
    for rank, steps in own.groupby("rank")["step"].unique().items():
        together.setdefault(frozenset(map(int, steps)), set()).add(int(rank))
    return [(frozenset(ranks), steps) for steps, ranks in together.items()]


# Which late ranks and steps are one episode: those of one cause that are late together, or in turn, or slow alike.


def grouped(found: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Cells of one cause and name; of those the ranks that are late in the same steps, or in turn."""
    for _, rows in found.groupby(["part", found["name"].fillna("")], sort=False):
        yield from _straggler_sets(rows)


def _straggler_sets(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Ranks whose steps are mostly the same, late by as much; the rest in turn where there are several, each in others.

    A rank that is late by less than half of what another is may only suffer from it: compute is slower beside calls
    that wait for a straggler.
    """
    steps = {int(rank): frozenset(own) for rank, own in rows.groupby("rank")["step"]}
    late_ns = rows.groupby("rank")["excess_ns"].median().to_dict()
    sets: list[list[int]] = []
    for rank in sorted(steps, key=lambda each: (-len(steps[each]), -late_ns[each], each)):
        home = next(
            (
                ranks
                for ranks in sets
                if _overlap(steps[ranks[0]], steps[rank]) >= SHARE and late_ns[rank] >= SHARE * late_ns[ranks[0]]
            ),
            None,
        )
        if home is None:
            sets.append([rank])
        else:
            home.append(rank)
    total = rows["step"].nunique()
    if len(sets) > 1 and total > 2 and all(2 * len(steps[ranks[0]]) <= total for ranks in sets):
        yield rows.assign(is_in_turn=True)
        return
    for ranks in sets:
        yield rows[rows["rank"].isin(ranks)].assign(is_in_turn=False)


def _overlap(one: frozenset[int], other: frozenset[int]) -> float:
    return len(one & other) / len(one | other)


# Lateness that belongs together: which ranks, in which steps, by what, what it costs the others and what it gains.


class Episodes(Result):
    """One row for each episode, costliest first."""

    title = "Stragglers by steps and cause"
    keys = ("episode",)
    columns = declared(
        episode="Position, by cost.",
        ranks=Column.text("Global ranks that are stragglers together, or alternating."),
        place=Column.text("What they are, such as host b07; of one rank its host, where there are several."),
        is_in_turn="Each of them in other steps.",
        numbers="Steps in which they are; absent for a capture without.",
        steps="How many steps were compared.",
        is_in_every_step="It happens in every complete step; of a single one or none, in every step that was compared.",
        cause="The part of their time that exceeds their peers': compute, copies, transfer, or idle by cause "
        f"({', '.join(cause.key for cause in IDLE_CAUSES)}).",
        what="What `name` is of: operator, kernel, copy, collective, doing (of the host), range; absent without.",
        name="What takes most longer than on the peers; absent when nothing explains half of the excess.",
        same_work_ratio=Column.number(
            "How many times as long as on the peers the same kernels take (as many, of as many blocks and the same "
            "shapes), where these make most of the excess; absent elsewhere."
        ),
        excess_ns=Column.time(
            "What they need more than their peers' median: the median over its ranks, the mean over its complete steps "
            "(over all, where none is complete).",
            adds=Adds.DERIVED,
        ),
        own_ns=Column.time("Their time in that part, a step of the episode.", adds=Adds.DERIVED),
        peers_ns=Column.time(
            "The peers' median of the same; of transfers what sister groups would take for them, of a stage whose GPU "
            "is slower what it would take as fast as others run the same kernels.",
            adds=Adds.DERIVED,
        ),
        cost_ns=Column.time(
            "What the ranks that wait do wait for it, a step of the episode: never more than they wait.",
            adds=Adds.DERIVED,
        ),
        wait_ns=Column.time("What they wait in such a step while no compute runs, for whomever.", adds=Adds.DERIVED),
        waiting_ranks=Column.count("Ranks that wait.", adds=Adds.NONE),
        most_waiting_rank="The one that waits most in those steps.",
        collective="The collective in which they wait most in those steps while no compute runs; where waits are "
        "unknown, all of its time counts.",
        step_ns=Column.time("Mean length of the steps that were compared.", adds=Adds.DERIVED),
        what_if=Column.text(
            "The changes that stand for its remedy, as `ta.what_if` takes them; absent where no replay makes them.",
            is_secondary=True,
        ),
        cost_pct="100 · cost / step.",
        own_host_ns=Column.time(
            "What launching a step takes their hosts: the least of them, each its median; absent without steps.",
            adds=Adds.DERIVED,
        ),
        peers_host_ns=Column.time("The same of the others: the most of them.", adds=Adds.DERIVED),
    )
    stored: ClassVar[tuple[str, ...]] = ("changes",)

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        texts = {name: table[name].map(_text) for name in ("ranks", "numbers")}
        what_if = table["changes"].map(lambda changes: "; ".join(map(str, changes)) or None)
        cost_pct = percent(table["cost_ns"], table["step_ns"])
        return self._with(table, {**texts, "what_if": what_if, "cost_pct": cost_pct})


def across(
    _parts: Mapping[int, pd.DataFrame],
    what_ran: WhatRan,
    step_needs: StepNeeds,
    members: Members,
    slower_calls: SlowerCalls,
    places: Places,
    call_waits: CallWaits,
    exposed_calls: ExposedCalls,
    steps: Steps,
    replay: Replay,
    ranks: Ranks,
    operators: Operators,
) -> Episodes:
    """Find the rank-steps that need more than their peers', and put together what belongs together."""
    empty = Episodes(without_rows([*Episodes.columns, *Episodes.stored]))
    if step_needs.table.empty or step_needs.table["rank"].nunique() < 2:
        return empty
    work = under_each_other([what_ran.table, transfers(slower_calls.table)])
    linked = groups_of_slow_links(slower_calls.table)
    meeting = replay.engine.job.meeting_ranks() if replay.engine else ()
    job = step_needs.table["rank"].map(jobs_of(members.table, step_needs.table["rank"].unique(), meeting))
    calls = call_waits.table[["rank", "call", "collective"]].merge(exposed_calls.table, on=["rank", "call"])
    if replay.engine is not None:
        joins = replay.engine.job.joins
        met = joins[~replay.engine.job.is_of_gpu & joins["waits"]]
        waits = {"wait_ns": met["ready_ns"] - met["start_ns"], "unmatched_ns": 0}
        meetings = met[["rank", "step", "collective"]].assign(**waits)
        calls = under_each_other([calls[list(meetings)], meetings]) if len(meetings) else calls
    tables = []
    for number, (_, own) in enumerate(step_needs.table.groupby(job)):
        if own["rank"].nunique() < 2:  # nobody else waits for it
            continue
        needs = with_roles(own, replay, ranks)
        table = _of_job(needs, work, calls, steps.table, places, replay, linked, operators.table)
        if len(table):
            tables.append(table.assign(job=number))
    if not tables:
        return empty
    table = pd.concat(tables).sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    table = table.assign(episode=range(len(table)))
    derived = ("what_if", "cost_pct")
    return Episodes(table[[name for name in (*Episodes.columns, *Episodes.stored) if name not in derived]])


def _of_job(
    needs: pd.DataFrame,
    work: pd.DataFrame,
    calls: pd.DataFrame,
    steps: pd.DataFrame,
    places: Places,
    replay: Replay,
    linked: Mapping[frozenset[int], tuple[frozenset[int], ...]],
    operators: pd.DataFrame,
) -> pd.DataFrame:
    """The episodes of ranks that communicate with each other: nobody else waits for them."""
    late = with_excess(with_slower_ns(needs, work))
    found = named(cells(late), late, work)
    complete = _complete(late, steps, replay)

    def episode(group: pd.DataFrame) -> dict[str, Any]:
        row = row_of(group, late, calls, complete)
        among = [own for whose, each in linked.items() if whose & {*row["ranks"]} for own in each]
        return {**row, "changes": _changes(row, found, replay, among if row["part"] == TRANSFER else ())}

    rows = [row for row in map(episode, grouped(found)) if not is_of_every_host(row, operators)]
    if replay.engine is not None:
        rows = _that_save(rows, complete, replay.engine)
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    every = sorted(late["rank"].unique())
    known, whole = places.places(), places.whole(len(every))
    return table.assign(place=[name_of(own, every, known, whole) for own in table["ranks"]])


def _that_save(rows: Sequence[dict[str, Any]], complete: Sequence[int], engine: Engine) -> list[dict[str, Any]]:
    """The episodes without which a step is shorter, alone or once the others are fixed; those of which it is not known.

    That is so of what the replay cannot change, and of what no complete step holds.
    """
    known = [row["changes"] for row in rows if row["changes"]]
    others = [[each for each in known if each is not own] for own in known]
    together = [tuple(each for changes in held for each in changes) for held in (known, *others)]
    before, after, *steps = _steps(engine, [(), *together[:1], *known, *together[1:]])
    alone, last = np.split(np.array(steps), 2)
    saves = iter(np.maximum(before - alone, last - after) >= LEAST_PCT / 100 * before)
    found = []
    for row in rows:
        is_held = not complete or not {*complete}.isdisjoint(row["numbers"])
        if not row["changes"] or next(saves):
            found.append(row)
        elif not is_held:
            found.append({**row, "changes": ()})
    return found


def _steps(engine: Engine, scenarios: Sequence[tuple[Change, ...]]) -> np.ndarray:
    """Mean step without the profiler after each set of changes."""
    mean_ns: np.ndarray = engine.steps([(*changes, *engine.costs[0]) for changes in scenarios]).mean(axis=0)
    return mean_ns


def _text(numbers: Sequence[int]) -> str | None:
    return ",".join(map(str, numbers)) or None


def _complete(late: pd.DataFrame, steps: pd.DataFrame, replay: Replay) -> list[int]:
    """Steps that are complete on every rank that is compared; none where a replay is of the whole capture.

    That is so where one rank's file is cut off: its steps are complete nowhere, and it is compared with nobody.
    """
    if replay.engine is not None and not replay.engine.windows.has_steps:
        return []
    complete = complete_steps(steps)
    complete = complete[complete["rank"].isin(late["rank"])] if len(complete) else complete
    return shared_steps(complete, set(late["rank"])) or []


# Which ranks the others wait for, what it costs them, and why.


class Stragglers(Result):
    """One row for each rank that others wait for, costliest first.

    Each moment of a wait counts for the rank that the critical path is on; where there is no graph, for the last rank
    of the call. Why a rank is a straggler is what `episodes` says of it.
    """

    title = "Stragglers"
    keys = ("rank",)
    is_of_one_run = True
    columns = declared(
        rank="Global rank that is waited for.",
        window_ns="Mean length of a step's GPU window over ranks and steps, or of the capture's.",
        cost_max_ns=Column.time(
            "Exposed wait for it a step (or in the capture), of the rank that waits most.", adds=Adds.EXTREME
        ),
        cost_max_rank="That rank.",
        cost_pct="100 · largest cost / window.",
        waiting_ranks=Column.count("Ranks that wait for it.", is_compared=False),
        total_wait_ns="Sum over ranks and steps of the exposed wait for it.",
        collective="The collective in which they wait most.",
        episode="The costliest episode (see episodes) that the rank is part of; absent when it is in none: it needs no "
            "more than its peers (of a pipeline those of its stage), beyond jitter, or than every host does.",
        cause="What its ranks need more of: that episode's cause.",
        cause_ns=Column.time("What they need more, a step of it: that episode's excess.", adds=Adds.DERIVED),
        operation=Column.text("What takes most longer in it; absent when nothing explains half of it.",
                                 written=Written.KERNEL),
    )  # fmt: skip

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"cost_pct": percent(table["cost_max_ns"], table["window_ns"])})


def stragglers(
    _parts: Mapping[int, pd.DataFrame],
    waits: Waits,
    path_stretches: PathStretches,
    members: Members,
    clocks: Clocks,
    episodes: Episodes,
    headline: Headline,
) -> Stragglers:
    """Put every exposed wait, moment by moment, to the rank that the critical path is on meanwhile."""
    pieces = _on_path(waits.table, path_stretches.table, clocks.offsets_ns())
    if pieces.empty:
        return Stragglers(without_rows([name for name in Stragglers.columns if name != "cost_pct"]))
    names = members.table.drop_duplicates(["instance", "rank"]).set_index(["instance", "rank"])["collective"]
    # What the waiting rank calls it: what is a send to one rank is a receive to the other.
    collective = names.reindex(pd.MultiIndex.from_frame(pieces[["instance", "rank"]])).to_numpy()
    costs = _costs(pieces.assign(collective=collective), headline.table)
    table = costs.join(_of_episodes(episodes.table)).reset_index(names="rank")
    return Stragglers(table.sort_values("cost_max_ns", ascending=False, kind="stable", ignore_index=True))


def _on_path(waits: pd.DataFrame, path: pd.DataFrame, offsets: Mapping[int, int]) -> pd.DataFrame:
    """The waits, cut by the ranks that the critical path is on: `rank`, `instance`, `root_rank`, `wait_ns`.

    Args:
        waits: table of `Waits`, on each rank's own clock.
        path: table of `PathStretches`, on the common clock.
        offsets: by how much each rank's clock is ahead.
    """
    ahead = waits["rank"].map(offsets).fillna(0).to_numpy(dtype=np.int64)
    starts, ends = (array_of(waits, name) - ahead for name in ("start_ns", "end_ns"))
    if path.empty:
        pieces = waits.assign(root_rank=waits["waits_for"], wait_ns=ends - starts)
    else:
        ranks = array_of(path, "rank")
        first = np.flatnonzero(np.append(True, ranks[1:] != ranks[:-1]))
        begins = array_of(path, "start_ns")[first]
        stays = Intervals(begins, np.append(begins[1:], array_of(path, "end_ns")[-1]))
        row, stay = overlapping(starts, ends, stays)
        shared_ns = np.minimum(ends[row], stays.ends[stay]) - np.maximum(starts[row], stays.starts[stay])
        pieces = picked(waits, row).assign(root_rank=ranks[first][stay], wait_ns=shared_ns)
    return pieces[pieces["root_rank"].notna() & (pieces["root_rank"] != pieces["rank"])]


def _costs(pieces: pd.DataFrame, headline: pd.DataFrame) -> pd.DataFrame:
    """Columns of the cost, indexed by the rank that is waited for."""
    steps = headline["steps"].fillna(1).max()
    waited = pieces.groupby(["root_rank", "rank"])["wait_ns"].sum() / steps
    by_root = waited.groupby("root_rank")
    most = pieces.groupby(["root_rank", "collective"])["wait_ns"].sum().reset_index("collective")
    return table_of(
        {
            "window_ns": round(headline["window_ns"].mean() / steps),
            "cost_max_ns": by_root.max().round().astype("int64"),
            "cost_max_rank": by_root.idxmax().map(lambda pair: pair[1]).astype("int64"),
            "waiting_ranks": by_root.size(),
            "total_wait_ns": pieces.groupby("root_rank")["wait_ns"].sum(),
            "collective": most.sort_values("wait_ns").groupby("root_rank")["collective"].last(),
        }
    )


def _of_episodes(episodes: pd.DataFrame) -> pd.DataFrame:
    """For each rank the costliest episode that it is part of."""
    names = {"episode": "episode", "cause": "cause", "excess_ns": "cause_ns", "name": "operation"}
    own = episodes[["ranks", *names]].explode("ranks").drop_duplicates("ranks").set_index("ranks")
    own = own.astype({"episode": "Int64", "excess_ns": "Int64", "cause": "object"})
    return own.set_axis(own.index.astype("int64")).rename(columns=names)
