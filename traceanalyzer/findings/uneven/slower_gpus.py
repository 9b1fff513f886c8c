"""GPUs that are slower than the others'."""

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.excess import named
from traceanalyzer.analyses.blame.step_budget import OTHER_PROCESS, StepNeeds, WhatRan
from traceanalyzer.analyses.kernels.time_slices import TimeSlices
from traceanalyzer.analyses.spread import median_of_others
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, Basis, lower, plain, severity
from traceanalyzer.findings.capture import WARM_UP
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.statistics import the_others
from traceanalyzer.findings.stragglers.stragglers import of_lead, said
from traceanalyzer.findings.stragglers.wording import BY_SIGNS, SHARED_GPU, SLOW_GPU
from traceanalyzer.findings.uneven.balance import compute_by_step
from traceanalyzer.meaning.columns import numbers, time_text
from traceanalyzer.meaning.vocabulary import COMPUTE, listed, numbered
from traceanalyzer.model.tables import rows_where

# GPUs that another process takes in turn with the job, as kernels' times tell.


def shared_gpus(
    headline: Headline,
    steps: Steps,
    time_slices: TimeSlices,
    episodes: Episodes,
    *,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:
    """Ranks whose kernels stand still while another process has their GPU, for 3 % of their time and more.

    Of a rank that is late by it this says how often and for how long; of another one it is a finding of its own, whose
    gain is at most what is taken from it.
    """
    if headline.table.empty or time_slices.table.empty:
        return []
    basis = Basis.of(headline, steps)
    late = {
        rank: of_lead(episodes, row)
        for row in said(episodes)
        if row["name"] == OTHER_PROCESS
        for rank in numbers(row["ranks"])
    }
    table = basis.within(time_slices.to_frame())
    found = []
    for rank, own in table.groupby("rank"):
        pct = 100 * own["taken_ns"].sum() / basis.window_ns[rank]
        if pct >= clear_gain_pct:
            found.append(_finding(int(rank), own, basis, pct, late.get(int(rank))))
    return found


def _finding(rank: int, own: pd.DataFrame, basis: Basis, pct: float, lead: str | None) -> Finding:
    slices, taken_ns = int(own["slices"].sum()), int(own["taken_ns"].sum())
    return Finding(
        severity=severity(pct),
        title=f"Rank {rank}'s kernels take {time_text(taken_ns / slices)} longer than others that do the same work "
        f"{basis.times(slices)}, whichever they are ({own['names'].max()} names in one step): so it is where another "
        "process has the GPU in time slices.",
        evidence=plain(own),
        recommendation=SHARED_GPU,
        caveat=BY_SIGNS,
        gain_ns=None if lead else round(taken_ns / basis.per),
        named=(rank,),
        table="time_slices",
        part_of=lead,
    )


# Ranks that exchange nothing, one of whose GPUs takes longer for the same kernels: nobody waits for it.


SLOWER_ALONE_TIMES = 1.1
"""As long as on the others, for the same kernels."""

_STEADY = 0.5
"""Of what it computes longer in a mean step a rank does so in each, and its steps are as much longer."""


def slower_alone(
    headline: Headline, step_needs: StepNeeds, what_ran: WhatRan, *, slower_alone_times: float = SLOWER_ALONE_TIMES
) -> list[Finding]:
    """Ranks that exchange nothing, as replicas that serve: on one the same kernels take 1.1 times as long in each step.

    The others do not wait for it, so that no replay gains: its own steps are longer, by half of that at least. Else all
    wait for each other in kernels that no rule knows as communication.
    """
    frame = headline.to_frame()
    wide = compute_by_step(step_needs).dropna(axis=1)
    if len(frame) < 2 or frame["comm_ns"].fillna(0).sum() or wide.shape[1] < 2 or wide.empty:
        return []
    others = pd.DataFrame(median_of_others(wide.to_numpy().T).T, wide.index, wide.columns)
    excess = wide - others
    mean_ns = excess.mean()
    steps_ns = frame.set_index("rank")["step_mean_ns"].astype("float64").reindex(wide.columns)
    later_ns = steps_ns - median_of_others(steps_ns.to_numpy()[:, None])[:, 0]
    is_longer = (mean_ns >= (slower_alone_times - 1) * others.mean()) & (mean_ns > 0)
    is_alone = (excess.min() >= _STEADY * mean_ns) & (later_ns >= _STEADY * mean_ns)
    ratios = _ratios(excess.loc[:, is_longer & is_alone], step_needs.table, what_ran.table)
    return [
        _found(int(rank), times, (float(wide[rank].mean()), float(others[rank].mean())), float(steps_ns[rank]), frame)
        for rank, times in ratios[ratios >= slower_alone_times].items()
    ]


def _ratios(excess: pd.DataFrame, needs: pd.DataFrame, work: pd.DataFrame) -> pd.Series:
    """Of each rank how many times as long the same kernels take, where these make what it computes longer."""
    cells = excess.round().astype("int64").melt(ignore_index=False, value_name="excess_ns").reset_index()
    cells = cells.assign(part=COMPUTE.column)
    late = needs[needs["step"].isin(excess.index)].astype({"step": "int64"})
    told = named(cells, late, work)
    told = told[told["same_ns"].notna()].groupby("rank")[["same_ns", "peers_same_ns"]].agg(["sum", "count"])
    ratio = told["same_ns", "sum"] / told["peers_same_ns", "sum"].where(told["peers_same_ns", "sum"] > 0)
    return ratio[2 * told["same_ns", "count"] > len(excess)].dropna()


def _found(rank: int, times: float, needs: tuple[float, float], step_ns: float, frame: pd.DataFrame) -> Finding:
    own, others = map(time_text, needs)
    only = [int(other) for other in frame["rank"] if other != rank]
    return Finding(
        severity=lower(severity(100 * (needs[0] - needs[1]) / step_ns)),
        title=f"Rank {rank}'s GPU is slower: the same kernels take {times:.3g} times as long as on {the_others(only)} "
        f"({own} of compute a step, {others}). No communication is known, and nobody is seen to wait for it: its own "
        "steps are longer.",
        evidence=plain(frame[["rank", "step_mean_ns", "compute_ns"]]),
        recommendation=SLOW_GPU,
        named=tuple(dict.fromkeys((rank, *(only if len(only) == 1 else ())))),
        table="step_needs",
    )


# Whether all GPUs are slower in the first recorded steps than later, at the same work: means tell of both.


SLOWER_FIRST_TIMES = 1.2
"""Times as long as in any later step: GPUs at one clock differ by less from step to step."""

_LEAST_LATER = 2

_AS_MANY = 0.01
"""Part by which operations of steps that do the same may differ in number."""


def slower_at_first(
    step_needs: StepNeeds, *, slower_first_times: float = SLOWER_FIRST_TIMES, warm_up_times: float = WARM_UP
) -> list[Finding]:
    """All GPUs compute 1.2 times as long in the first steps as in any later one, by as many operations.

    Three times as long is a warm-up, which has a rule of its own; so have steps that run more. Two steps at least
    follow, and no fewer than are slower.
    """
    wide = _of_as_many(compute_by_step(step_needs), step_needs)
    fits = [count for count in range(1, len(wide) // 2 + 1) if _are_slower(wide, count, slower_first_times)]
    if not fits:
        return []
    first, later = wide.iloc[: fits[-1]], wide.iloc[fits[-1] :]
    times = (first.mean() / later.mean()).median()
    if times >= warm_up_times:
        return []
    ranks = wide.shape[1]
    who = {1: "the GPU takes", 2: "both GPUs take"}.get(ranks, f"all {ranks:,} GPUs take")
    each = " a step" if len(first) > 1 else ""
    return [
        Finding(
            severity="medium",
            title=f"In {numbered('step', first.index)}, the capture's first, {who} {times:.3g} times as long for as "
            f"many operations as in later ones ({time_text(first.mean(axis=1).mean())} of compute{each}, then "
            f"{time_text(later.mean(axis=1).mean())}).",
            recommendation="Likely they were not warm: clocks, caches, first sizes. Leave "
            f"{'it' if len(first) == 1 else 'them'} out: --steps {later.index[0]}:. Next time record after more steps "
            "of warm-up: torch.profiler.schedule(warmup=…).",
            caveat="Means over steps hold them too.",
            is_about_capture=True,
            steps=tuple(int(step) for step in first.index),
            table="step_needs",
        )
    ]


def _are_slower(wide: pd.DataFrame, count: int, times: float) -> bool:
    """Whether every rank computes so many times as long in each of the first steps as in any later one."""
    first, later = wide.iloc[:count], wide.iloc[count:]
    return len(later) >= _LEAST_LATER and bool((first.min() >= times * later.max()).all() and later.min().min() > 0)


def _of_as_many(wide: pd.DataFrame, step_needs: StepNeeds) -> pd.DataFrame:
    """The steps if each rank launches as many operations in all of them; none else."""
    if wide.empty:
        return wide
    held = step_needs.table[step_needs.table["step"].isin(wide.index) & step_needs.table["rank"].isin(wide.columns)]
    counts = held.groupby("rank")["operations"].agg(["min", "max"])
    return wide if (counts["max"] <= (1 + _AS_MANY) * counts["min"]).all() else wide.iloc[:0]


# Why ranks compute longer: their GPUs are of another model or size than the others', or ranks share one.


def other_gpus(episodes: Episodes, ranks: Ranks) -> list[Finding]:
    """Ranks that compute longer than their peers have GPUs of one model or size, and all other ranks of another."""
    table = ranks.to_frame()
    found: list[Finding] = []
    for column, words in (("device_name", _MODEL), ("multiprocessors", _SIZE)):
        found = found or _unlike(episodes, table, column, words)
    return found


_MODEL = "of another model ({own})", "{others}"
_SIZE = "smaller ({own} multiprocessors: a slice of one, or another model)", "of {others}"


def _unlike(episodes: Episodes, table: pd.DataFrame, column: str, words: tuple[str, str]) -> list[Finding]:
    models = table.set_index("rank")[column]
    found = []
    for row in said(episodes):
        late = numbers(row["ranks"])
        own, others = models[models.index.isin(late)], models[~models.index.isin(late)]
        if row["cause"] != "compute" or others.empty or models.isna().any():
            continue
        if {*own} & {*others} or len({*own}) > 1 or len({*others}) > 1:
            continue
        if column == "multiprocessors" and own.iloc[0] > others.iloc[0]:
            continue
        one, other = words[0].format(own=own.iloc[0]), words[1].format(others=others.iloc[0])
        who = f"Rank {late[0]}'s GPU is" if len(late) == 1 else f"The GPUs of ranks {listed(late)} are"
        whose = "the other is" if len(others) == 1 else "all others are"
        found.append(
            Finding(
                severity="medium",
                title=f"{who} {one}: {whose} {other}.",
                evidence=plain(table[["rank", column]]),
                recommendation="Run all ranks on GPUs of one model, or give those on slower ones less work.",
                gain_ns=row["gain_ns"],
                named=late,
                table="ranks",
                tells_why=True,
                part_of=of_lead(episodes, row),
            )
        )
    return found


def shared_gpu(ranks: Ranks) -> list[Finding]:
    """Ranks of one host name the same GPU of those that they see, which are at least as many as its ranks.

    Or a report of Nsight Systems says which GPU each process has, and two have one.
    """
    table = ranks.to_frame()
    table = rows_where(table, table["device"].notna() & table["devices_seen"].notna())
    is_told = table["format"] == "nsys"
    told = [_of_report(int(device), own) for (_, device), own in _of_several(table[is_told], "files")]
    table = table[~is_told & table["host"].notna()]
    if ranks.is_one_process:
        return told
    by_host = table.groupby("host")["rank"].transform("size")
    table = table[(table["devices_seen"] >= by_host) & (table["devices_seen"] > 1)]
    return told + [_of_host(str(host), int(device), own) for (host, device), own in _of_several(table, "host")]


def _of_several(table: pd.DataFrame, place: str) -> list[tuple[tuple[str, int], pd.DataFrame]]:
    """GPUs of several ranks, by where they are and their numbers there."""
    return [(key, own) for key, own in table.groupby([place, "device"], observed=True) if len(own) > 1]


def _of_host(host: str, device: int, own: pd.DataFrame) -> Finding:
    return _shared(
        own,
        f"each of them names number {device} of the {own['devices_seen'].min()} that it sees on {host}. They take "
        "turns at it, so that",
        "",
        "It holds unless CUDA_VISIBLE_DEVICES names other GPUs for each of them.",
    )


def _of_report(device: int, own: pd.DataFrame) -> Finding:
    return _shared(
        own,
        f"they are processes of one report, which says that each has number {device} of its machine. They share it, so "
        "that what is idle of one may be busy for another, and",
        " Where they are to share it, as by MPS or in turn, look at them together.",
        None,
    )


def _shared(own: pd.DataFrame, how: str, besides: str, caveat: str | None) -> Finding:
    ranks = tuple(int(rank) for rank in own["rank"])
    return Finding(
        severity="high",
        title=f"Ranks {listed(ranks)} run on one GPU: {how} the times of their kernels hold each other's.",
        evidence=plain(own[["rank", "host", "device", "devices_seen"]]),
        recommendation="Give each rank a GPU of its own: torch.cuda.set_device(LOCAL_RANK) before anything is put on a "
        f"GPU, and one process for each GPU.{besides}",
        caveat=caveat,
        named=ranks,
        is_about_capture=True,
        table="ranks",
    )
