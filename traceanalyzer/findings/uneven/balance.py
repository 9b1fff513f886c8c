"""Rules about ranks that do not get equal work."""

from dataclasses import replace
from typing import Any

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.blame.roles import with_roles
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.instances import Instances
from traceanalyzer.analyses.operators.efficiency import Efficiency
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.alike import Alike, alike
from traceanalyzer.findings.basis import (
    Basis,
    about,
    around,
    gains_nothing,
    has_longer_window,
    per_step,
    plain,
    severity,
)
from traceanalyzer.findings.chance import is_beyond_chance
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.beside import named, own_work
from traceanalyzer.findings.uneven.uneven_steps import IMBALANCE_PCT, compute_by_step, is_lasting
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.meaning.quantities import time_text

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
