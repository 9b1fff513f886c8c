"""Rules about idle GPUs: launch-bound kernels, synchronising calls, the data loader."""

from dataclasses import replace

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.blame.step_needs import StepNeeds
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.host.gaps import GapTable
from traceanalyzer.analyses.host.idle import Idle
from traceanalyzer.analyses.host.launches import Launches
from traceanalyzer.analyses.host.sync_calls import SyncCalls
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.analyses.phases.phases import Phases
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.alike import AS_LONG, Alike, alike, also_on, named, of_them, one_by_one, with_others
from traceanalyzer.findings.basis import Basis, gains_nothing, mean_steps, per_step, plain, severity
from traceanalyzer.findings.finding import Finding, gained
from traceanalyzer.findings.hosts.host_words import HOST_PCT
from traceanalyzer.findings.hosts.in_turn import take_turns
from traceanalyzer.findings.late.host_story import lateness_or_hosts
from traceanalyzer.findings.late.lateness import late_by
from traceanalyzer.findings.tools import tools_of
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.findings.worst import OF_ALL_STEPS, as_idle, by_activity, few_steps_of, longest, worst_rank
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.sentences import first_upper
from traceanalyzer.meaning.vocabulary import BETWEEN_KERNELS, DATA, HOST, LAUNCH, SYNC
from traceanalyzer.model.tables import rows_where

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
            recommendation="Load ahead: more DataLoader workers, persistent workers, prefetch_factor, pinned memory "
            "with non_blocking copies; move decoding and augmentation off the training process.",
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
