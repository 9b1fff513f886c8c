"""Uneven work between ranks and steps."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.excess import more_work_ns
from traceanalyzer.analyses.blame.rank_sets import Places, with_roles
from traceanalyzer.analyses.blame.step_budget import KERNEL, OPERATOR, RANGE, StepNeeds, WhatRan
from traceanalyzer.analyses.blame.stragglers import Stragglers
from traceanalyzer.analyses.communication.collectives import Instances
from traceanalyzer.analyses.communication.waits import CallWaits
from traceanalyzer.analyses.grouping import by_step_and_rank, once_of_tables
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.efficiency import Efficiency
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.phases.micro_steps import Iterations
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.changes import EVEN, Change
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.basis import (
    CLEAR_GAIN_PCT,
    Basis,
    Title,
    Won,
    about,
    around,
    gains_nothing,
    has_longer_window,
    mean_steps,
    per_step,
    plain,
    severity,
)
from traceanalyzer.findings.finding import Finding, changed, gained
from traceanalyzer.findings.statistics import Alike, alike, is_beyond_chance
from traceanalyzer.findings.stragglers.stragglers import said, said_with_gain
from traceanalyzer.findings.stragglers.wording import named, own_work
from traceanalyzer.findings.vendor_terms import tools_of
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.meaning.columns import numbers, time_span, time_text
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.vocabulary import COMPUTE, IDLE_CAUSES, first_upper, numbered, with_article
from traceanalyzer.model.tables import rows_where

# Compute that differs between ranks from step to step: no rank is late, but each step lasts as long as its longest.


UNEVEN_PCT = 5.0
"""Of a step, by which the longest compute of a step exceeds the mean, on average over steps."""

IMBALANCE_PCT = 10.0
"""A rank that computes longer than the mean by this share of a step is worth a finding."""

_LASTING = 0.75
_HALF = 0.5


LEAST_OF_WORK_PCT = 1.0
"""Of a step: both of these where the ranks run more or larger kernels by fact."""


def uneven_steps(
    headline: Headline,
    steps: Steps,
    step_needs: StepNeeds,
    what_ran: WhatRan,
    episodes: Episodes,
    pipeline: Pipeline,
    replay: Replay,
    *,
    uneven_steps_pct: float = UNEVEN_PCT,
    uneven_work_pct: float = LEAST_OF_WORK_PCT,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
    imbalance_pct: float = IMBALANCE_PCT,
) -> list[Finding]:
    """Ranks compute unevenly, each longest in other steps, and even compute gains over 3 % of a step.

    Where they run more or larger kernels by fact, 1 % of a step is enough.

    A rank that is longest throughout, ranks late by compute in some steps, and stages of a pipeline are told otherwise.
    """
    if not len(headline) or len(pipeline) or any(row["cause"] == "compute" for row in said(episodes)):
        return []
    basis = Basis.of(headline, steps)
    wide = compute_by_step(step_needs)
    if wide.shape[0] < 2 or wide.shape[1] < 2:
        return []
    beyond_ns = float((wide.max(axis=1) - wide.mean(axis=1)).mean())
    step_ns = basis.step_ns
    beyond_pct = 100 * beyond_ns / max(step_ns, 1)
    if beyond_pct < uneven_work_pct or _is_one_ranks(wide, imbalance_pct / 100 * step_ns):
        return []
    gain = gain_of(replay, Change("compute", EVEN))
    gain_pct = gain.gain_pct if gain else 0.0
    if gain is None or gain_pct < uneven_work_pct:
        return []
    is_work = _is_other_work(wide, what_ran)
    if not is_work and (beyond_pct < uneven_steps_pct or gain_pct < clear_gain_pct):
        return []
    return [_uneven_steps_found(wide, gain, is_work=is_work)]


def _uneven_steps_found(wide: pd.DataFrame, gain: Gain, *, is_work: bool) -> Finding:
    """What is said of compute by step and rank, that gains so much when it is evened."""
    longest, always = wide.max(axis=1), _always_longest(wide)
    spread = (longest - wide.min(axis=1)).mean()
    same = "Work of equal size that takes unequal time, such as kernels beside communication, looks the same."
    return Finding(
        severity=severity(gain.gain_pct),
        title=Title(
            f"Ranks compute unevenly, {_how(always)}: in the same step "
            f"{time_text(spread)} lie between the shortest and the longest ({time_text(float(longest.mean()))}), "
            f"for which the others wait. Evened, {gain.whole} is ",
            Won.recorded(gain),
            ".",
        ),
        evidence=plain(_by_step(wide)),
        recommendation="Give all ranks as much in each step: batches of like lengths, packed sequences, "
        "as many tokens a batch, balanced experts.",
        caveat=None if is_work else same,
        **gained(gain),
        named=always,
        table="step_needs",
    )


def _by_step(wide: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "step": wide.index,
            "shortest_ns": wide.min(axis=1),
            "mean_ns": wide.mean(axis=1).round(),
            "longest_ns": wide.max(axis=1),
            "longest_rank": wide.idxmax(axis=1),
        }
    )


def _always_longest(wide: pd.DataFrame) -> tuple[int, ...]:
    """The rank that computes longest in every step; none where these are several."""
    longest = wide.idxmax(axis=1).unique()
    return (int(longest[0]),) if len(longest) == 1 else ()


def _how(always_longest: Sequence[int]) -> str:
    if not always_longest:
        return "another one longest from step to step"
    return f"rank {always_longest[0]} longest by another amount from step to step"


def _is_other_work(wide: pd.DataFrame, what_ran: WhatRan) -> bool:
    """Whether more or larger kernels make half of what the longest rank of each step has beyond the others."""
    ranks, longest = list(wide.columns), wide.idxmax(axis=1)
    work, beyond, more = what_ran.table, 0.0, 0.0
    of_step = {int(step): own for step, own in work.groupby("step")}
    for step, rank in longest.items():
        others = [other for other in ranks if other != rank]
        beyond += float(wide.loc[step, rank] - wide.loc[step, others].median())
        if int(step) in of_step:
            more += float(more_work_ns(of_step[int(step)], int(rank), others, [int(step)]).sum())
    return more >= _HALF * beyond > 0


def _is_one_ranks(wide: pd.DataFrame, least_ns: float) -> bool:
    """Whether one rank is longest throughout, by so much that it is said of it, or in all steps."""
    rank = int(wide.mean().idxmax())
    beyond = wide[rank].mean() - wide.mean(axis=1).mean()
    is_longest = bool((wide.idxmax(axis=1) == rank).all())
    return is_lasting(wide, rank) and (is_longest or bool(beyond >= least_ns))


def compute_by_step(step_needs: StepNeeds) -> pd.DataFrame:
    """Compute of the steps that were recorded whole, the last one too: a row for each step, a column for each rank."""
    return _compute_by_step(step_needs.table)


@once_of_tables
def _compute_by_step(held: pd.DataFrame) -> pd.DataFrame:
    held = held[held["step"].notna() & ~is_true(held["is_partial"])] if len(held) else held
    if held.empty:
        return pd.DataFrame()
    wide = by_step_and_rank(held.astype({"step": "int64"}), "compute_ns")
    return wide.dropna()


def is_lasting(wide: pd.DataFrame, rank: int) -> bool:
    """Whether the rank computes longer than the mean in most steps, by half of its mean excess or more.

    And that is at least half of what the longest of each step has beyond the mean: else the others' turns cost more.
    And it is more than chance deals out in so few steps.
    """
    if rank not in wide or wide.empty:
        return True
    if not is_beyond_chance(wide, [rank]):
        return False
    mean = wide.mean(axis=1)
    excess = wide[rank] - mean
    is_steady = (excess >= _HALF * excess.mean()).mean() >= _LASTING
    return bool(is_steady and excess.mean() >= _HALF * (wide.max(axis=1) - mean).mean())


# Rules about ranks that do not get equal work.


_EXPERTS = (
    "Balance the tokens over the ranks of the experts: capacity factor, balancing loss, placement of the experts. "
    "Without experts: lengths of sequences, samples of a batch."
)
_BATCHES = "Even out the work: lengths of sequences, samples of a batch, uneven shards."

_MOST_ROWS = 2


def uneven_compute(
    headline: Headline,
    steps: Steps,
    step_needs: StepNeeds,
    episodes: Episodes,
    pipeline: Pipeline,
    call_waits: CallWaits,
    instances: Instances,
    efficiency: Efficiency,
    replay: Replay,
    places: Places,
    ranks: Ranks,
    operators: Operators,
    *,
    imbalance_pct: float = IMBALANCE_PCT,
) -> list[Finding]:
    """One rank or a set computes longer than the mean by a tenth of a step, mostly; no rule of waits or stages says so.

    It matters most where waits cannot be measured: experts with uneven all-to-alls. Where they are, and the job gains
    less than 1 % of a step when it is replayed with that rank's compute as the mean rank's (a set's as the others'
    median), nobody waits for it. Of all ranks of a role (`with_roles`) nobody can tell whether they are slow.
    """
    frame = headline.to_frame().set_index("rank")
    if len(frame) < 2 or len(pipeline) or frame["compute_ns"].isna().any():
        return []
    basis = Basis.of(headline, steps)
    compute, window = (frame[name].astype("int64") / basis.per for name in ("compute_ns", "window_ns"))
    rank = int(compute.idxmax())
    excess_ns = compute.max() - compute.mean()
    share = 100.0 * excess_ns / basis.mean_ns(rank) if basis.mean_ns(rank) else 0.0
    if has_longer_window(window, rank, excess_ns) or share < imbalance_pct or _is_late_by_compute(rank, episodes):
        return []
    own = _longest(compute, compute_by_step(step_needs), places)
    roles, least = _roles(with_roles(step_needs.table, replay, ranks, call_waits, operators)), int(compute.idxmin())
    even = _evened(compute, own, replay, roles) if own else None
    if own is None or gains_nothing(even):
        return []
    calls = _unsplit(call_waits, basis, least)
    where = _sits_in(calls, compute.max() - compute.min(), instances, basis, least)
    found = Finding(
        severity=severity(share),
        title=f"{_computes(own, compute, basis)}{where}.{_shorter(even, own, roles, basis)}",
        evidence=_shares(frame, basis),
        recommendation=_EXPERTS if calls["collective"].eq("all_to_all").any() else _BATCHES,
        caveat=_caveat(own, even, roles),
        named=(*own.ranks, least),
        interval_ns=_longest_step(calls, steps, least),
        table="efficiency", about=about("uneven compute", rank),
    )  # fmt: skip
    return [_with_gain(found, even, excess_ns), *_other_products(efficiency, rank, least)]


def _roles(needs: pd.DataFrame) -> list[set[int]]:
    """The ranks of each role, where ranks have several."""
    peers = needs.drop_duplicates("rank").set_index("rank")["peers"]
    roles = [{*role} for role in peers.groupby(peers).groups.values()]
    return roles if len(roles) > 1 else []


def _caveat(own: Alike, even: Gain | None, roles: list[set[int]]) -> str | None:
    """What cannot be told of all ranks of a role, whose kernels no other runs; and of what a gain without replay is."""
    told = None if even else f"The gain is what {_beyond(own)}."
    if {*own.ranks} not in roles:
        return told
    role = (
        f"No other rank runs the kernels of {numbered('rank', own.ranks)}: whether they are slow at them, or have that "
        "much to do, cannot be told from this capture; one of a run that was faster tells (analyze-traces diff)."
    )
    return " ".join(filter(None, (role, told)))


def _is_late_by_compute(rank: int, episodes: Episodes) -> bool:
    return any(row["cause"] == "compute" and rank in numbers(row["ranks"]) for row in episodes.rows())


def _longest(compute: pd.Series, by_step: pd.DataFrame, places: Places) -> Alike | None:
    """The rank that computes longest in most steps, with those like it where that is no chance; `None` if it varies."""
    rank = int(compute.idxmax())
    if not is_lasting(by_step, rank):
        return None
    own = alike(compute, places)
    if not own.is_one and not by_step.empty and not is_beyond_chance(by_step, own.ranks):
        return Alike((rank,), None, float(compute.drop(rank).median()))
    return own


def _evened(compute: pd.Series, own: Alike, replay: Replay, roles: list[set[int]]) -> Gain | None:
    """What the job gains with one rank's compute as the mean rank's, or a set's as the others' median; no bounds.

    A rank whose work no other can do is held against the others, too: it cannot be dealt out evenly.
    """
    goal = compute.mean() if _is_dealt_out(own, roles) else own.others
    even = gain_of(replay, Change("compute", float(goal / compute[list(own.ranks)].max()), frozenset(own.ranks)))
    return None if even is None or even.is_bound else even


def _is_dealt_out(own: Alike, roles: list[set[int]]) -> bool:
    """Whether one rank's work could be the others' as well."""
    return own.others is None or (own.is_one and {*own.ranks} not in roles)


def _with_gain(found: Finding, even: Gain | None, excess_ns: float) -> Finding:
    """What the job gains by even compute; where no replay tells, all that is beyond the mean."""
    if even is None:
        return replace(found, gain_ns=round(excess_ns))
    return replace(
        found,
        severity=severity(100 * max(even.gain_ns, even.unprofiled_gain_ns or 0) / even.before_ns),
        gain_ns=even.gain_ns,
        gain_error_ns=even.error_ns,
        gain_is_bound=False,
        unprofiled_gain_ns=even.unprofiled_gain_ns,
        changes=changed(even),
    )


def _unsplit(call_waits: CallWaits, basis: Basis, rank: int) -> pd.DataFrame:
    """The rank's calls of which nobody knows how long they wait."""
    calls = basis.within(call_waits.to_frame())
    return calls[(calls["rank"] == rank) & calls["transfer_ns"].isna()]


