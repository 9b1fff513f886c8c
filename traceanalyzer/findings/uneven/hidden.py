"""What binds the step next: a rank that is slower behind what is said first, told by the job replayed without that."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.excess import more_work_ns, named
from traceanalyzer.analyses.blame.step_budget import StepNeeds, WhatRan
from traceanalyzer.analyses.grouping import by_step_and_rank
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.replay.changes import PEERS, Change, Changeable, read_change
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of, gains_of
from traceanalyzer.analyses.spread import median_of_others
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, Basis, plain, severity
from traceanalyzer.findings.finding import Finding, changed
from traceanalyzer.findings.hosts.idle import DATA_PCT, LOADER
from traceanalyzer.findings.hosts.launch_bound import HOST_PCT
from traceanalyzer.findings.shares import worst_rank
from traceanalyzer.findings.statistics import of_the_others, the_others
from traceanalyzer.findings.stragglers.stragglers import HOSTS, of_lead, said
from traceanalyzer.findings.stragglers.wording import whose
from traceanalyzer.meaning.columns import numbers, time_text
from traceanalyzer.meaning.vocabulary import DATA, HOST, rate

LEAST_ALONE_PCT = 1.0
"""Of a step without the profiler: what gains less there hides nothing, what gains more is not hidden."""

LEAST_EXCESS_PCT = 3.0
"""Of a step, by which a rank needs more than its peers."""

_STEADY = 0.3
"""Of its median excess a rank has this much in every step, or it is noise."""

_SAME_WORK_SLOWER = 1.1

_MOST_CANDIDATES = 8

_MOST_OF_IT = 0.5

_ABOUT_AS_MUCH = 0.9

_PARTS: Mapping[Changeable, str] = {"compute": "compute_ns", "host": "needed_host_ns"}

_ALONE = {
    "compute": "Give rank {} as much to compute as the others.",
    "host": "Compare what rank {}'s host does in a step with what the others' do.",
}


class First(Struct, frozen=True):
    """What is mended first: the changes, how that is said, which ranks it names, what findings about it are called."""

    changes: tuple[Change, ...]
    words: str
    ranks: tuple[int, ...]
    about: str


class Slower(Struct, frozen=True):
    """A rank whose compute or host needs more than its peers' in every step."""

    rank: int
    part: Changeable
    own_ns: float
    peers_ns: float


def hidden_late(
    headline: Headline, steps: Steps, idle: Idle, step_needs: StepNeeds, what_ran: WhatRan, episodes: Episodes,
    replay: Replay, *, clear_gain_pct: float = CLEAR_GAIN_PCT, hidden_excess_pct: float = LEAST_EXCESS_PCT,
    data_idle_pct: float = DATA_PCT, host_idle_pct: float = HOST_PCT,
) -> list[Finding]:  # fmt: skip
    """With the first cause mended, another rank would cost at least 3 % of a step: now it is hidden behind that cause.

    First is what gains most of: the late ranks, data, hosts. A rank is slower by work that its peers do not have, or by
    the same kernels where it waits no longer than they do: compute beside a wait takes longer by itself. Where the
    first costs nothing without the profiler the other one is not hidden there: it stands for itself.
    """
    if replay.engine is None or len(headline) < 2 or not len(step_needs):
        return []
    basis = Basis.of(headline, steps)
    needs = basis.within(step_needs.table)
    if basis.steps is None or needs.empty:
        return []
    firsts = list(_firsts(headline, steps, idle, episodes, data_idle_pct, host_idle_pct))
    gains = gains_of(replay, [first.changes for first in firsts]) or []
    if not gains:
        return []
    gain, first = _most_gained(gains, firsts)
    are_said = {(rank, row["cause"]) for row in said(episodes) for rank in numbers(row["ranks"])}
    slower = _slower(needs, hidden_excess_pct / 100 * gain.before_ns, what_ran.table, are_said)
    most_ns, one = _costliest(replay, first, gain, slower)
    if one is None or 100 * most_ns < clear_gain_pct * gain.before_ns:
        return []
    alone = gain_of(replay, _as_peers(one))
    assert alone is not None
    who = _title(one, what_ran.table, needs, len(headline))
    found = Finding(
        severity="medium",
        title=f"{who}: hidden behind {first.words} now; with that mended, it costs "
        f"{time_text(most_ns)}{rate(gain.steps)}.",
        evidence=plain(needs[needs["rank"] == one.rank][["rank", "step", "compute_ns", "needed_host_ns"]]),
        recommendation=f"Mend {first.words} first, then this.",
        caveat="Two changes of one replay: its error holds for both.",
        gain_ns=alone.gain_ns,
        gain_error_ns=alone.error_ns,
        gain_is_bound=alone.is_bound,
        changes=changed(alone),
        named=tuple(dict.fromkeys((one.rank, *_peer(one.rank, needs, len(headline)), *first.ranks))),
        is_of_hosts=one.part == HOST.key,
        table="what_ifs",
        part_of=first.about,
    )
    is_recorded_so = _pct_without_profiler(gain) < LEAST_ALONE_PCT <= _pct_without_profiler(alone)
    return [_by_itself(found, who, one, first, alone) if is_recorded_so else found]


