"""Lateness that belongs together: which ranks, in which steps, by what, what it costs the others and what it gains."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from traceanalyzer.analyses.base import Result, percent
from traceanalyzer.analyses.blame.copies_beside import with_excess_of_copies
from traceanalyzer.analyses.blame.episode_bounds import at_least_its_gain, bounds
from traceanalyzer.analyses.blame.episode_gains import gains, mended_in
from traceanalyzer.analyses.blame.episode_rows import row_of
from traceanalyzer.analyses.blame.free_running import awaited
from traceanalyzer.analyses.blame.hidden_hosts import with_hidden_hosts
from traceanalyzer.analyses.blame.host_paces import without_names_of_pace
from traceanalyzer.analyses.blame.jitter import without_hardly_any
from traceanalyzer.analyses.blame.late_together import grouped, of_all_groups
from traceanalyzer.analyses.blame.lateness import cells
from traceanalyzer.analyses.blame.naming import named
from traceanalyzer.analyses.blame.overlapping_compute import without_overlapping
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.blame.rank_sets import set_of
from traceanalyzer.analyses.blame.roles import with_roles, without_own_collectives
from traceanalyzer.analyses.blame.slower_calls import SlowerCalls
from traceanalyzer.analyses.blame.slower_gpus import told_apart, with_steps_before
from traceanalyzer.analyses.blame.stage_speeds import with_slower_ns
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.blame.together import together
from traceanalyzer.analyses.blame.transfers import TRANSFER, groups_of_slow_links, transfers
from traceanalyzer.analyses.blame.what_ran import WhatRan
from traceanalyzer.analyses.blame.whole_captures import as_whole_captures
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.jobs import jobs_of, met_ranks
from traceanalyzer.analyses.communication.members import Members
from traceanalyzer.analyses.names import EpisodesColumn
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.phases.exposed_calls import ExposedCalls
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.time.headline import shared_steps
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.meaning.columns import Adds, Column, Written
from traceanalyzer.meaning.vocabulary import IDLE_CAUSES
from traceanalyzer.model.tables import only, under_each_other, without_rows

WORTH_PCT = 1.0
"""Of a step: what mending gains. Less is in the table alone."""


@dataclass(frozen=True, slots=True, repr=False)
class Episodes(Result[EpisodesColumn]):
    """One row for each episode, costliest first."""

    worth_pct: float = WORTH_PCT
    """The same as a user sets it: whoever speaks of episodes asks for it here (`late_gain_pct`)."""

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
        "most_numbers": Column.text(
            "Of those steps the fewest that hold nine tenths of the excess; absent where that takes more than half."
        ),
        "steps": Column.count("How many steps were compared.", adds=Adds.NONE),
        "is_in_every_step": Column.flag(
            "It happens in every complete step; of a single one or none, in every step that was compared."
        ),
        "cause": Column.text(
            "The part of their time that exceeds their peers': compute, copies, transfer, or idle by cause "
            f"({', '.join(cause.key for cause in IDLE_CAUSES)})."
        ),
        "what": Column.text(
            "What `name` is of: operator, kernel, copy, collective, doing (of the host), range; absent without."
        ),
        "name": Column.text(
            "What takes most longer than on the peers; absent when nothing explains half of the excess.",
            written=Written.KERNEL,
        ),
        "same_work_ratio": Column.number(
            "How many times as long as on the peers the same kernels take (as many, of as many blocks and the same "
            "shapes), where these make most of the excess; absent elsewhere."
        ),
        "excess_ns": Column.time(
            "What they need more than their peers' median: the median over its ranks, the mean over its complete steps "
            "(over all, where none is complete).",
            adds=Adds.DERIVED,
        ),
        "own_ns": Column.time("Their time in that part, a step of the episode.", adds=Adds.DERIVED),
        "peers_ns": Column.time(
            "The peers' median of the same; of transfers what sister groups would take for them, of a stage whose GPU "
            "is slower what it would take as fast as others run the same kernels.",
            adds=Adds.DERIVED,
        ),
        "worst_rank": Column.ident(
            "Of several that are late together the one that needs most more, clearly; absent where they need alike."
        ),
        "worst_ns": Column.time("Its time in that part.", adds=Adds.DERIVED),
        "cost_ns": Column.time(
            "What the ranks that wait do wait for it, a step of the episode: never more than they wait.",
            adds=Adds.DERIVED,
        ),
        "waiting_ranks": Column.count("Ranks that wait.", adds=Adds.NONE),
        "most_waiting_rank": Column.ident("The one that waits most in those steps."),
        "wait_ns": Column.time(
            "What that one waits in those steps, for whomever; absent where waits cannot be told from transfers.",
            adds=Adds.DERIVED,
        ),
        "collective": Column.text(
            "The collective in which they wait most in those steps while no compute runs; where waits cannot be told "
            "from transfers, all of its time counts.",
            written=Written.COLLECTIVE,
        ),
        "step_ns": Column.time("Mean length of the steps that were compared.", adds=Adds.DERIVED),
        "gain_ns": Column.time(
            "What mending it gains of a mean complete step, of the capture without any: the job replayed with these "
            "ranks' part as their peers'; without a replay, a bound. Of a host whose data is an episode of its own, "
            "less that one's. Absent when no complete step has it.",
            adds=Adds.DERIVED,
        ),
        "what_if": Column.text(
            "The changes whose replay gives the gain, as `ta.what_if` takes them; absent without one.",
            is_secondary=True,
        ),
        "gain_error_ns": Column.time(
            "By how much the replay without a change misses the recording; absent without a replay.", adds=Adds.DERIVED
        ),
        "gain_is_bound": Column.flag(
            "The gain is the most that can be won: no replay, or one that leaves over 3 % of a step unexplained."
        ),
        "unprofiled_gain_ns": Column.time(
            "The gain without what recording takes the hosts, an estimate (see what_ifs); absent where the gain is a "
            "bound, and for other profilers than PyTorch's.",
            adds=Adds.DERIVED,
        ),
        "gain_is_of_capture": Column.flag("No step is complete on all ranks: the gain is of all that was recorded."),
        "together": Column.ident(
            "Episodes of the same number hide each other: mending one alone wins less than it does once the others are "
            "mended. Absent for one that hides nothing and that nothing hides."
        ),
        "place_in_set": Column.count(
            "Among those: first what gains most, then what gains most after that.", adds=Adds.NONE
        ),
        "then_gain_ns": Column.time(
            "What it gains once those before it are mended; without what recording takes the hosts, where known.",
            adds=Adds.DERIVED,
        ),
        "joint_gain_ns": Column.time("What mending all of them gains of a mean step.", adds=Adds.DERIVED),
        "joint_unprofiled_gain_ns": Column.time(
            "The same without what recording takes the hosts, an estimate.", adds=Adds.DERIVED
        ),
        "bound_ns": Column.time(
            "The longest own step less the longest without the excess: the mean over the complete steps, or the sum "
            "over the capture's.",
            adds=Adds.DERIVED,
        ),
        "cost_pct": Column.share("100 · cost / step."),
        "own_host_ns": Column.time(
            "What launching a step takes their hosts: the least of them, each its median; absent without steps.",
            adds=Adds.DERIVED,
        ),
        "peers_host_ns": Column.time("The same of the others: the most of them.", adds=Adds.DERIVED),
        "apart_host_ns": Column.time(
            "What a host needs to be later than hosts are here: 1.1 times the most of the others, three deviations "
            "beyond their median, and, of few others, what hosts of healthy jobs differ by (1.73 times what the only "
            "other one needs: of a hundred such jobs one needs more); of hosts that launch 1.15 times as many "
            "operations only the first.",
            adds=Adds.DERIVED,
            is_secondary=True,
        ),
    }

    def _derived(self, table: pd.DataFrame) -> pd.DataFrame:
        return self._with(table, {"cost_pct": percent(table["cost_ns"], table["step_ns"])})


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
    operators: Operators,
    replay: Replay,
    ranks: Ranks,
) -> Episodes:
    """Find the rank-steps that need more than their peers', and put together what belongs together."""
    empty = Episodes(without_rows(Episodes.columns))
    if step_needs.table.empty or step_needs.table["rank"].nunique() < 2:
        return empty
    work = under_each_other([what_ran.table, transfers(slower_calls.table)])
    linked = groups_of_slow_links(slower_calls.table)
    meeting = replay.engine.job.meetings.together() if replay.engine else ()
    job = step_needs.table["rank"].map(jobs_of(members.table, step_needs.table["rank"].unique(), meeting))
    met = met_ranks(members.table, meeting)
    calls = only(call_waits.table, ["rank", "call", "collective", "waits_for"]).merge(
        exposed_calls.table, on=["rank", "call"]
    )
    tables = []
    for number, (_, own) in enumerate(step_needs.table.groupby(job)):
        if own["rank"].nunique() < 2:  # nobody else waits for it
            continue
        needs = without_own_collectives(with_roles(own, replay, ranks, call_waits, operators), slower_calls.table)
        table = _of_job(needs, work, calls, steps.table, operators.table, places, replay, linked, met)
        if len(table):
            tables.append(table.assign(job=number))
    if not tables:
        return empty
    table = pd.concat(tables).sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    table = table.assign(episode=range(len(table)))
    table["together"] = table.groupby(["job", "together"])["episode"].transform("min").astype("Int64")
    texts = {name: table[name].map(_text) for name in ("ranks", "numbers", "most_numbers")}
    return Episodes(only(table.assign(**texts), [name for name in Episodes.columns if name != "cost_pct"]))