def _computes(own: Alike, compute: pd.Series, basis: Basis) -> str:
    """How long those that compute longest do, beside the rank that computes least."""
    most = f"{'computes' if own.is_one else 'compute up to'} {time_text(compute.max())}"
    return f"{own.opening} {most}{basis.rate}, rank {int(compute.idxmin())} only {time_text(compute.min())}"


def _shares(frame: pd.DataFrame, basis: Basis) -> tuple[dict[str, Any], ...]:
    columns = ["compute_ns", "exposed_comm_ns", "idle_ns"]
    return plain(per_step(frame.reset_index()[["rank", *columns]], columns, basis.steps))


def _shorter(even: Gain | None, own: Alike, roles: list[set[int]], basis: Basis) -> Title:
    """What the step or the capture gains, where a replay tells."""
    if even is None:
        return Title()
    whose = f"rank {own.ranks[0]}'s compute" if own.is_one else "their compute"
    whose += " as the mean rank's" if _is_dealt_out(own, roles) and own.is_one else " as the others'"
    return Title(f" With {whose} {basis.whole} is ", Won.of(even), ".")


def _beyond(own: Alike) -> str:
    return (
        f"rank {own.ranks[0]} computes beyond the mean rank" if own.is_one else "they compute beyond the others' median"
    )


