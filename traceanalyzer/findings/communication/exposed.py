"""Communication that could be hidden, faster or fewer."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.collectives import Collectives, transfer_kinds
from traceanalyzer.analyses.communication.waits import CallWaits, ExposedComm
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.phases.comm_phases import CallPhases
from traceanalyzer.analyses.phases.micro_steps import Iterations
from traceanalyzer.analyses.phases.phases import ExposedCalls
from traceanalyzer.analyses.replay.changes import ALONE, USUAL, Change
from traceanalyzer.analyses.replay.gains import Engine, Gain
from traceanalyzer.analyses.replay.lengths import are_small
from traceanalyzer.analyses.replay.replay import Replay, gain_of, gains_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps, complete_steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.basis import (
    CLEAR_GAIN_PCT,
    HOSTS,
    LEAST_GAIN_PCT,
    MOSTLY,
    Basis,
    Title,
    Won,
    plain,
    severity,
    who_decides,
)
from traceanalyzer.findings.capture import PARTNERS
from traceanalyzer.findings.finding import Finding, changed, gained
from traceanalyzer.findings.link_rates import LOW_PEAK_PCT, SLOW_LINKS, healthy_rate
from traceanalyzer.findings.stragglers.stragglers import of_lead, of_slow_links, said
from traceanalyzer.findings.vendor_terms import Tools, tools_of
from traceanalyzer.kinds import CALL, MESSAGES, comm_kernel, dtype_bytes
from traceanalyzer.meaning.columns import time_span, time_text
from traceanalyzer.meaning.names import collectives_words
from traceanalyzer.meaning.vocabulary import first_upper, listed, step_or_capture, with_article
from traceanalyzer.model.tables import rows_where

# Whether communication runs in kernels of a job's own: userbuffers, symmetric memory, an engine's all-reduces.


def is_of_own_kernels(kernels: Kernels, collective: str | None = None) -> bool:
    """Whether it runs, most of its time, in kernels that no host's call into a library of collectives describes.

    Without one, all communication.
    """
    table = kernels.table
    known = {
        name: found
        for name in table["name"].unique()
        if (found := comm_kernel(str(name))) and not found.is_fused and collective in (None, found.collective)
    }
    of_it = table[table["name"].isin([*known])]
    is_called = of_it["name"].map({name: found.sizes == CALL for name, found in known.items()}).astype(bool)
    return bool(2 * of_it.loc[~is_called, "total_ns"].sum() > of_it["total_ns"].sum())


# The collective that ranks do nothing beside: which, where in the step, and what the step would take without it.


LEAST_PCT = 10.0
"""Of the steps that it is in: what the collective gains when it takes no time. The last bucket's tail is less."""

LEAST_MEAN_PCT = 3.0
"""Of a mean step: the same, and how long it is exposed on some rank."""

EXPOSED = "exposed communication"
"""How findings about it call it."""

_IN_FEW = 0.8

_AS_OFTEN = 0.8
"""A collective that runs so often in other steps as well is slow in these, not called in these."""

_ALIKE = 0.02
"""Of a gain: what is exposed differs by no less from rank to rank."""

_WIDE_BYTES = 4
"""Gradients of so many bytes an element can be exchanged in half of that."""