def _most_gained(gains: Sequence[Gain], firsts: Sequence[First]) -> tuple[Gain, First]:
    """What gains most; late ranks before all loaders or hosts, where both gain about as much."""
    most_ns = max(gain.gain_ns for gain in gains)
    return next(pair for pair in zip(gains, firsts, strict=True) if pair[0].gain_ns >= _ABOUT_AS_MUCH * most_ns)


def _costliest(replay: Replay, first: First, gain: Gain, slower: Sequence[Slower]) -> tuple[int, Slower | None]:
    """What the one of these costs that costs most once the first cause, which gains this, is mended."""
    both = gains_of(replay, [(*first.changes, _as_peers(one)) for one in slower]) or []
    costs = [(gain.after_ns - each.after_ns, one) for each, one in zip(both, slower, strict=True)]
    return max(costs, key=lambda pair: pair[0], default=(0, None))


def _by_itself(found: Finding, who: str, one: Slower, first: First, alone: Gain) -> Finding:
    """The finding of a rank that only the profiler hides."""
    return replace(
        found,
        severity=severity(_pct_without_profiler(alone)),
        title=f"{who}: hidden behind {first.words} while they are recorded; without the profiler {alone.whole} is an "
        f"estimated {time_text(alone.unprofiled_gain_ns or 0)} shorter with that mended.",
        recommendation=_ALONE[one.part].format(one.rank),
        unprofiled_gain_ns=alone.unprofiled_gain_ns,
        ranks=(one.rank,),
        cause=one.part,
        part_of=None,
    )


def _pct_without_profiler(gain: Gain) -> float:
    """The gain as a share of a step without the profiler; NaN where that is not known."""
    if gain.unprofiled_ns is None or gain.unprofiled_gain_ns is None or gain.is_bound:
        return float("nan")
    return 100 * gain.unprofiled_gain_ns / max(gain.unprofiled_ns[0], 1)


def _as_peers(one: Slower) -> Change:
    return Change(one.part, PEERS, frozenset({one.rank}))


def _firsts(
    headline: Headline, steps: Steps, idle: Idle, episodes: Episodes, data_pct: float, host_pct: float
) -> Iterator[First]:
    for row in said(episodes):
        if row["what_if"] and row["gain_ns"]:
            changes = tuple(map(read_change, row["what_if"].split("; ")))
            yield First(changes, whose(row), numbers(row["ranks"]), of_lead(episodes, row))
    if worst_rank(headline, steps, idle, DATA.column, data_pct):
        yield First((Change("data", 0.0),), "data", (), LOADER)
    if worst_rank(headline, steps, idle, HOST.column, host_pct):
        yield First((Change("host", 0.0),), "the hosts", (), HOSTS)