def _other_products(efficiency: Efficiency, rank: int, least: int) -> list[Finding]:
    """What the two ranks compute that the other does not: the sizes of uneven work, where shapes were recorded."""
    work = [own_work(efficiency, one, [other]) for one, other in ((rank, least), (least, rank))]
    if work[0].empty:
        return []
    most = named(work[0].iloc[0])
    if work[1].empty:
        return [
            Finding(
                severity="info",
                title=f"Only rank {rank} runs {most}: {time_text(work[0]['gpu_ns'].iloc[0])} in the capture.",
                evidence=plain(work[0].head(_MOST_ROWS)),
                recommendation=f"Find what makes rank {rank} run it: another stream's work counts too.",
                caveat="Of the whole capture.",
                named=(rank,),
                part_of=about("uneven compute", rank),
            )
        ]
    fewest = named(work[1].iloc[0])
    return [
        Finding(
            severity="info",
            title=f"Only rank {rank} runs {most}, only rank {least} {fewest}: their work differs in size.",
            evidence=plain(pd.concat([rows.head(_MOST_ROWS) for rows in work])),
            caveat="Of the whole capture.",
            named=(rank, least),
            part_of=about("uneven compute", rank),
        )
    ]


def apart(instances: Instances, basis: Basis) -> str:
    """A sentence on how far apart the ranks enter calls whose waits are not known; empty without a common clock."""
    frame = basis.within(instances.to_frame())
    own = frame[frame["transfer_ns"].isna() & frame["skew_ns"].notna()]
    if own.empty:
        return ""
    total = f"{time_text(own['skew_ns'].sum() / basis.per)}{basis.rate}"
    each = time_text(own["skew_uncertainty_ns"].max())
    return f" By the clocks the last rank enters {len(own)} of them {total} after the first, summed, each ± {each}."