def exposed_collective(
    headline: Headline, steps: Steps, exposed_calls: ExposedCalls, call_waits: CallWaits, replay: Replay,
    episodes: Episodes, collectives: Collectives, calls: Calls, ranks: Ranks, kernels: Kernels, iterations: Iterations,
    operators: Operators, *,
    exposed_collective_pct: float = LEAST_PCT,
    exposed_mean_pct: float = LEAST_MEAN_PCT,
    low_peak_pct: float = LOW_PEAK_PCT,
) -> list[Finding]:  # fmt: skip
    """The collective without whose transfers a step would be shorter by most, from 10 % of the steps with it on.

    Waits for other ranks are not in it, but for broadcasts and the like, of which they cannot be told apart: where that
    is most of it and a late rank is waited for in this collective, it is part of what is said of that rank. So it is
    where a group that moves data for longer than its sister groups gains most of it. Where the collective is slow and
    would gain most of that at a healthy rate, it is part of that. What is as quick as that in other steps gains what
    it does at their pace; nothing else is said of jobs that compute next to nothing, as benchmarks. Messages between
    stages of pipelines are told so alone: else with their bubble.
    """
    if replay.engine is None or not len(headline) or not len(exposed_calls):
        return []
    basis = Basis.of(headline, steps)
    if basis.steps is None:
        return []
    held = exposed_transfers(exposed_calls, call_waits, basis)
    by_rank = held.groupby(["collective", "rank"], observed=True)["ns"].sum()
    worst = by_rank.groupby("collective", observed=True).max()
    worst = worst[100 * worst >= exposed_mean_pct * replay.engine.before_ns]
    every = _of_kinds(basis.within(calls.table))
    asked = [(Change("collective", 0.0, name=str(name)),) for name in worst.index]
    gains = gains_of(replay, asked) or []
    tellable = [_told(*pair, held, every, basis, replay) for pair in zip(worst.index, gains, strict=False)]
    tellable = [each for each in tellable if each.name != MESSAGES or each.is_at_times]
    if not tellable:
        return []
    told = max(tellable, key=lambda each: _share_pct(each.gain))
    share, few = _share_pct(told.gain), told.few
    if _computes_nothing(headline, exposed_mean_pct) and not told.is_at_times:
        return []
    if share < exposed_mean_pct or share * basis.per / (len(few) or basis.per) < exposed_collective_pct:
        return []
    tools = tools_of(ranks, kernels, iterations, operators=operators)
    advice = _AT_TIMES if told.is_at_times else _advised(told, kernels, tools)
    found = _found(told, "" if few else _behind(told, headline), advice)
    part_of = _late(told, episodes) or _slow(told, collectives, replay, low_peak_pct) or _of_unknown(told)
    return [replace(found, part_of=part_of) if part_of else found]


def _computes_nothing(headline: Headline, least_pct: float) -> bool:
    """Whether no rank computes as long as a gain that is worth saying: there is nothing to hide anything behind."""
    table = headline.table
    return bool((100 * table["compute_ns"] < least_pct * table["window_ns"]).all())


def exposed_transfers(exposed_calls: ExposedCalls, call_waits: CallWaits, basis: Basis) -> pd.DataFrame:
    """The basis' collective calls with what each is exposed for but for known waits, as part of a mean step (`ns`).

    `open_ns` is that of calls whose partners are not known.
    """
    names = call_waits.table[["rank", "call", "collective", "is_matched"]]
    held = basis.within(exposed_calls.table).merge(names, on=["rank", "call"])
    held = _of_kinds(held[held["collective"].notna()])
    open_ns = held["unmatched_ns"].where(~is_true(held["is_matched"]), 0).fillna(0)
    ns = held[["transfer_ns", "unmatched_ns"]].fillna(0).sum(axis=1).astype("float64") / basis.per
    return held.assign(ns=ns, open_ns=open_ns.astype("float64") / basis.per)


def _of_kinds(calls: pd.DataFrame) -> pd.DataFrame:
    """Calls with what they transfer: messages are one collective."""
    return calls.assign(collective=transfer_kinds(calls["collective"]))


def _share_pct(gain: Gain) -> float:
    """Of a step without the profiler, where that is known."""
    before, won = gain.before_ns, gain.gain_ns
    if gain.unprofiled_ns is not None and gain.unprofiled_gain_ns is not None:
        before, won = gain.unprofiled_ns[0], gain.unprofiled_gain_ns
    return 100 * won / before if before else 0.0


_AT_TIMES = (
    "The same calls are quick in other steps: look for what used the links then (a checkpoint over the network, "
    "another job), for links that fail and try again (nvidia-smi nvlink -e, the network cards' counters)."
)


def _at_other_times_ns(own: pd.DataFrame, every: pd.DataFrame, basis: Basis, few: tuple[int, ...]) -> float | None:
    """How long it is exposed in a step that is none of the few; `None` unless it runs about as often there."""
    if not few:
        return None
    by_step = every.groupby("step").size()
    is_few = by_step.index.isin(few)
    if is_few.all() or by_step[~is_few].mean() < _AS_OFTEN * by_step[is_few].mean():
        return None
    by_rank = own[~own["step"].isin(few)].groupby("rank")["ns"].sum()
    return float(by_rank.max()) * basis.per / (basis.per - len(few)) if len(by_rank) else 0.0


