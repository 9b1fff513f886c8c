"""The rule for ranks that mostly copy: what moves, how fast, and what the link carries."""

from dataclasses import replace

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.streams.copies import Copies
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.alike import AS_LONG, of_them
from traceanalyzer.findings.basis import LEAST_GAIN_PCT, Basis, plain
from traceanalyzer.findings.devices.copies import are_pageable
from traceanalyzer.findings.devices.copies_alone import alone, compute
from traceanalyzer.findings.finding import PAGEABLE, Finding
from traceanalyzer.findings.late.host_story import lateness_or_hosts
from traceanalyzer.findings.late.lateness import all_late_by
from traceanalyzer.findings.won import Won
from traceanalyzer.meaning.gpus import gpu_of
from traceanalyzer.meaning.quantities import digits, size_text
from traceanalyzer.model.tables import rows_where

COPY_BOUND_PCT = 50.0
"""Of the steps: what runs nothing else for so long is bound by its copies."""

EXPOSED_COPIES_PCT = 10.0
"""Of the steps: worth hiding."""

_FULL = 0.8
"""Of what the link carries: a rate from which on only fewer bytes or hidden ones help."""

WORDS = {"HtoD": "host to device", "DtoH": "device to host", "DtoD": "device to device"}


def copy_bound(
    headline: Headline, steps: Steps, copies: Copies, ranks: Ranks, episodes: Episodes, replay: Replay, *,
    copy_bound_pct: float = COPY_BOUND_PCT, exposed_copies_pct: float = EXPOSED_COPIES_PCT,
) -> list[Finding]:  # fmt: skip
    """A rank on which for a tenth of its steps nothing runs but copies, and those that copy half as long as it.

    From half of them on they are bound by copies; below, copies of pageable memory have a rule of their own. Of
    ranks that are late by them, and of pageable memory where most are from or to it, it is a part of what is said of
    that. Where complete steps gain nothing by them, it is said only if the hosts decide as recorded.
    """
    if not len(headline) or not len(copies):
        return []
    share = headline.to_frame().set_index("rank")["exposed_copy_pct"].dropna()
    most_pct = max(share, default=0.0)
    bound = share[share >= AS_LONG * most_pct] if most_pct >= exposed_copies_pct else share[:0]
    rows = copies.to_frame()
    rows = rows_where(rows, rows["rank"].isin(bound.index)).sort_values("exposed_ns", ascending=False, kind="stable")
    is_bound = bool(most_pct >= copy_bound_pct)
    late = all_late_by(episodes, bound.index, "copies")
    if bound.empty or rows.empty or (not is_bound and (late or _mostly_pageable(rows))):
        return []
    rank = int(bound.idxmax())
    basis = Basis.of(headline, steps)
    mean_ns = basis.mean_ns(rank)
    gain_ns = None if mean_ns is None or pd.isna(mean_ns) else round(float(bound[rank]) / 100 * float(mean_ns))
    gain = gain_of(replay, Change("copy", 0.0, frozenset(int(each) for each in bound.index)))
    has_compute = compute(headline, bound.index)
    devices = ranks.to_frame().set_index("rank")["device_name"]
    found = _found(bound, rows, devices, is_bound=is_bound, has_compute=has_compute)
    part_of = late or (PAGEABLE if _mostly_pageable(rows) else None)
    if gain is None or not has_compute:
        found = replace(found, gain_ns=gain_ns, part_of=part_of)
        return [found if has_compute else alone(found)]
    if basis.steps and gain.gain_pct < LEAST_GAIN_PCT and not part_of:
        hosts = gain_of(replay, Change("host", 0.0, frozenset(int(each) for each in bound.index)))
        if is_bound or hosts is None or hosts.gain_pct < LEAST_GAIN_PCT:
            return []
        title = f"{found.title} As recorded the hosts decide: hiding them gains once these take less."
        return [replace(found, title=title, part_of=lateness_or_hosts(rank, episodes))]
    hidden = f" Hidden, {basis.whole} is {Won.recorded(gain, is_bound=True)}." if gain.gain_ns else ""
    return [replace(found, title=f"{found.title}{hidden}", gain_ns=gain.gain_ns, part_of=part_of)]


def _mostly_pageable(rows: pd.DataFrame) -> bool:
    return bool(2 * rows.loc[are_pageable(rows), "exposed_ns"].sum() > rows["exposed_ns"].sum())


def _found(share: pd.Series, rows: pd.DataFrame, devices: pd.Series, *, is_bound: bool, has_compute: bool) -> Finding:
    first = rows.iloc[0]
    limit = _limit(devices.get(first["rank"]), str(first["direction"]))
    rate = None if pd.isna(first["rate_gbps"]) else float(first["rate_gbps"])
    of = "" if limit is None else f" of the {limit:g} GB/s that its link carries that way"
    speed = "" if rate is None else f" at {digits(rate)} GB/s{of}"
    source = f" from {first['source_memory']} memory" if first["direction"] == "HtoD" else ""
    size = "" if pd.isna(first["size_bytes"]) else f", {size_text(int(first['size_bytes']))} in the capture"
    what = f"{WORDS.get(str(first['direction']), first['direction'])}{source}{size}{speed}"
    low, high = round(float(share.min())), round(float(share.max()))
    told = f"{high} %" if low == high else f"{low} to {high} %"
    who = f"Rank {share.index[0]}" if len(share) == 1 else f"{of_them(len(share), len(devices))} ranks"
    are = (
        f"{who} {'is' if len(share) == 1 else 'are'} bound by copies: for"
        if is_bound
        else f"On {who[0].lower()}{who[1:]} for"
    )
    is_full = rate is not None and limit is not None and rate >= _FULL * limit
    return Finding(
        severity="high" if is_bound else "medium",
        title=f"{are} {told} of the time nothing {'else' if is_bound else 'but copies'} runs; most of it {what}.",
        evidence=plain(rows.head(8)),
        recommendation=_advice(is_full=is_full, has_compute=has_compute),
        caveat=None if limit is None else "The limit is that of a ×16 link; a slot with fewer lanes carries less.",
        named=(int(share.index[0]),) if len(share) == 1 else (),
        sources=("headline", "copies"),
        table="copies",
        is_of_ideal=not is_bound,
    )


def _advice(*, is_full: bool, has_compute: bool) -> str:
    """What to do about a link that is full, or about copies that do not fill it; hidden where anything computes."""
    if is_full:
        hidden = ", or hide them: copy the next block on a stream of its own while this one is computed"
        return (
            "Move fewer bytes over the link, which is full (a smaller element type, what is used again kept on the "
            f"GPU, sent to one GPU and on from there){hidden if has_compute else ''}."
        )
    if has_compute:
        return (
            "Copy from pinned memory in large pieces, on a stream of its own, the next block while this one is "
            "computed."
        )
    return (
        "Copy from and to pinned memory that is kept, in large pieces, both directions at once on streams of their own."
    )


def _limit(device: object, direction: str) -> float | None:
    """What the link to the host carries; of copies inside a GPU, and of other GPUs, it is not known."""
    if direction not in ("HtoD", "DtoH") or not isinstance(device, str):
        return None
    gpu = gpu_of(device)
    return None if gpu is None else gpu.pcie_gbps
