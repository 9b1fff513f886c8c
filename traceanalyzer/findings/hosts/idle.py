"""Idle GPUs: synchronizing calls, data loading, unknown causes."""

from dataclasses import replace

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.rank_sets import Places
from traceanalyzer.analyses.blame.step_budget import StepNeeds, WhatRan
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.api_calls import SyncCalls
from traceanalyzer.analyses.host.idle import GapTable, Idle
from traceanalyzer.analyses.host.launches import Launches
from traceanalyzer.analyses.integrity.checks import WITHOUT_LAUNCH
from traceanalyzer.analyses.integrity.integrity import Integrity
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.phases.micro_steps import Iterations
from traceanalyzer.analyses.phases.phases import Phases
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.streams.copies import SyncCopies
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.basis import Basis, Title, Won, gains_nothing, mean_steps, per_step, plain, severity
from traceanalyzer.findings.finding import PAGEABLE, Finding, changed, gained
from traceanalyzer.findings.hosts.launch_bound import DRAINED, HOST_PCT, longest_name, take_turns
from traceanalyzer.findings.shares import (
    OF_ALL_STEPS,
    as_idle,
    by_activity,
    calls_of,
    few_steps_of,
    longest,
    worst_rank,
)
from traceanalyzer.findings.statistics import AS_LONG, Alike, alike, also_on, named, of_them, one_by_one, with_others
from traceanalyzer.findings.stragglers.stragglers import HOSTS, late_by, lateness_or_hosts
from traceanalyzer.findings.vendor_terms import tools_of
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import BETWEEN_KERNELS, DATA, HOST, LAUNCH, SYNC, UNKNOWN, first_upper
from traceanalyzer.model.tables import rows_where

# Rules about idle GPUs: launch-bound kernels, synchronising calls, the data loader.


SYNC_PCT = 1.0
DATA_PCT = 2.0

LOADER = "loading of data"
"""How findings about data that all ranks wait for are called by what is part of them."""

SHORT_KERNELS_PCT = 50.0

_MOST_ROWS = 8
"""Of evidence."""

_LAUNCH_FIGURES = (
    "kernels",
    "kernels_under_5us",
    "kernels_under_10us",
    "kernel_median_ns",
    "host_bound_pct",
    "queue_median",
)

_SYNC_FIGURES = ["calls", "host_ns", "idle_in_call_ns", "idle_after_ns", "cost_ns"]