def _slower(
    needs: pd.DataFrame, least_ns: float, work: pd.DataFrame, said: Collection[tuple[int, str]]
) -> list[Slower]:
    """Ranks that need more than the median of the others that do the same, most beyond it first; not who is `said`."""
    found = []
    for part, column in _PARTS.items():
        wide = by_step_and_rank(needs, column).dropna(axis=1)
        alike = needs.drop_duplicates("rank").set_index("rank")["peers"].reindex(wide.columns)
        for _, columns in wide.T.groupby(alike):
            group = columns.T
            if group.shape[1] < 2:
                continue
            peers = pd.DataFrame(median_of_others(group.to_numpy().T).T, group.index, group.columns)
            excess = group - peers
            middle = excess.median()
            is_more = (middle >= least_ns) & (excess.min() >= _STEADY * middle)
            own_ns, peers_ns = group.mean(), peers.mean()
            found += [
                (Slower(int(rank), part, float(own_ns[rank]), float(peers_ns[rank])), group.columns)
                for rank in group.columns[is_more] if (rank, part) not in said
            ]  # fmt: skip
    found.sort(key=lambda each: (each[0].peers_ns - each[0].own_ns, each[0].rank))
    # Whether it is its own work is asked of as few as needed: each answer looks at the work of all ranks.
    own = (one for one, peers in found if one.part != "compute" or _is_own(needs, work, one.rank, peers.drop(one.rank)))
    return list(islice(own, _MOST_CANDIDATES))


def _is_own(needs: pd.DataFrame, work: pd.DataFrame, rank: int, others: pd.Index) -> bool:
    """Whether it computes something else, or the same for longer without waiting longer."""
    cell = _named(needs, work, rank)
    is_named = cell["name"] is not None and pd.isna(cell["same_ns"])  # else the same work, slower in that part
    if is_named or _has_more_work(needs, work, rank):
        return True
    waited = needs.groupby("rank")[["exposed_wait_ns", "exposed_unmatched_ns"]].sum().sum(axis=1)
    ratio = cell["same_ns"] / cell["peers_same_ns"] if cell["peers_same_ns"] else float("nan")
    return bool(ratio >= _SAME_WORK_SLOWER and waited[rank] <= waited[others].median())


def _has_more_work(needs: pd.DataFrame, work: pd.DataFrame, rank: int) -> bool:
    """Whether more or larger kernels make half of what it computes longer."""
    wide = by_step_and_rank(needs, "compute_ns")
    others = [other for other in wide if other != rank]
    excess = (wide[rank] - wide[others].median(axis=1)).sum()
    return bool(more_work_ns(work, rank, others, [int(step) for step in wide.index]).sum() >= _MOST_OF_IT * excess)


def _named(needs: pd.DataFrame, work: pd.DataFrame, rank: int) -> pd.Series:
    """What the rank computes longer in its first step, or which the same kernels are."""
    late = needs.assign(step=needs["step"].astype("int64"))
    wide = by_step_and_rank(late, "compute_ns")
    excess = wide[rank] - wide.drop(columns=rank).median(axis=1)
    step = int(excess.idxmax())
    cells = pd.DataFrame({"rank": [rank], "step": [step], "part": ["compute_ns"], "excess_ns": [round(excess[step])]})
    return named(cells, late, work).iloc[0]


def _peer(rank: int, needs: pd.DataFrame, ranks: int) -> tuple[int, ...]:
    """The other one of two ranks."""
    return tuple(int(other) for other in needs["rank"].unique() if other != rank) if ranks == 2 else ()


def _title(one: Slower, work: pd.DataFrame, needs: pd.DataFrame, ranks: int) -> str:
    only = _peer(one.rank, needs, ranks)
    beside = the_others(only)
    own, peers = time_text(one.own_ns), time_text(one.peers_ns)
    if one.part == "host":
        return f"Rank {one.rank}'s host needs {own} a step, {of_the_others(only)} {peers}"
    name = _named(needs, work, one.rank)["name"]
    called = f", most of it {name}" if isinstance(name, str) else ""
    if not called and _has_more_work(needs, work, one.rank):
        called = " (more or larger operators)"
    return f"Rank {one.rank} computes {own} a step, {beside} {peers}{called}"