def _of_job(
    needs: pd.DataFrame,
    work: pd.DataFrame,
    calls: pd.DataFrame,
    steps: pd.DataFrame,
    operators: pd.DataFrame,
    places: Places,
    replay: Replay,
    linked: Mapping[frozenset[int], tuple[frozenset[int], ...]],
    met: frozenset[int],
) -> pd.DataFrame:
    """The episodes of ranks that communicate with each other: nobody else waits for them.

    Nor is anybody known to wait for, or with, a rank none of whose calls is known to be answered (`met`).
    """
    needs = needs[needs["rank"].isin(met)]
    if needs["rank"].nunique() < 2:
        return pd.DataFrame()
    needs, work = as_whole_captures(needs, work)
    late = with_excess_of_copies(with_slower_ns(needs, work), replay)
    own = awaited(without_overlapping(without_hardly_any(cells(late)), late, work), late, calls)
    found = without_names_of_pace(named(own, late, work), late, operators)
    found = with_steps_before(told_apart(found, late, work), late, work)
    found = with_hidden_hosts(found, late, replay)
    found = of_all_groups(found)
    complete = _complete(late, steps, replay)
    rows = [row_of(group, late, calls, complete) for group in grouped(found, complete)]
    if not rows:
        return pd.DataFrame()
    table = pd.DataFrame(rows)
    every = sorted(late["rank"].unique())
    sets = [set_of(own, every, places.places(), places.whole(len(every))) for own in table["ranks"]]
    table = table.assign(set=[each.kind for each in sets], place=[each.name for each in sets])
    table = table.assign(bound_ns=bounds(table, found, late, complete), gain_is_of_capture=not complete)
    table = table.assign(mended_in=mended_in(table, needs, replay), groups=_linked(table, linked))
    return together(at_least_its_gain(table.assign(**gains(table, found, late, replay)), late, complete), replay)


def _linked(
    table: pd.DataFrame, linked: Mapping[frozenset[int], tuple[frozenset[int], ...]]
) -> list[tuple[frozenset[int], ...]]:
    """Of each episode the groups over which its ranks' slow links move data; none of any other."""
    return [
        tuple(group for whose, own in linked.items() if whose & {*ranks} for group in own) if part == TRANSFER else ()
        for part, ranks in zip(table["part"], table["ranks"], strict=True)
    ]


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