def _sits_in(calls: pd.DataFrame, missing_ns: float, instances: Instances, basis: Basis, rank: int) -> str:
    """Where a rank spends the time that it does not compute, if it is in calls whose waits are not known.

    How much of it passes before the last rank arrives is known where this rank came first on a common clock.
    """
    lengths = (calls["end_ns"] - calls["start_ns"]).groupby(calls["collective"]).sum() / basis.per
    if lengths.empty or lengths.max() < missing_ns / 2:
        return ""
    share = 100 * lengths.max() / basis.mean_ns(rank)
    frame = basis.within(instances.to_frame())
    before = frame[(frame["first_rank"] == rank) & (frame["collective"] == lengths.idxmax())]
    waits = ""
    if len(before):
        early, sure = (
            time_text(before["skew_ns"].sum() / basis.per),
            time_text(before["skew_uncertainty_ns"].max()),
        )
        waits = f", {early} of it (± {sure} a call) before the last rank arrives"
    name = collective_words(lengths.idxmax())
    return f" and sits in {name} for {time_text(lengths.max())}, {share:.0f} % {basis.of_a_step}{waits}"


def _longest_step(calls: pd.DataFrame, steps: Steps, rank: int) -> tuple[int, int] | None:
    """The rank's step with the longest call, or that call without steps."""
    if calls.empty:
        return None
    longest = calls.loc[(calls["end_ns"] - calls["start_ns"]).idxmax()]
    return around(int(longest["start_ns"]), int(longest["end_ns"]), steps.to_frame(), rank)