class _Told(Struct, frozen=True):
    """What is said of a collective: its exposed stretches, all of its calls in the basis, what its transfers cost.

    `is_as_usual`: what they cost above what they do in other steps, not all of it.
    """

    name: str
    own: pd.DataFrame
    every: pd.DataFrame
    gain: Gain
    basis: Basis
    few: tuple[int, ...]
    at_other_times_ns: float | None
    is_as_usual: bool

    @property
    def is_at_times(self) -> bool:
        """Whether it is quick in other steps."""
        return self.at_other_times_ns is not None


def _told(name: str, gain: Gain, held: pd.DataFrame, every: pd.DataFrame, basis: Basis, replay: Replay) -> _Told:
    """Of a collective that gains so much if it takes no time."""
    own, every = held[held["collective"] == name], every[every["collective"] == name]
    few = _few_steps(own, basis)
    at_times_ns = _at_other_times_ns(own, every, basis, few)
    changed = None if at_times_ns is None else Change("collective", USUAL, steps=frozenset(few), name=name)
    usual = gain_of(replay, changed) if changed else None
    if usual is None or usual.gain_ns < MOSTLY * gain.gain_ns:
        return _Told(name, own, every, gain, basis, few, at_times_ns, is_as_usual=False)
    return _Told(name, own, every, usual, basis, few, at_times_ns, is_as_usual=True)


def _late(told: _Told, episodes: Episodes) -> str | None:
    """The lateness that is most of it: of a rank that is waited for in it, or of a group that moves data for longer."""
    is_unclear = told.own["unmatched_ns"].sum() > told.own["transfer_ns"].sum()
    late = [row for row in said(episodes) if is_unclear and row["collective"] == told.name]
    return of_lead(episodes, late[0]) if late else of_slow_links(episodes, told.name, told.gain.gain_ns)


def _slow(told: _Told, collectives: Collectives, replay: Replay, low_peak_pct: float) -> str | None:
    """Its slow links, where a healthy rate would gain most of it."""
    faster = healthy_rate(collectives, told.name, low_peak_pct)
    at_rate = gain_of(replay, faster) if faster else None
    is_slow = at_rate is not None and at_rate.gain_ns >= MOSTLY * told.gain.gain_ns > 0
    return SLOW_LINKS if is_slow else None


def _of_unknown(told: _Told) -> str | None:
    """The capture's lack of partners, where most of it is of calls with none: it may be a wait for them."""
    return PARTNERS if told.own["open_ns"].sum() > MOSTLY * told.own["ns"].sum() else None


def _behind(told: _Told, headline: Headline) -> str:
    """A sentence on what else is not hidden, where a step would be shorter by more than the collective is exposed."""
    frame = headline.to_frame().set_index("rank")
    exposed = told.own.groupby("rank")["ns"].sum().reindex(frame.index, fill_value=0.0)
    not_hidden = (1 - frame["compute_pct"] / 100) * frame["window_ns"] / told.basis.per
    more_ns, rest_ns = told.gain.gain_ns - exposed.max(), float((not_hidden - exposed).max())
    if not max(told.gain.error_ns, _ALIKE * told.gain.gain_ns) < more_ns <= rest_ns:
        return ""
    return f" Other communication and idle time, {time_text(rest_ns)} of the step, come behind them."