def short_kernels(
    headline: Headline,
    steps: Steps,
    idle: Idle,
    launches: Launches,
    episodes: Episodes,
    places: Places,
    ranks: Ranks,
    kernels: Kernels,
    iterations: Iterations,
    phases: Phases,
    *,
    short_kernels_pct: float = SHORT_KERNELS_PCT,
    host_idle_pct: float = HOST_PCT,
) -> list[Finding]:
    """Most kernels are shorter than 10 µs, on ranks whose GPU waits for launches in over 10 % of a step.

    Not where graphs replay half of a rank's operations and more: one launch is for many of these.
    """
    worst = worst_rank(headline, steps, idle, HOST.column, host_idle_pct)
    if worst is None:
        return []
    rank, _, _, basis = worst
    row = launches.to_frame().astype("object").set_index("rank").loc[rank]
    share = row["kernels_under_10us_pct"]
    if pd.isna(share) or share <= short_kernels_pct or 2 * row["graph_operations"] >= row["operations"]:
        return []
    mean = mean_steps(idle, basis, [LAUNCH.column, BETWEEN_KERNELS.column, HOST.column, "window_ns"])
    parts = mean.loc[rank, [LAUNCH.column, BETWEEN_KERNELS.column]]
    is_short = launches.to_frame().set_index("rank")["kernels_under_10us_pct"].reindex(mean.index) > short_kernels_pct
    same = mean.index[is_true(is_short) & as_idle(mean, HOST.column, host_idle_pct)]
    return [
        Finding(
            severity="medium",
            title=f"{share:.0f} % of rank {rank}'s kernels run for less than 10 µs (median "
            f"{row['kernel_median_ns'] / 1e3:.1f} µs): the GPU finishes them faster than the host launches them"
            f"{also_on(same, mean.index, places)}.",
            evidence=({"rank": rank, **{name: _scalar(row[name]) for name in _LAUNCH_FIGURES}},),
            recommendation=tools_of(ranks, kernels, iterations, phases).fuse_small,
            caveat="Short kernels cost nothing while the launch queue is full.",
            gain_ns=round(float(parts.sum())),
            named=with_others(rank, same, mean.index),
            is_of_hosts=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]


def synchronising_calls(
    headline: Headline,
    steps: Steps,
    sync_calls: SyncCalls,
    episodes: Episodes,
    places: Places,
    ranks: Ranks,
    replay: Replay,
    *,
    sync_idle_pct: float = SYNC_PCT,
) -> list[Finding]:
    """Calls that block the host while its GPU has nothing to do: over 1 % of a step; the worst of each rank.

    Ranks of which the same call is the worst are told together, by the one that it costs most. Only time inside the
    calls counts: what the host does afterwards is named by what it is. Of one process's GPUs that take turns it is
    said by a rule of its own (`gpus_in_turn`). Calls that the job gains nothing without, as at a step's end, are none.
    """
    if not len(sync_calls) or not len(headline) or take_turns(headline, steps, sync_calls, ranks):
        return []
    if gains_nothing(gain_of(replay, Change("sync"))):
        return []
    basis = Basis.of(headline, steps)
    places_of_call = ["name", "operator", "range"]
    table = basis.within(sync_calls.to_frame())
    table = table.groupby(["rank", *places_of_call], dropna=False)[_SYNC_FIGURES].sum().reset_index()
    table["share_pct"] = 100.0 * table["cost_ns"] / table["rank"].map(basis.window_ns)
    worst = (
        rows_where(table, table["share_pct"] >= sync_idle_pct)
        .sort_values("share_pct", ascending=False)
        .drop_duplicates("rank")
    )
    every = basis.window_ns.index
    return [
        replace(
            _synchronising_call(own, named(own["rank"], every, places), basis, episodes),
            named=one_by_one(own["rank"], every),
        )
        for _, own in worst.groupby(places_of_call, dropna=False, sort=False)
    ]


def data_loader(
    headline: Headline,
    steps: Steps,
    idle: Idle,
    gaps: GapTable,
    step_needs: StepNeeds,
    episodes: Episodes,
    replay: Replay,
    places: Places,
    *,
    data_idle_pct: float = DATA_PCT,
) -> list[Finding]:
    """The GPU waits for the next batch: idle by cause data over 2 % of a step.

    It is as grave as what the job loses: a stage that loads within its bubble loses nothing.
    """
    worst = worst_rank(headline, steps, idle, DATA.column, data_idle_pct)
    if worst is None:
        return []
    rank, cost_ns, share, basis = worst
    own = basis.within(gaps.to_frame())
    own = own[(own["rank"] == rank) & (own[DATA.column] > 0)]
    waits = mean_steps(idle, basis, [DATA.column])[DATA.column]
    gain = gain_of(replay, Change("data", 0.0))
    few = few_steps_of(step_needs, basis, rank, DATA.column, cost_ns)
    share = few.share_pct if few else share
    longest_waiting = alike(waits, places)
    who = _who_waits(longest_waiting, waits, few.cost if few else time_text(cost_ns))
    who, whole = (f"{few.words}: {who[0].lower()}{who[1:]}", OF_ALL_STEPS) if few else (who, basis.of_a_step)
    return [
        Finding(
            severity=severity(_lost_pct(gain, share)),
            title=Title(f"{who}, {share:.1f} % {whole}.", _with_data_ready(gain, basis)),
            evidence=by_activity(own, basis),
            summary=f"Input-bound: GPUs wait {few.cost if few else f'{time_text(cost_ns)}/step'} for the DataLoader.",
            reason=_why_loading(own, rank, share),
            recommendation=_load_ahead(own),
            caveat="Only ranges that name data loading count; work outside them is counted as the host's.",
            **gained(gain, cost_ns),
            steps=few.steps if few else None,
            named=longest_waiting.ranks,
            interval_ns=longest(own),
            table="gaps",
            about=LOADER,
            part_of=late_by(episodes, rank, DATA.key),
        )
    ]


_IN_PROCESS = "_SingleProcessDataLoaderIter"
"""What PyTorch's loader is without workers."""


def _is_in_process(own: pd.DataFrame) -> bool:
    return bool(own["doing"].astype("str").str.contains(_IN_PROCESS, regex=False).any())


def _why_loading(own: pd.DataFrame, rank: int, share: float) -> str:
    """Where batches are made, as far as the loader's own name tells, and how long the GPU idles for them."""
    where = "Batches are made in the training process (num_workers=0). " if _is_in_process(own) else ""
    return f"{where}Rank {rank}'s GPU idles for the next batch {share:.0f}% of the time."


def _load_ahead(own: pd.DataFrame) -> str:
    if _is_in_process(own):
        return "DataLoader(num_workers=4, persistent_workers=True, pin_memory=True), with non_blocking copies."
    return (
        "Load ahead: more DataLoader workers (num_workers, prefetch_factor, persistent_workers=True), "
        "pin_memory=True with non_blocking copies; move decoding and augmentation off the training process."
    )


def _lost_pct(gain: Gain | None, share: float) -> float:
    """What the job loses by it, in percent of a step: of a GPU's idle time that which the replay gains, where known."""
    return share if gain is None or gain.is_bound else min(share, gain.gain_pct)


def _who_waits(longest_waiting: Alike, waits: pd.Series, longest_wait: str) -> str:
    """All GPUs where each waits at least half as long as the one that waits longest."""
    gpus = longest_waiting.whose_gpus
    if len(waits) < 2 or not waits.min() >= AS_LONG * waits.max():
        waiting = f"waits {longest_wait}" if longest_waiting.is_one else f"wait up to {longest_wait}"
        return f"{first_upper(gpus)} {waiting} for data"
    of_one = f"rank {longest_waiting.ranks[0]}'s"
    whose = of_one if longest_waiting.is_one else f"those of {longest_waiting.who} up to"
    return f"{of_them(len(waits), len(waits))} GPUs wait for data, {whose} {longest_wait}"


def _with_data_ready(gain: Gain | None, basis: Basis) -> Title:
    if gain is None or not gain.gain_ns:
        return Title()
    won = Won.recorded(gain) if gain.is_bound else Won.of(gain)
    return Title(f" With data ready {basis.whole} is ", won, ".")


_READ_LESS = (
    "Do not read GPU values on the host within a step (.item(), .cpu(), print, NaN checks): keep them on the GPU and "
    "read them every N steps; use pinned memory and non_blocking copies."
)
_OF_DDP = (
    "DistributedDataParallel times its own first ten steps, and every hundredth after them, and waits for events to do "
    "so: record later steps, which do not wait."
)


def _times_itself(row: pd.Series) -> bool:
    """Whether it is DDP's statistics that wait: for events, in its forward, in no operator."""
    is_in_forward = str(row["range"]) == "DistributedDataParallel.forward" and pd.isna(row["operator"])
    return is_in_forward and host_names.waits_for(str(row["name"])) == host_names.FOR_EVENT


def _synchronising_call(own: pd.DataFrame, who: str, basis: Basis, episodes: Episodes) -> Finding:
    row = own.iloc[0]
    rank, cost_ns = int(row["rank"]), row["cost_ns"] / basis.per
    blocked = (
        f"rank {rank}'s host while its GPU idles for"
        if len(own) == 1
        else "both hosts while a GPU idles for up to"
        if who == "both ranks"
        else f"the hosts of {who} while a GPU idles for up to"
    )
    place = " in ".join(short_name(name) for name in (row["operator"], row["range"]) if not pd.isna(name))
    return Finding(
        severity=severity(row["share_pct"]),
        title=f"{row['name']}{f' ({place})' if place else ''} blocks {blocked} "
        f"{time_text(cost_ns)}, {row['share_pct']:.1f} % {basis.of_a_step} "
        f"({basis.times(row['calls'])}){_after(row['idle_after_ns'] / basis.per, cost_ns)}.",
        evidence=plain(per_step(own.head(_MOST_ROWS), _SYNC_FIGURES, basis.steps)),
        recommendation=_OF_DDP if _times_itself(row) else _READ_LESS,
        caveat="Only idle time inside the calls. After each one the queue is empty, so that the GPU also waits for "
        "whatever the host does next.",
        gain_ns=round(cost_ns),
        table="sync_calls",
        is_to_do_first=True,
        part_of=lateness_or_hosts(rank, episodes, SYNC.key),
    )


def _after(after_ns: float, cost_ns: float) -> str:
    """How long it idles after the calls, where that is longer than within them."""
    return (
        f"; after them it idles {time_text(after_ns)} until its host has launched again" if after_ns > cost_ns else ""
    )


def _scalar(value: object) -> object:
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value


# GPUs that idle for a reason that nobody recorded: the calls that launch work are not in the capture.


UNKNOWN_PCT = 10.0
"""Of a step, from which on the reason is missed."""

_MOSTLY = 0.5
"""Of a rank's operations without a launch, from which on that is why nothing is known."""


def unknown_idle(
    headline: Headline,
    steps: Steps,
    idle: Idle,
    integrity: Integrity,
    episodes: Episodes,
    places: Places,
    ranks: Ranks,
    *,
    unknown_idle_pct: float = UNKNOWN_PCT,
) -> list[Finding]:
    """Over 10 % of a step is idle without a cause, on ranks most of whose operations have no launch in the capture."""
    worst = worst_rank(headline, steps, idle, UNKNOWN.column, unknown_idle_pct)
    if worst is None:
        return []
    rank, cost_ns, share, basis = worst
    checks = integrity.to_frame()
    held = checks[(checks["check"] == WITHOUT_LAUNCH) & checks["rank"].notna()]
    blind = {*held.loc[held["count"] >= _MOSTLY * held["total"].astype("float64"), "rank"].astype("int64")}
    if rank not in blind:
        return []
    mean = mean_steps(idle, basis, [UNKNOWN.column, "window_ns"])
    same = mean.index[as_idle(mean, UNKNOWN.column, unknown_idle_pct) & mean.index.isin(blind)]
    why, recommendation = calls_of(ranks, rank)
    return [
        Finding(
            severity=severity(share),
            title=f"Why rank {rank}'s GPU idles cannot be told: {time_text(cost_ns)}, {share:.0f} % "
            f"{basis.of_a_step}, for {why}"
            f"{also_on(same, mean.index, places)}.",
            evidence=tuple({"rank": int(one), "unknown_ns": round(mean.loc[one, UNKNOWN.column])} for one in same),
            recommendation=recommendation,
            is_about_capture=True,
            named=with_others(rank, same, mean.index),
            table="idle",
            part_of=late_by(episodes, rank, UNKNOWN.key),
        )
    ]


# Launch queues that run dry because hosts wait for their GPUs: what the job gains without those waits.


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
        summary=f"Blocking calls stall the GPU: {_where(own)}.",
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
        changes=changed(gain),
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
