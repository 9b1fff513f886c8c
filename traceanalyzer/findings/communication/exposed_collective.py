"""The collective that ranks do nothing beside: which, where in the step, and what the step would take without it."""

from dataclasses import replace

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.collectives import Collectives, transfer_kinds
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.phases.exposed_calls import ExposedCalls
from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.analyses.replay.change import USUAL, Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of, gains_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import MOSTLY, Basis, plain, severity
from traceanalyzer.findings.capture.unmatched import PARTNERS
from traceanalyzer.findings.communication.own_kernels import is_of_own_kernels
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.late.lateness import of_lead, of_slow_links, said
from traceanalyzer.findings.link_rates import LOW_PEAK_PCT, SLOW_LINKS, healthy_rate
from traceanalyzer.findings.tools import Tools, tools_of
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.kinds import MESSAGES, dtype_bytes
from traceanalyzer.meaning.listed import listed
from traceanalyzer.meaning.names import collectives_words
from traceanalyzer.meaning.quantities import time_span, time_text
from traceanalyzer.meaning.sentences import first_upper, with_article

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
        evidence=plain(own.groupby(["rank", "phase", "step"], observed=True)["ns"].sum().reset_index().head(12)),
        recommendation=advice,
        caveat="Of collectives with one root, and of uneven all-to-alls, a wait may be part of the time.",
        gain_ns=gain.gain_ns,
        gain_error_ns=gain.error_ns,
        gain_is_bound=gain.is_bound or not told.is_as_usual,
        unprofiled_gain_ns=gain.unprofiled_gain_ns,
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