def _found(told: _Told, behind: str, advice: str) -> Finding:
    own, gain, few, basis = told.own, told.gain, told.few, told.basis
    per = len(few) or basis.per
    held, every = (table[table["step"].isin(few)] if few else table for table in (own, told.every))
    by_rank = held.groupby("rank")["ns"].sum() * basis.per / per
    phase = _phase(own)
    where = f", most of it in the {phase}" if phase else ""
    of = f"each of steps {listed(few)}" if len(few) > 1 else f"step {few[0]}" if few else "a step"
    each = "in each" if len(few) > 1 else "in it" if few else basis.a_step
    other_ns = told.at_other_times_ns
    seldom = "hardly in others" if other_ns is None else f"for {time_text(other_ns)} of another"
    step = f"{of}, and {seldom}" if few else f"{with_article(time_text(gain.before_ns))} step"
    several = collectives_words(told.name)
    without = "As quick as in other steps," if told.is_as_usual else "Without them in the way"
    return Finding(
        severity=severity(_share_pct(gain)),
        title=Title(
            f"{first_upper(several)}{_how_often(every, per, each)} run while nothing computes for "
            f"{time_span(by_rank.min(), by_rank.max())} of {step}{where}.{behind} {without} {gain.whole} is ",
            Won.of(gain, is_bound=None if told.is_as_usual else True),
            ".",
        ),
        summary=f"Exposed {several}: up to {time_text(by_rank.max())} of {step.partition(',')[0]}.",
        evidence=plain(own.groupby(["rank", "phase", "step"], observed=True)["ns"].sum().reset_index().head(12)),
        recommendation=advice,
        caveat="Of collectives with one root, and of uneven all-to-alls, a wait may be part of the time.",
        gain_ns=gain.gain_ns,
        gain_error_ns=gain.error_ns,
        gain_is_bound=gain.is_bound or not told.is_as_usual,
        unprofiled_gain_ns=gain.unprofiled_gain_ns,
        changes=changed(gain),
        is_of_ideal=other_ns is None,  # else the other steps have what is gained
        steps=few or None,
        table="exposed_calls",
        part_of=None if few else EXPOSED,
    )


def _how_often(every: pd.DataFrame, per: int, each: str) -> str:
    """Calls of the rank that has most; nothing where no step is known to have launched them."""
    return f" ({every.groupby('rank').size().max() / per:.3g} {each})" if len(every) else ""


def _advised(told: _Told, kernels: Kernels, tools: Tools) -> str:
    is_own = is_of_own_kernels(kernels, told.name)
    return _advice(told.name, _phase(told.own), told.every, tools, is_own=is_own)


def _advice(collective: str, phase: str | None, every: pd.DataFrame, tools: Tools, *, is_own: bool = False) -> str:
    """How it is hidden; of gradients that are known to have four bytes and more, that they may have two.

    `is_own`: its kernels are no library's of collectives.
    """
    if collective in tools.hide_comm:
        return tools.hide_comm[collective]
    if is_own:
        return tools.hide_own_comm
    hide = tools.hide_comm.get(phase or "", tools.hide_any_comm)
    own = every[every["dtype"].notna()]
    sizes = own.groupby(own["dtype"].astype("object"))["size_bytes"].sum()
    is_wide = len(sizes) > 0 and (dtype_bytes(str(sizes.idxmax())) or 0) >= _WIDE_BYTES
    return f"{hide} Or reduce in 16 bits." if phase == "backward" and is_wide else hide


def _phase(own: pd.DataFrame) -> str | None:
    """Where most of the time is, if that is known."""
    by_phase = own.groupby(own["phase"].astype("object"))["ns"].sum()
    if by_phase.empty or by_phase.max() < MOSTLY * own["ns"].sum() or str(by_phase.idxmax()) == "unattributed":
        return None
    return str(by_phase.idxmax())


def _few_steps(own: pd.DataFrame, basis: Basis) -> tuple[int, ...]:
    """The steps that hold most of it, where they are less than half of several."""
    by_step = own.groupby("step")["ns"].sum().reindex(list(basis.numbers), fill_value=0.0).sort_values(ascending=False)
    count = int((by_step.cumsum() < _IN_FEW * by_step.sum()).sum()) + 1
    is_few = 2 * count < len(basis.numbers) and by_step.iloc[:count].min() > 2 * by_step.iloc[count:].max()
    return tuple(sorted(int(step) for step in by_step.index[:count])) if is_few else ()


# Communication that could be hidden, faster, or fewer.


LEAST_TRANSFER_PCT = 5.0
"""Exposed transfer below this share of a step is not worth hiding."""

LITTLE_OVERLAP_PCT = 10.0

_SEVERAL = 2
"""Of so many one can be made."""

_OF_GRADIENTS = ("backward", "optimizer")
"""Phases whose small collectives can be joined: nothing in them needs the result of one before the next is made."""

