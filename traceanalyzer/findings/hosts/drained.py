"""Launch queues that run dry because hosts wait for their GPUs: what the job gains without those waits."""

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.blame.what_ran import WhatRan
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.host.sync_calls import SyncCalls
from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.streams.sync_copies import SyncCopies
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.alike import AS_LONG, alike, named, of_them, one_by_one
from traceanalyzer.findings.basis import Basis, mean_steps, plain, severity
from traceanalyzer.findings.finding import PAGEABLE, Finding
from traceanalyzer.findings.hosts.hosts import DRAINED, longest_name
from traceanalyzer.findings.late.host_story import HOSTS
from traceanalyzer.findings.late.lateness import late_by
from traceanalyzer.findings.tools import tools_of
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.vocabulary import DATA, HOST, SYNC

LEAST_PCT = 2.0
"""Of a step; what synchronising less gains below that is not worth a finding."""

_LAUNCHING = (
    host_names.is_launch,
    host_names.is_autograd_node,
    lambda name: "::" in name and not name.startswith("c10d::"),  # one that takes long runs on the CPU
)

_COPYING = ("aten::copy_", "aten::_to_copy", "aten::to")

_PIN = (
    "Copy from pinned host memory (DataLoader(pin_memory=True), tensor.pin_memory()) with non_blocking=True: from "
    "pageable memory each copy is waited for."
)

_SURE = 3
"""Times the replay's error."""


def drained_queues(
    headline: Headline,
    steps: Steps,
    sync_calls: SyncCalls,
    idle: Idle,
    what_ran: WhatRan,
    episodes: Episodes,
    replay: Replay,
    places: Places,
    sync_copies: SyncCopies,
    ranks: Ranks,
    iterations: Iterations,
    *,
    drained_pct: float = LEAST_PCT,
) -> list[Finding]:
    """Without the hosts' waits for their GPUs a step is over 2 % shorter, and hosts could gain little otherwise.

    The GPU idles after such a call until its host has launched again, however short the call itself, and the host's
    lead is gone for what it does later. Where a host does something else for most of that time, or of what hosts cost
    by these waits, that is to be named: the rules about hosts and data do. Of a rank that is late by its host, or by
    the copies from pageable memory that it waits for, it is a part of what is said; so it is of what is said of such
    copies.
    """
    gain, ideal = gain_of(replay, Change("sync")), gain_of(replay, Change("host"))
    if not len(sync_calls) or not len(headline) or gain is None or ideal is None or gain.is_bound:
        return []
    share = gain.gain_pct
    if share < drained_pct or gain.gain_ns < max(_SURE * gain.error_ns, DRAINED * ideal.gain_ns):
        return []
    basis = Basis.of(headline, steps)
    calls = _that_idle(_of_job(basis.within(sync_calls.to_frame())))
    if calls.empty:
        return []
    idles = calls.groupby("rank")["idle_ns"].sum() / basis.per
    idles = idles[idles >= AS_LONG * idles.max()]
    worst = int(idles.idxmax())
    cost_ns = max(float(idles[worst]), _of_hosts_ns(replay, gain, ideal))
    if _do_something_else(idle, what_ran, basis, cost_ns):
        return []
    other = tools_of(ranks, None, iterations).wait_less
    return [_found(gain, idles, calls, basis, places, sync_copies, episodes, other)]


def _found(
    gain: Gain,
    idles: pd.Series,
    calls: pd.DataFrame,
    basis: Basis,
    places: Places,
    sync_copies: SyncCopies,
    episodes: Episodes,
    other: str,
) -> Finding:
    """What is said of the rank that idles longest for these calls, and of those like it."""
    worst = int(idles.idxmax())
    own = calls[calls["rank"] == worst].sort_values("idle_ns", ascending=False, kind="stable")
    of_copies = _are_of_pageable_copies(own, sync_copies)
    late = late_by(episodes, worst, HOST.key, DATA.key, SYNC.key, *(["copies"] if of_copies else []))
    expected_ns = gain.gain_ns if gain.unprofiled_gain_ns is None else gain.unprofiled_gain_ns
    return Finding(
        severity=severity(100.0 * expected_ns / gain.before_ns),
        title=Title(
            f"{_who(idles, basis, places)} {basis.times(float(own['calls'].sum()))} ({_where(own)})"
            f"{_then(idles, gain.gain_ns, basis, places)} Without these waits the hosts run ahead, and {basis.whole} "
            "is ",
            Won.of(gain),
            ".",
        ),
        evidence=plain(_by_place(own)),
        recommendation=_PIN
        if of_copies
        else other
        or f"Take {_where(own)} out of the step: keep values on the GPU, read them every N steps or "
        "from a copy that is waited for later; time with events instead of synchronising.",
        caveat=None if of_copies else "The gain supposes that nothing in the step needs the values waited for.",
        gain_ns=gain.gain_ns,
        gain_error_ns=gain.error_ns,
        gain_is_bound=False,
        unprofiled_gain_ns=gain.unprofiled_gain_ns,
        named=_named(idles, gain.gain_ns, basis, places),
        table="sync_calls",
        about=HOSTS,
        part_of=late or (PAGEABLE if of_copies else None),
    )