# Waits within steps: in one exchange one rank comes last, in the next another; over a step none needs more.


WAITING_PCT = 5.0
"""Of a step: the mean rank waits longer."""

_MOST_OF_ONE = 0.6
"""Of all waits: if more are for one rank that waits less itself, it is late, not each in turn."""

_AS_LONG = 0.5
"""Of the ranks' mean wait: one that waits so long itself is late at one place of a step, and early at another."""

_EXPLAINED = 0.5
"""Of the gain: another cause that gains this much tells of these waits."""

_WAIT = "exposed_wait_ns"
_IDLE = [cause.column for cause in IDLE_CAUSES]


def waits_within_steps(
    headline: Headline, steps: Steps, step_needs: StepNeeds, episodes: Episodes, stragglers: Stragglers,
    pipeline: Pipeline, replay: Replay, ranks: Ranks, call_waits: CallWaits, operators: Operators,
    iterations: Iterations, kernels: Kernels, *,
    waits_within_pct: float = WAITING_PCT, clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:  # fmt: skip
    """Ranks wait for each other over 5 % of a step, and hardly idle; replayed without waits over 3 % is gained.

    No one rank is waited for in most of it, unless it waits for the others half as long as ranks do: it comes last in
    one part of a step and first in another. Neither late ranks nor compute evened over steps gain half as much.
    Ranks that have roles (`with_roles`) wait for each other by design.
    """
    if not len(headline) or len(pipeline) or stragglers.table.empty or step_needs.table.empty:
        return []
    basis = Basis.of(headline, steps)
    if basis.steps is None:
        return []
    needs = mean_steps(step_needs, basis, [_WAIT, "compute_ns", *_IDLE])
    waits, step_ns = needs[_WAIT], basis.step_ns
    roots = stragglers.table.set_index("rank")["total_wait_ns"].astype("float64")
    if 100 * waits.mean() < waits_within_pct * step_ns or needs[_IDLE].sum(axis=1).mean() > _EXPLAINED * waits.mean():
        return []
    first = int(roots.idxmax()) if roots.max() > _MOST_OF_ONE * roots.sum() else None
    if first is not None and waits.get(first, 0.0) < _AS_LONG * waits.mean():
        return []
    has_roles = with_roles(step_needs.table, replay, ranks, call_waits, operators)["peers"].nunique() > 1  # noqa: PD101 - how many there are
    gain = None if has_roles else gain_of(replay, Change("waits", 0.0))
    is_clear = gain is not None and gain.gain_pct >= clear_gain_pct
    if gain is None or not is_clear or _is_told_by_others(gain.gain_ns, episodes, step_needs, replay):
        return []
    last = "one comes last" if first is None else f"rank {first} comes last (for most of it)"
    title = Title(
        f"Ranks wait for each other {time_span(waits.min(), waits.max())} of {with_article(time_text(step_ns))} step, "
        f"most of it in {collective_words(stragglers.table['collective'].iloc[0])}: within a step now {last}, "
        f"now another; over a step they compute {time_span(needs['compute_ns'].min(), needs['compute_ns'].max())}. "
        f"If all came together, {gain.whole} would be ",
        Won.recorded(gain),
        ".",
    )
    named = () if first is None else (first,)
    advice = tools_of(ranks, kernels, iterations, operators=operators).even_within
    return [_within_steps_found(title, gain, plain(needs[["compute_ns", _WAIT]].round().reset_index()), named, advice)]


def _within_steps_found(title: Title, gain: Gain, evidence: tuple[dict[str, Any], ...], named: tuple[int, ...],
           advice: str) -> Finding:  # fmt: skip
    return Finding(
        severity=severity(gain.gain_pct),
        title=title,
        evidence=evidence,
        recommendation=advice,
        caveat="Work of equal size that takes unequal time, such as kernels beside communication, looks the same.",
        **gained(gain),
        named=named,
        table="stragglers",
    )


def _is_told_by_others(gain_ns: int, episodes: Episodes, step_needs: StepNeeds, replay: Replay) -> bool:
    """Whether late ranks, or compute that differs from step to step, gain half as much.

    Compute that is uneven in each layer and even over a step is told by no other rule.
    """
    late_ns = sum(row["gain_ns"] for row in said_with_gain(episodes))
    even, wide = gain_of(replay, Change("compute", EVEN)), compute_by_step(step_needs)
    beyond_ns = float((wide.max(axis=1) - wide.mean(axis=1)).mean()) if len(wide) else 0.0
    even_ns = even.gain_ns if even and beyond_ns >= _EXPLAINED * even.gain_ns else 0
    return max(late_ns, even_ns) >= _EXPLAINED * gain_ns


# Steps in which all ranks run more than in the others: an evaluation, an optimizer that works now and then.


LONGER_STEP_PCT = 25.0
"""Of what a rank computes in its usual step: by so much more all ranks compute in the steps that are told."""

_LEAST_STEPS = 4
"""After the first recorded one, which may be a warm-up: of fewer it is not known which are usual."""

_MOST = 0.5
"""Of what is more: what is called more often has to hold it, and a name most of that."""


def longer_steps(
    step_needs: StepNeeds, what_ran: WhatRan, *, longer_step_pct: float = LONGER_STEP_PCT
) -> list[Finding]:
    """Fewer than half of the steps, in which every rank computes a quarter more than usual, by more calls.

    The first recorded step may be a warm-up and is left out. Stages of a pipeline are held against themselves. Nothing
    is gained: it is work that is to be done.
    """
    wide = compute_by_step(step_needs).iloc[1:]
    if len(wide) < _LEAST_STEPS:
        return []
    usual = wide.median()
    more = (wide - usual).min(axis=1)
    more = more[more >= longer_step_pct / 100 * float(usual.max())]
    if more.empty or 2 * len(more) >= len(wide) or not usual.max():
        return []
    own = _more_calls(what_ran.table, wide, more)
    held = own[own["what"] == OPERATOR] if (own["what"] == OPERATOR).any() else own[own["what"] == KERNEL]
    if held["total_ns"].sum() < _MOST * float(more.min()):
        return []
    return [_longer_steps_found(wide, usual, more, _name(own, held))]


def _more_calls(work: pd.DataFrame, wide: pd.DataFrame, more: pd.Series) -> pd.DataFrame:
    """What is called more often in these steps, by name: how much longer it takes, on the rank where that is least.

    And the ranges that are in no other step.
    """
    work = work[(work["part"] == COMPUTE.column) & work["step"].isin(wide.index)]
    by_step = {
        each: work.pivot_table(
            index=["what", "name", "rank"], columns="step", values=each, aggfunc="sum", fill_value=0
        ).reindex(columns=wide.index, fill_value=0)
        for each in ("total_ns", "calls")
    }
    usual = wide.index.difference(more.index)
    total, calls = ((each[more.index].min(axis=1), each[usual].median(axis=1)) for each in by_step.values())
    is_range = total[0].index.get_level_values("what") == RANGE
    is_more = np.where(is_range, total[1] == 0, calls[0] > calls[1])
    extra = (total[0] - total[1])[is_more].rename("total_ns").reset_index()
    by_name = extra.pivot_table(index=["what", "name"], columns="rank", values="total_ns")
    least: pd.Series = by_name.reindex(columns=wide.columns).dropna().min(axis=1)
    return least[least > 0].rename("total_ns").reset_index()


def _name(own: pd.DataFrame, held: pd.DataFrame) -> str | None:
    """The range that holds most of it, else the operator or kernel; none where no one does."""
    total_ns = held["total_ns"].sum()
    for each in (own[own["what"] == RANGE], held):
        longest = each.nlargest(1, "total_ns")
        if len(longest) and float(longest["total_ns"].iloc[0]) >= _MOST * total_ns:
            return str(longest["name"].iloc[0])
    return None


def _longer_steps_found(wide: pd.DataFrame, usual: pd.Series, more: pd.Series, name: str | None) -> Finding:
    ranks, is_one = wide.shape[1], len(more) == 1
    who = {1: "the GPU computes", 2: "both GPUs compute"}.get(ranks, f"all {ranks:,} GPUs compute")
    mean_ns = float(more.sum()) / len(wide)
    grade = severity(100 * mean_ns / float(wide.mean(axis=1).mean()))
    most = f", most of it {name}" if name else ""
    return Finding(
        severity="medium" if grade == "high" else grade,
        title=f"In {numbered('step', more.index)} {who} {time_text(float(more.mean()))} {'' if is_one else 'a step '}"
        f"longer than in the others{most}: work that is done now and then, {time_text(mean_ns)} of a mean step.",
        evidence=plain(
            pd.DataFrame({"step": wide.index, "mean_ns": wide.mean(axis=1).round(), "usual_ns": usual.mean()})
        ),
        recommendation="Look at these steps apart from the others (--steps). What they do beside can be done less "
        "often, or on less.",
        steps=tuple(int(step) for step in more.index),
        table="step_needs",
    )


# Rules about ranks that compute nothing, in any step or from some step on, and only take part in what others do.


NEXT_TO_NOTHING_PCT = 5.0
"""Of what a rank, or the others, compute in complete steps: with less there is no work."""

AS_MANY_PCT = 50.0
"""Of the collectives of the ranks that compute, in which one without work takes part."""


class _Spent(Struct, frozen=True):
    """A rank and its first step without work; how long it takes part since, in how many calls; what others compute."""

    rank: int
    step: int
    ns: int
    calls: int
    others_ns: float


def ranks_without_work(
    steps: Steps, call_waits: CallWaits, *, without_work_pct: float = NEXT_TO_NOTHING_PCT
) -> list[Finding]:
    """A rank computes in some steps and next to nothing in all later ones, but takes part in the others' collectives.

    So it is with a rank whose input has run out (torch's `Join`): its profiler makes no steps any more, the last one
    holds all that follows. It has to take part for as long as a step of the others, and in as many calls as one has:
    else it waits, or its recording ends there.
    """
    table = steps.table
    if table.empty or call_waits.table.empty:
        return []
    table = rows_where(table, table["start_ns"].notna() & table["step"].notna())
    spent = list(_spent(table, call_waits.table, without_work_pct))
    firsts = sorted({each.step for each in spent})
    return [_finding([each for each in spent if each.step == first], table) for first in firsts]


def _spent(table: pd.DataFrame, calls: pd.DataFrame, least_pct: float) -> Iterator[_Spent]:
    complete = complete_steps(table)
    usual = complete.groupby("rank")["compute_ns"].mean().astype("float64")
    table = table[table["rank"].isin(usual.index[usual > 0])]
    has_work = 100 * table["compute_ns"].astype("float64") > least_pct * table["rank"].map(usual)
    last = table[has_work].groupby("rank")["step"].max()
    is_after = table["step"].astype("float64") > table["rank"].map(last).astype("float64")
    for rank, tail in rows_where(table, is_after).groupby("rank"):  # few: all others are looked through for each
        others = complete[(complete["rank"] != rank) & complete["rank"].isin(table.loc[has_work, "rank"])]
        if others.empty:
            continue
        first = int(tail["step"].min())
        going_on = table[has_work & (table["rank"] != rank) & (table["step"] >= first)]
        of_step = calls[calls["rank"].isin(others["rank"])].groupby(["rank", "step"]).size()
        its_own = int(((calls["rank"] == rank) & (calls["step"] >= first)).fillna(value=False).sum())
        ns = int(tail["window_ns"].sum())
        takes_part = ns >= others["window_ns"].astype("float64").mean() and its_own >= max(of_step.median(), 1)
        if len(going_on) and takes_part:
            yield _Spent(int(rank), first, ns, its_own, float(others["compute_ns"].mean()))


def ranks_without_compute(
    headline: Headline,
    steps: Steps,
    call_waits: CallWaits,
    *,
    without_work_pct: float = NEXT_TO_NOTHING_PCT,
    as_many_calls_pct: float = AS_MANY_PCT,
) -> list[Finding]:
    """A rank computes next to nothing in any complete step, and takes part in as many collectives as the others.

    Its kernels may run on another GPU, or it gets no part of the batch. Messages do not count: who answers them may be
    there for that alone.
    """
    if not len(headline) or not len(call_waits):
        return []
    basis = Basis.of(headline, steps)
    compute = headline.table.set_index("rank")["compute_ns"].astype("float64") / basis.per
    usual_ns = float(compute.median() if len(compute) > 2 else compute.max())
    idle = compute.index[100 * compute < without_work_pct * usual_ns]
    calls = basis.within(call_waits.table)
    counts = calls[~calls["collective"].isin(POINT_TO_POINT)].groupby("rank").size() / basis.per
    least = as_many_calls_pct / 100 * counts.reindex(compute.index.difference(idle)).median()
    return [
        _without_compute(int(rank), float(counts[rank]), compute, usual_ns, basis)
        for rank in idle
        if counts.get(rank, 0) >= least
    ]


def _without_compute(rank: int, calls: float, compute: pd.Series, usual_ns: float, basis: Basis) -> Finding:
    when = basis.a_step
    return Finding(
        severity="high",
        title=f"Rank {rank} computes next to nothing ({time_text(compute[rank])} {when}, others "
        f"{time_text(usual_ns)}): it only takes part in collectives ({calls:.0f} {when}).",
        evidence=tuple({"rank": int(one), "compute_ns": round(ns)} for one, ns in compute.items()),
        recommendation="Look at which GPU its process uses (torch.cuda.set_device(LOCAL_RANK)), and whether it gets a "
        "part of the batch.",
        caveat="A rank that is there for something else by design has the same trace.",
        named=(rank,),
        table="breakdown",
    )


def _finding(spent: list[_Spent], table: pd.DataFrame) -> Finding:
    ranks, one = [each.rank for each in spent], len(spent) == 1
    longest = max(spent, key=lambda each: each.ns)
    windows = table[table["rank"] == longest.rank]["window_ns"].sum()
    who = first_upper(numbered("rank", ranks))
    return Finding(
        severity=severity(100 * longest.ns / windows),
        title=f"{who} compute{'s' if one else ''} nothing from step {longest.step} on: for {time_text(longest.ns)} "
        f"{'it takes' if one else 'they take'} part in the others' collectives alone ({longest.calls} calls"
        f"{'' if one else f' of rank {longest.rank}'}), while those compute {time_text(longest.others_ns)} a step.",
        evidence=tuple(
            {"rank": each.rank, "step": each.step, "without_work_ns": each.ns, "calls": each.calls} for each in spent
        ),
        recommendation="Give all ranks as many batches: a sampler that pads or drops the rest (DistributedSampler, "
        "drop_last=True), or streams that are split evenly. Join only lets the others end.",
        caveat="A rank whose part of the job ends there by design has the same trace.",
        named=tuple(ranks),
        table="steps",
    )