_FREE = Change("comm", 0.0)


def little_overlap(
    headline: Headline, steps: Steps, exposed_comm: ExposedComm, exposed_calls: ExposedCalls, call_waits: CallWaits,
    replay: Replay, collectives: Collectives, ranks: Ranks, kernels: Kernels, iterations: Iterations,
    operators: Operators,
    *, unhidden_transfer_pct: float = LEAST_TRANSFER_PCT, little_overlap_pct: float = LITTLE_OVERLAP_PCT,
    low_peak_pct: float = LOW_PEAK_PCT,
) -> list[Finding]:  # fmt: skip
    """Data moves in over 5 % of a step while no compute runs, and no rank overlaps a tenth of its communication.

    The gain is at most that of the replay in which transfers take no time (hosts that bind leave little of it), and no
    step is shorter than what it moves. What it would gain of a job whose hosts take no time is said then, where that is
    a part of a step worth saying. Where a slow collective would gain most of it at a healthy rate, it is part of that.
    """
    rows = [row for row in headline.rows() if row["overlap_pct"] is not None]
    overlap = max((row["overlap_pct"] for row in rows), default=None)
    if overlap is None or overlap >= little_overlap_pct:
        return []
    basis, worst = Basis.of(headline, steps), _per_step(exposed_comm)
    if worst is None or worst["pct"] < unhidden_transfer_pct:
        return []
    gain = _no_shorter_than(worst["ns"], gain_of(replay, _FREE))
    won, before_ns = _won_of(gain, worst)
    share = 100 * won / before_ns
    behind = "" if share >= LEAST_GAIN_PCT else _behind_hosts(replay, worst["ns"], unhidden_transfer_pct)
    if share < LEAST_GAIN_PCT and not behind:
        return []
    tools = tools_of(ranks, kernels, iterations, operators=operators)
    advice = tools.hide_own_comm if is_of_own_kernels(kernels) else tools.start_early
    whole = f"{with_article(time_text(worst['window_ns']))} {'capture' if basis.steps is None else 'step'}"
    return [
        Finding(
            severity=severity(share),
            title=f"Next to nothing overlaps: rank {worst['rank']:.0f} moves data for {time_text(worst['ns'])} of "
            f"{with_article(time_text(worst['window_ns']))} {'capture' if basis.steps is None else 'step'} "
            f"while no compute runs{_open(worst)}{_mostly(exposed_calls, call_waits, worst, basis)} "
            f"({overlap:.0f} % of communication is hidden).{_hidden(gain, basis)}{behind}",
            summary=f"Communication hardly overlaps compute: {time_text(worst['ns'])} of {whole} exposed.",
            evidence=tuple(rows),
            recommendation=_once_hosts_launch(advice, behind),
            caveat="Time that ranks spend waiting for each other is not in this figure; overlap does not remove it.",
            gain_ns=gain.gain_ns if gain else round(worst["ns"]),
            gain_error_ns=gain.error_ns if gain else None,
            unprofiled_gain_ns=gain.unprofiled_gain_ns if gain else None,
            changes=changed(gain),
            named=(int(worst["rank"]),),
            is_of_ideal=True,
            about=EXPOSED,
            part_of=_slow_link(collectives, replay, won, low_peak_pct),
        )
    ]


def _once_hosts_launch(advice: str, behind: str) -> str:
    """What to do; first, where hosts decide a step's length, what of it comes before."""
    return f"Once hosts launch sooner, {advice[0].lower()}{advice[1:]}" if behind else advice


def _won_of(gain: Gain | None, worst: pd.Series) -> tuple[int, float]:
    """What hiding gains, with the profiler or without, and of what; all that is exposed where no replay tells."""
    if gain is None:
        return round(worst["ns"]), float(worst["window_ns"])
    return max(gain.gain_ns, gain.unprofiled_gain_ns or 0), gain.before_ns