def _that_idle(calls: pd.DataFrame) -> pd.DataFrame:
    """Calls in or after which the GPU idles, with that time."""
    calls = calls.assign(idle_ns=calls["idle_in_call_ns"] + calls["idle_after_ns"])
    return calls[calls["idle_ns"] > 0]


def _of_job(calls: pd.DataFrame) -> pd.DataFrame:
    """Without those by which DDP times itself, in its first ten iterations and then in every hundredth."""
    is_own = (calls["name"].map(host_names.waits_for) == host_names.FOR_EVENT) & (
        calls["range"] == "DistributedDataParallel.forward"
    )
    return calls[~(is_true(is_own) & calls["operator"].isna())]


def _are_of_pageable_copies(own: pd.DataFrame, sync_copies: SyncCopies) -> bool:
    """Whether a rank waits in copies alone, those from pageable host memory that its table of copies has."""
    table = sync_copies.table
    if table.empty:
        return False
    is_pageable = (table["problem"] == "pageable") & (table["operation"] == "HtoD")
    has_some = (is_pageable & (table["rank"] == own["rank"].iloc[0])).any()
    return bool(has_some and own["operator"].isin(_COPYING).fillna(value=False).all())


def _of_hosts_ns(replay: Replay, gain: Gain, ideal: Gain) -> int:
    """What the hosts' time costs by the waits alone: less without them, and nothing if hosts took no time.

    What is left of the gain is of work that waits for the calls themselves, such as the next step's exchanges.
    """
    both = gain_of(replay, Change("sync"), Change("host"))
    return gain.gain_ns + ideal.gain_ns - both.gain_ns if both else 0


def _do_something_else(idle: Idle, what_ran: WhatRan, basis: Basis, cost_ns: float) -> bool:
    """Whether one thing keeps a host for most of what this costs that is neither an operator nor a launch."""
    means = mean_steps(idle, basis, [HOST.column, DATA.column]).fillna(0.0)
    if (2 * means[DATA.column] >= cost_ns).any():
        return True
    for rank, host_ns in means.loc[2 * means[HOST.column] >= cost_ns, HOST.column].items():
        name = longest_name(what_ran.table, int(rank), float(host_ns), basis)
        if name is not None and not any(is_launching(name[0]) for is_launching in _LAUNCHING):
            return True
    return False


def _who(idle: pd.Series, basis: Basis, places: Places) -> str:
    ranks = len(basis.window_ns)
    if len(idle) == 1:
        return f"Rank {idle.index[0]}'s host waits for its GPU"
    if len(idle) < ranks:
        return f"The hosts of {named(idle.index, basis.window_ns.index, places)} wait for their GPUs"
    return f"{of_them(ranks, ranks)} hosts wait for their GPUs"


def _then(idle: pd.Series, gain_ns: int, basis: Basis, places: Places) -> str:
    """How long a GPU idles after them, where that is most of what they cost: else they cost the hosts' lead."""
    if not _is_idle_told(idle, gain_ns):
        return "."
    whose = f"{_whose(idle, places)}{time_text(idle.max())} {basis.of_a_step}"
    return f", and then the GPU idles until its host has launched again, {whose}."


def _is_idle_told(idle: pd.Series, gain_ns: int) -> bool:
    return bool(2 * idle.max() >= gain_ns)


def _named(idle: pd.Series, gain_ns: int, basis: Basis, places: Places) -> tuple[int, ...]:
    """Whose hosts wait, and whose GPUs idle longest."""
    waiting = one_by_one(idle.index, basis.window_ns.index)
    longest = alike(idle, places).ranks if _is_idle_told(idle, gain_ns) else ()
    return tuple(dict.fromkeys((*waiting, *longest)))


def _whose(idle: pd.Series, places: Places) -> str:
    """Of the GPU that idles longest, or of those that idle alike; it needs no name where one host alone waits."""
    if len(idle) == 1:
        return "for "
    own = alike(idle, places)
    return f"rank {own.ranks[0]}'s for " if own.is_one else f"those of {own.who} for up to "


def _where(own: pd.DataFrame) -> str:
    """`cudaStreamSynchronize in block_0 and 11 other places`."""
    names = own["name"].astype("object").value_counts()
    places = own[["operator", "range"]].astype("object").bfill(axis=1).iloc[:, 0].dropna().map(short_name).unique()
    first = f"{names.index[0]}"
    if not len(places):
        return first
    others = len(places) - 1
    more = f" and {others} other place{'' if others == 1 else 's'}" if others else ""
    return f"{first} in {places[0]}{more}"


def _by_place(own: pd.DataFrame) -> pd.DataFrame:
    figures = ["calls", "host_ns", "idle_in_call_ns", "idle_after_ns"]
    rows = own.groupby(["rank", "name", "operator", "range"], dropna=False)[figures].sum().reset_index()
    return rows.sort_values("idle_after_ns", ascending=False, kind="stable").head(8)