def _slow_link(collectives: Collectives, replay: Replay, won_ns: int, low_peak_pct: float) -> str | None:
    """What is said of slow collectives, as findings call it, where one would gain most of this at a healthy rate."""
    names = transfer_kinds(collectives.table["collective"].dropna()).unique() if len(collectives) else ()
    for name in names:
        faster = healthy_rate(collectives, str(name), low_peak_pct)
        gain = gain_of(replay, faster) if faster else None
        if gain is not None and gain.gain_ns >= MOSTLY * won_ns > 0:
            return SLOW_LINKS
    return None


def _no_shorter_than(moved_ns: float, gain: Gain | None) -> Gain | None:
    """The gain where what moves data goes on beside the compute: a step is as long as that at least."""
    if gain is None:
        return None
    of_unprofiled = gain.unprofiled_ns and (gain.unprofiled_ns[0], max(gain.unprofiled_ns[1], round(moved_ns)))
    return replace(gain, after_ns=max(gain.after_ns, round(moved_ns)), unprofiled_ns=of_unprofiled)


def _open(worst: pd.Series) -> str:
    """What is not in the figure but in the gain: tokens to and from experts, collectives of one root."""
    if not worst["open_ns"] > worst["ns"]:
        return ""
    return f", and communicates for {time_text(worst['open_ns'])} more that may be data or waiting"


def _mostly(exposed_calls: ExposedCalls, call_waits: CallWaits, worst: pd.Series, basis: Basis) -> str:
    """Which collective most of it is, where one is."""
    if exposed_calls.table.empty:
        return ""
    held = exposed_transfers(exposed_calls, call_waits, basis)
    own = held[held["rank"] == worst["rank"]].groupby("collective", observed=True)["ns"].sum()
    is_one = len(own) and own.max() >= MOSTLY * own.sum() > 0
    return f", most of it in {collectives_words(str(own.idxmax()))}" if is_one else ""


def _behind_hosts(replay: Replay, moved_ns: float, least_pct: float) -> str:
    """What hiding gains where hosts take no time; empty where that is no part of such a step worth saying."""
    hosts = Change("host", 0.0)
    before, after = gain_of(replay, hosts), _no_shorter_than(moved_ns, gain_of(replay, hosts, _FREE))
    if before is None or after is None:
        return ""
    won = before.after_ns - after.after_ns
    if 100 * won < least_pct * before.after_ns:
        return ""
    who = who_decides(before, gain_of(replay, Change("data", 0.0)))
    decide, hosts_are = ("decide", "they") if who == HOSTS else ("decides", "hosts")
    length, one = f"{step_or_capture(before.steps)}'s length", "one of" if (before.steps or 0) > 1 else "its"
    return (
        f" {first_upper(who)} {decide} {length}: if {hosts_are} took no time, hiding it would make "
        f"{one} {time_text(before.after_ns)} {Won(won, is_bound=True)}."
    )


def _hidden(gain: Gain | None, basis: Basis) -> str:
    if gain is None:
        return ""
    return f" With all of it hidden {basis.whole} is {Won.of(gain, is_bound=True)}."


def many_small_collectives(
    call_waits: CallWaits,
    headline: Headline,
    steps: Steps,
    replay: Replay,
    ranks: Ranks,
    kernels: Kernels,
    iterations: Iterations,
    operators: Operators,
    call_phases: CallPhases,
    *,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:
    """A step would be 3 % shorter and more if collectives of at most 1 MiB took no time: what they cost is latency.

    Told with the kind and rank of which it is most. Those that run beside compute, or for which hosts have no time,
    gain nothing, however many there are. Those of a model that trains are not gradients to be joined where neither its
    backward pass nor its optimizer calls them, and calls of these are known: what follows needs each result.
    """
    calls = call_waits.table
    gain = gain_of(replay, Change("small"))
    if calls.empty or not len(headline) or gain is None:
        return []
    share_pct = gain.gain_pct
    basis = Basis.of(headline, steps)
    small = rows_where(calls, are_small(calls))
    # A capture without complete steps is one whole, whatever else in it has the number of a step.
    step = pd.Series(0, small.index) if basis.steps is None else small["step"]
    if not step.notna().any() or share_pct < clear_gain_pct:
        return []
    duration = small["end_ns"] - small["start_ns"]
    shortest = duration.groupby(small["instance"]).transform("min")
    moved = small["transfer_ns"].fillna(shortest).fillna(duration)
    by_step = moved.groupby([small["collective"], small["rank"], step]).agg(["size", "sum"])
    if basis.steps is not None:
        by_step = by_step[by_step.index.get_level_values("step").isin(basis.numbers)]
    by_step["held"] = 1
    sums = by_step.groupby(["collective", "rank"]).sum()
    means = sums.assign(size=sums["size"] / sums["held"], sum=sums["sum"] / (basis.steps or sums["held"]))
    several = means[means["size"] >= _SEVERAL].reset_index().sort_values("sum", kind="stable")
    tools = tools_of(ranks, kernels, iterations, operators=operators)
    return [
        _many_small(row, gain, share_pct, basis, tools.speed_small if is_within else tools.join_small)
        for row in several.tail(1).to_dict("records")
        for is_within in [_are_within_passes(rows_where(small, small["collective"] == row["collective"]), call_phases)]
    ]


def _are_within_passes(small: pd.DataFrame, call_phases: CallPhases) -> bool:
    """Whether most are of no pass that makes or takes gradients, in a job that communicates in one that does."""
    phases = call_phases.table
    of_gradients = phases["phase"].isin(_OF_GRADIENTS)
    own = small[["rank", "call"]].merge(phases[of_gradients][["rank", "call"]], on=["rank", "call"])
    return bool(of_gradients.any()) and len(own) < MOSTLY * len(small)


def _many_small(row: dict[str, float], gain: Gain, share_pct: float, basis: Basis, advice: str) -> Finding:
    """Steps without any are told: the time is then of a mean step, the count of those that have some."""
    name = collectives_words(row["collective"])
    is_in_all = basis.steps is None or row["held"] >= basis.steps
    when = basis.a_step if is_in_all else f"in each of {row['held']:.0f} of {basis.steps} steps"
    mean = "altogether" if is_in_all else f"of {basis.whole}"
    return Finding(
        severity=severity(share_pct),
        title=f"Rank {row['rank']} runs {row['size']:.0f} {name} of at most 1 MiB {when}, "
        f"{time_text(round(row['sum']))} {mean}. If small collectives took no time, {basis.whole} would be "
        f"{Won.of(gain, is_bound=True)}.",
        evidence=(
            {"collective": row["collective"], "rank": int(row["rank"]), "calls_per_step": row["size"],
             "time_per_step_ns": round(row["sum"])},
        ),
        recommendation=advice,
        caveat="The gain is that of none at all: what fewer and larger ones, or faster ones, still take is not in it.",
        gain_ns=gain.gain_ns,
        gain_error_ns=gain.error_ns,
        unprofiled_gain_ns=gain.unprofiled_gain_ns,
        changes=changed(gain),
        named=(int(row["rank"]),),
        part_of=EXPOSED,
        tells_why=True,
    )  # fmt: skip


def _per_step(exposed_comm: ExposedComm) -> pd.Series | None:
    """The rank with most exposed transfer a step: `rank`, `ns`, `window_ns`, `pct`; the capture's without steps.

    `open_ns` is exposed communication of which it cannot be told whether it is transfer.
    """
    table = exposed_comm.table
    if table.empty:
        return None
    complete = complete_steps(table)
    held = complete if len(complete) else table[table["step"].isna()]
    columns = {"exposed_transfer_ns": "ns", "exposed_unmatched_ns": "open_ns", "window_ns": "window_ns"}
    means = held.groupby("rank")[[*columns]].mean().reset_index().rename(columns=columns)
    means = means.assign(pct=100 * means["ns"] / means["window_ns"].where(means["window_ns"] > 0))
    return means.sort_values("ns").iloc[-1]


# Overlap is not free: kernels beside communication take longer than the same kernels alone.


_SURE = 2
"""Times the replay's error."""


def contention(
    headline: Headline,
    steps: Steps,
    replay: Replay,
    *,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:
    """Compute at the speed of the same kernels without communication beside them: a step shorter by over 3 %."""
    if not len(headline):
        return []
    gain = gain_of(replay, Change("compute", ALONE))
    if gain is None or not gain.before_ns:
        return []
    share = gain.gain_pct
    if share < clear_gain_pct or gain.gain_ns < _SURE * gain.error_ns:
        return []
    of = Basis.of(headline, steps).whole
    return [
        Finding(
            severity=severity(share),
            title=Title(
                f"Compute is slower beside communication: with the same kernels as fast as alone, {of} would be ",
                Won.recorded(gain),
                f" ({share:.0f} %).",
            ),
            recommendation="Give communication fewer multiprocessors of the GPU (NCCL_MAX_CTAS, collectives by copy "
            "engines), or move it beside kernels that leave some free; compare a step with less overlap.",
            caveat="Each kernel is compared with the median of the same work (kernel, operator, shapes and element "
            "types) without communication beside it. Not both can be had: communication that no compute hides costs "
            "time itself.",
            **gained(gain),
            is_of_ideal=True,
        )
    ]


# Rule about NCCL's log beside what the trace measured.


PCIE_MOST_GBPS = 64.0
"""One direction of PCIe 5.0 x16, decimal GB/s: what shared memory on one host carries at most."""

_BY_HOST_MEMORY = ("SHM",)


def log_of_another_run(collectives: Collectives, *, pcie_most_gbps: float = PCIE_MOST_GBPS) -> list[Finding]:
    """Bandwidths that the transport of NCCL's log cannot carry: the log is of another run."""
    table = collectives.to_frame()
    if table.empty or table["transport"].isna().all():
        return []
    is_host = is_true(table["transport"].map(_is_through_the_host, na_action="ignore"))
    found = table[is_host & (table["busbw_gbps"] > pcie_most_gbps).fillna(value=False)]
    if found.empty:
        return []
    most = found.sort_values("busbw_gbps").iloc[-1]
    return [
        Finding(
            severity="medium",
            title=f"NCCL's log says {most['transport']}, which goes over PCIe, but "
            f"{collectives_words(most['collective'])} reach {most['busbw_gbps']:.0f} GB/s: the log is not of this run.",
            evidence=plain(found),
            recommendation="Give the log of the captured run (--nccl-log), or none.",
            caveat=f"PCIe 5.0 x16 carries {PCIE_MOST_GBPS:.0f} GB/s a direction; a newer PCIe carries more.",
        )
    ]


def taken(row: Mapping[str, object]) -> str:
    """What is known of the way that a group's data takes, as the end of a sentence; empty where nothing is."""
    path, transport = row["path"], row["transport"]
    told = [
        f"NCCL's log says {transport}" if isinstance(transport, str) else "",
        f"the topology {path}" if isinstance(path, str) else "",
    ]
    said = " and ".join(text for text in told if text)
    return f" {first_upper(said)} between these ranks." if said else ""


def _is_through_the_host(transport: str) -> bool:
    return all(name.split("/")[0] in _BY_HOST_MEMORY for name in transport.split(", "))


# What a step would take if some communication calls moved nothing, or moved it sooner.


def gain_without(engine: Engine, calls: pd.DataFrame) -> Gain:
    """The job with the transfers of these calls gone (`rank` and `call` of each)."""
    keys = pd.MultiIndex.from_frame(calls[["rank", "call"]].astype("int64"))
    is_gone = pd.MultiIndex.from_frame(engine.job.joins[["rank", "call"]].astype("int64")).isin(keys)
    return gain_of_transfers(engine, np.where(is_gone, 0, engine.job.recorded.transfer_ns))


def gain_of_transfers(engine: Engine, transfer_ns: np.ndarray) -> Gain:
    """The job with transfers of these lengths, one for each row of its `joins`; none may be longer than recorded."""
    job, recorded = engine.job, engine.job.recorded
    is_other = transfer_ns < recorded.transfer_ns
    timing = {}
    for rank, own in recorded.timing.items():
        rows = job.joins_of(rank)
        rows = rows[is_other[rows]]
        longest = np.zeros_like(own.duration_ns)
        op = job.joins["op"].to_numpy()[rows]
        np.maximum.at(longest, op, transfer_ns[rows])
        duration = own.duration_ns.copy()
        duration[op] = np.minimum(duration[op], longest[op])
        timing[rank] = replace(own, duration_ns=duration)
    return engine.gain_of(replace(recorded, timing=timing, transfer_ns=transfer_ns))
