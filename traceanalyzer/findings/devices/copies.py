"""Findings about copies."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from traceanalyzer.analyses.base import is_any, is_true
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.rank_sets import Places
from traceanalyzer.analyses.blame.step_budget import StepNeeds, WhatRan
from traceanalyzer.analyses.host.launches import Launches
from traceanalyzer.analyses.operators.launch_loops import LaunchLoops
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.streams.blocks import BlockBounds
from traceanalyzer.analyses.streams.copies import Copies
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.basis import (
    CLEAR_GAIN_PCT,
    EXPLAINED_PCT,
    LEAST_GAIN_PCT,
    Basis,
    Title,
    Won,
    basis_of_operators,
    mean_steps,
    plain,
    severity,
    steps_of_operators,
)
from traceanalyzer.findings.finding import PAGEABLE, Finding, changed
from traceanalyzer.findings.shares import Few, few_steps, host_shares, once, won_by_one_turn
from traceanalyzer.findings.statistics import AS_LONG, of_them
from traceanalyzer.findings.stragglers.stragglers import (
    all_late_by,
    late_by,
    lateness_or_hosts,
    of_lead,
    said,
    said_with_gain,
)
from traceanalyzer.findings.stragglers.wording import PAGEABLE as LATE_ADVICE_PAGEABLE
from traceanalyzer.findings.stragglers.wording import who
from traceanalyzer.meaning.columns import Unit, digits, numbers, size_text, text, time_text
from traceanalyzer.meaning.gpus import gpu_of
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import COPY, first_upper, named
from traceanalyzer.model.tables import rows_where

# What is said of copies of ranks that compute nothing: there is nothing that could hide them.


def compute(headline: Headline, ranks: Iterable[int]) -> bool:
    """Whether any of the ranks computes."""
    table = headline.to_frame()
    return bool((table.loc[table["rank"].isin(list(ranks)), "compute_pct"] > 0).any())


def alone(found: Finding) -> Finding:
    """The finding without a gain: by how much better copies shorten such ranks is not known."""
    return replace(
        found,
        title=f"{found.title} Nothing computes there that could hide them: what they can gain cannot be told.",
        caveat=None,
        gain_ns=None,
        gain_error_ns=None,
        unprofiled_gain_ns=None,
    )


# Rules about copies: pageable memory, and blocks that upload, compute and offload one after another.


PAGEABLE_PCT = 0.5

_LEAST_BYTES = 1 << 20
"""In all: what is less costs its calls, and no pinning makes them quicker."""

SERIAL_PCT = 10.0

_MOSTLY = 0.9
"""Of the exposed time: the other direction is no reason."""

_ADVICE = {
    "from": "Pin the host memory (DataLoader(pin_memory=True), tensor.pin_memory()) and copy with non_blocking=True: "
    "the copy then runs at the link's speed and beside compute.",
    "to": "Copy into pinned buffers that are kept (torch.empty(…, pin_memory=True), buffer.copy_(tensor, "
    "non_blocking=True)) and read them once an event of that copy has come, later or in another thread; of checkpoints "
    "torch.distributed.checkpoint.async_save does it.",
}
"""By where the pageable memory stands."""

_WHOLE_STEP = 0.8
"""Of a step's length: what takes this long is no block of it."""


def pageable_copies(
    headline: Headline,
    steps: Steps,
    launches: Launches,
    copies: Copies,
    episodes: Episodes,
    replay: Replay,
    *,
    pageable_pct: float = PAGEABLE_PCT,
) -> list[Finding]:
    """Copies of 1 MiB and more from or to pageable memory that are exposed for 0.5 % of the window.

    Not of a rank most of whose exposed copies lie in a step that is not complete, as of a checkpoint: no mean step
    holds them. One finding for all such ranks. Of ranks that are late by copies it is a part of what is said of that.
    """
    if not len(copies) or not len(headline):
        return []
    basis = Basis.of(headline, steps)
    windows = launches.table.set_index("rank")["window_ns"]
    table = copies.to_frame()
    table = rows_where(table, are_pageable(table))
    by_rank = table.groupby("rank")[["copies", "size_bytes", "total_ns", "exposed_ns"]].sum(min_count=1)
    by_rank["share_pct"] = 100.0 * by_rank["exposed_ns"] / by_rank.index.map(windows)
    by_rank["window_ns"] = windows.reindex(by_rank.index)
    is_large = (by_rank["size_bytes"] >= _LEAST_BYTES).fillna(value=True)
    is_held = _are_in_mean_steps(by_rank, basis, headline.table) if basis.steps else True
    held = by_rank[is_large & is_held & (by_rank["share_pct"] >= pageable_pct)].sort_values(
        "share_pct", ascending=False, kind="stable"
    )
    if held.empty:
        return []
    ways = _ways(table[table["rank"].isin(held.index)])
    part_of = all_late_by(episodes, held.index, "copies")
    found = _pageable(held, ways, basis, len(headline), replay if compute(headline, held.index) else None)
    return [replace(found, part_of=part_of)]


def serial_blocks(
    headline: Headline,
    steps: Steps,
    launches: Launches,
    block_bounds: BlockBounds,
    episodes: Episodes,
    *,
    serial_copies_pct: float = SERIAL_PCT,
) -> list[Finding]:
    """Repeated blocks whose copies from and to the host (a tenth of them or more) and compute follow each other.

    Of a rank that is late by copies it is a part of what is said of that.
    """
    if not len(block_bounds) or not len(headline):
        return []
    basis = Basis.of(headline, steps)
    table = block_bounds.to_frame()
    moved = table[["upload_ns", "download_ns"]].sum(axis=1)
    # What repeats once a step is the step, however long one of them is.
    length = table["rank"].map({int(rank): basis.mean_ns(rank) for rank in basis.window_ns.index})
    is_long = is_true(table["pitch_ns"] >= _WHOLE_STEP * length) & (basis.steps is not None)
    numbered = rows_where(steps.table, steps.table["step"].notna()) if len(steps) else steps.table
    is_rare = table["blocks"] <= table["rank"].map(numbered.groupby("rank").size()).fillna(0)
    is_block = ~is_long & ~is_rare
    serial = rows_where(
        table, is_block & (table["bound"] == "serial") & (100 * moved >= serial_copies_pct * table["pitch_ns"])
    )
    windows = launches.table.set_index("rank")["window_ns"]
    found = [_serial(row, basis, int(windows[row["rank"]])) for _, row in serial.iterrows()]
    return [
        replace(item, part_of=late_by(episodes, int(rank), "copies"))
        for item, rank in zip(found, serial["rank"], strict=True)
    ]


def _are_in_mean_steps(by_rank: pd.DataFrame, basis: Basis, headline: pd.DataFrame) -> pd.Series:
    """Of each rank whether its complete steps hold half as many exposed copies as so much of the capture does."""
    exposed_ns = headline.set_index("rank")["exposed_copy_ns"].astype("float64").reindex(by_rank.index)
    expected_ns = by_rank["share_pct"].astype("float64") / 100 * basis.window_ns.reindex(by_rank.index)
    return exposed_ns.isna() | expected_ns.isna() | (2 * exposed_ns >= expected_ns)


def _ways(table: pd.DataFrame) -> tuple[str, ...]:
    """`from` and `to`, or the one of them whose copies make nearly all of the exposed time."""
    from_host = rows_where(table, is_true(table["source_memory"] == "pageable"))
    from_ns, all_ns = (int(own["exposed_ns"].sum()) for own in (from_host, table))
    if from_ns >= _MOSTLY * all_ns:
        return ("from",)
    return ("to",) if all_ns - from_ns >= _MOSTLY * all_ns else ("from", "to")


def _pageable(held: pd.DataFrame, ways: tuple[str, ...], basis: Basis, ranks: int, replay: Replay | None) -> Finding:
    """What the rank that loses most by it copies in a step, and on how many it is so; no replay where none computes."""
    rank, row = int(held.index[0]), held.iloc[0]
    exposed_ns, size = (
        None if pd.isna(row[name]) else basis.scaled(int(row[name]), int(row["window_ns"]), rank)
        for name in ("exposed_ns", "size_bytes")
    )
    rate = "" if size is None else f" at {digits(row['size_bytes'] / row['total_ns'])} GB/s"
    what = "" if size is None else f" {size_text(size)}{basis.rate}"
    gain = gain_of(replay, Change("copy", 0.0, frozenset(held.index))) if replay else None
    gain_ns = exposed_ns or 0 if gain is None else gain.gain_ns
    who = _who(held, ranks, " or ".join(ways))
    found = Finding(
        severity=severity(row["share_pct"]),
        title=f"{who}{what}{rate}, {time_text(exposed_ns or 0)} of it beside no other work, "
        f"{row['share_pct']:.1f} % {basis.of_a_step}.{_hidden(gain_ns, gain, basis) if replay else ''}",
        summary=f"Copies {' and '.join(ways)} pageable memory: {time_text(exposed_ns or 0)}{basis.rate} exposed.",
        evidence=plain(held[["copies", "size_bytes", "total_ns", "exposed_ns"]].reset_index()),
        recommendation=" ".join(_ADVICE[way] for way in ways),
        caveat="The gain supposes that compute hides all copies. Pinning costs time and memory itself: pin once and "
        "reuse buffers.",
        gain_ns=gain_ns,
        gain_error_ns=None if gain is None else gain.error_ns,
        unprofiled_gain_ns=None if gain is None else gain.unprofiled_gain_ns,
        changes=changed(gain),
        named=(rank,),
        table="copies",
        about=PAGEABLE,
    )
    return found if replay else alone(found)


def are_pageable(copies: pd.DataFrame) -> pd.Series:
    """Which rows of the table are of copies from or to pageable memory."""
    return is_true((copies["source_memory"] == "pageable") | (copies["target_memory"] == "pageable"))


def _who(held: pd.DataFrame, ranks: int, way: str) -> str:
    first = held.index[0]
    if len(held) == 1:
        return f"Rank {first} copies {way} pageable memory:"
    return f"{of_them(len(held), ranks)} ranks copy {way} pageable memory: rank {first} copies"


def _hidden(gain_ns: int, gain: Gain | None, basis: Basis) -> str:
    """What it gains when compute hides the copies."""
    of = basis.whole
    won = Won(gain_ns, is_bound=True)
    if gain:
        won = replace(won, unprofiled_ns=gain.unprofiled_gain_ns, step_ns=gain.before_ns)
    if not gain_ns and not won.without:
        return f" As recorded, {of} gains nothing by pinning: something else binds it."
    return f" Pinned and behind compute, {of}{'' if gain_ns else ' as recorded'} is {won}."


def _serial(row: pd.Series, basis: Basis, window_ns: int) -> Finding:
    rank, blocks = int(row["rank"]), int(row["blocks"])
    share = 100.0 * row["exposed_ns"] / row["pitch_ns"]
    uploads, offloads = row["upload_ns"] > 0, row["download_ns"] > 0
    does = named([*["upload"] * uploads, "compute", *["offload"] * offloads])
    copies = named([*["uploads"] * uploads, *["offloads"] * offloads])
    next_to = named([*["upload block k+1"] * uploads, *["offload block k−1"] * offloads])
    return Finding(
        severity=severity(share),
        title=f"Rank {rank}'s {blocks} blocks {does} one after another: no compute runs in "
        f"{time_text(row['exposed_ns'])} of each block's {time_text(row['pitch_ns'])}.",
        evidence=({key: None if pd.isna(value) else value for key, value in row.items()},),
        recommendation=f"Give {copies} streams of their own, {next_to} while block k computes, and tie them by events.",
        caveat="Copies that run beside compute share memory bandwidth: the gain is at most the smaller of the two "
        "times.",
        gain_ns=basis.scaled(int(row["exposed_ns"]) * blocks, window_ns, rank),
        named=(rank,),
    )


# The rule for copies that all ranks make now and then, such as those of a checkpoint, with nothing beside them.


def copies_at_times(
    headline: Headline, steps: Steps, step_needs: StepNeeds, what_ran: WhatRan, episodes: Episodes, replay: Replay, *,
    clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:  # fmt: skip
    """Steps, fewer than half, in which all ranks copy beside no other work: a mean step is 3 % shorter without.

    Of these each rank copies half as long as the one that does longest; of fewer ranks late ones are told. What every
    step has is no news: the parts of the mean step hold it.
    """
    if not len(headline) or not len(step_needs):
        return []
    basis = Basis.of(headline, steps)
    if basis.steps is None:
        return []
    copied = mean_steps(step_needs, basis, [COPY.column])[COPY.column]
    few = few_steps(step_needs, basis, int(copied.idxmax()), COPY.column)
    if few is None or any(row["cause"] == "copies" for row in said_with_gain(episodes)):
        return []
    held = step_needs.table[step_needs.table["step"].isin(few.steps)]
    by_rank = held.groupby("rank")[COPY.column].mean().astype("float64")
    gain = gain_of(replay, Change("copy", 0.0, steps=frozenset(few.steps)))
    if gain is None or gain.gain_pct < clear_gain_pct or by_rank.min() < AS_LONG * by_rank.max():
        return []
    what = _what(what_ran.table, int(copied.idxmax()), few)
    title = Title(
        f"{few.words} {_who_copies(len(by_rank))} for {few.cost} while nothing else runs{what}: work that is done now "
        f"and then. Hidden, {gain.whole} is ",
        Won.recorded(gain, is_bound=True),
        ".",
    )
    return [_copies_at_times_found(title, gain, few, held)]


def _copies_at_times_found(title: Title, gain: Gain, few: Few, held: pd.DataFrame) -> Finding:
    return Finding(
        severity=severity(gain.gain_pct),
        title=title,
        evidence=plain(held[["step", "rank", COPY.column]]),
        recommendation="Copy on a stream of its own, in pieces beside the next steps' compute, or less often. What the "
        "next step changes has to be kept until it is copied.",
        gain_ns=gain.gain_ns,
        gain_error_ns=gain.error_ns,
        unprofiled_gain_ns=gain.unprofiled_gain_ns,
        changes=changed(gain),
        is_of_ideal=True,
        steps=few.steps,
        table="step_needs",
    )


def _who_copies(ranks: int) -> str:
    return {1: "the GPU copies", 2: "both GPUs copy"}.get(ranks, f"all {ranks:,} GPUs copy")


def _what(work: pd.DataFrame, rank: int, few: Few) -> str:
    """The copy that takes longest in these steps."""
    own = work[(work["part"] == COPY.column) & (work["rank"] == rank) & work["step"].isin(few.steps)]
    longest = own.groupby("name")["total_ns"].sum()
    return "" if longest.empty else f", most of it {short_name(str(longest.idxmax()))}"


# The rule for ranks that mostly copy: what moves, how fast, and what the link carries.


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
    found = _copy_bound_found(bound, rows, devices, is_bound=is_bound, has_compute=has_compute)
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
    return [replace(found, title=f"{found.title}{hidden}", gain_ns=gain.gain_ns, changes=changed(gain),
                    part_of=part_of)]  # fmt: skip


def _mostly_pageable(rows: pd.DataFrame) -> bool:
    return bool(2 * rows.loc[are_pageable(rows), "exposed_ns"].sum() > rows["exposed_ns"].sum())


def _copy_bound_found(
    share: pd.Series, rows: pd.DataFrame, devices: pd.Series, *, is_bound: bool, has_compute: bool
) -> Finding:
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


# Why a rank copies longer: more bytes than its peers, as many over a slower link, or what no other rank copies.


ALIKE = 1.05
"""Times as many bytes that are as many."""

_LINK = (
    "As many bytes take {who} longer, so look at the link between host and GPU: generation and lanes of PCI Express "
    "(nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv), the NUMA node that the "
    "host's memory lies on, and what else copies at that time."
)
_MORE = "Let {who} copy as much as the others, keep on the GPU what it copies more, or copy it beside compute."
_ALONE = "Find what {who} copies there and the others do not: leave it out, or copy it beside compute."


def other_copies(
    episodes: Episodes, copies: Copies, *, explained_pct: float = EXPLAINED_PCT, alike_bytes_times: float = ALIKE
) -> list[Finding]:
    """What differs on a rank that is late by copies in every step: bytes or their rate, where that explains half of it.

    Pageable memory is told by its own rule.
    """
    if not len(copies):
        return []
    table = copies.to_frame()
    table = table[table["direction"].isin([*WORDS])]
    found = []
    for row in said(episodes):
        late = {*numbers(row["ranks"])}
        if row["cause"] != "copies" or not row["is_in_every_step"] or late >= {*table["rank"]}:
            continue
        own = table[table["rank"].isin(late)]
        if LATE_ADVICE_PAGEABLE in (row["name"] or "").lower():
            continue
        beside = _of_ranks(table.drop(own.index), len({*table["rank"]} - late))
        told = _said(_of_ranks(own, len(late)), beside, row, explained_pct / 100, alike_bytes_times)
        found += [_finding(*told, own, row, of_lead(episodes, row))] if told else []
    return found


def _of_ranks(copies: pd.DataFrame, ranks: int) -> pd.DataFrame:
    """Bytes and time of a mean rank's copies by direction."""
    return copies.groupby("direction")[["size_bytes", "total_ns"]].sum().astype("float64") / ranks


def _said(
    own: pd.DataFrame, theirs: pd.DataFrame, row: Mapping[str, Any], part: float, alike: float
) -> tuple[str, str] | None:
    """What is told of the direction whose copies take longest beyond the others', and what to do."""
    if own.empty:
        return None
    theirs = theirs.reindex(own.index, fill_value=0.0)
    way = (own["total_ns"] - theirs["total_ns"]).idxmax()
    (moved, time_ns), (moved_by_them, their_ns) = own.loc[way], theirs.loc[way]
    if time_ns <= their_ns or not moved or moved_by_them > alike * moved:
        return None
    verb = "copy" if len(numbers(row["ranks"])) > 1 else "copies"
    copied = f"{first_upper(who(row))} {verb} {text(moved, Unit.BYTES)} {WORDS[way]} in the capture"
    if not moved_by_them:
        return f"{copied}, which no other rank does.", _ALONE
    if moved > alike * moved_by_them:
        is_why = moved / moved_by_them - 1 >= part * (time_ns / their_ns - 1)
        return (f"{copied}, the others {text(moved_by_them, Unit.BYTES)}.", _MORE) if is_why else None
    rates = f"at {digits(moved / time_ns)} GB/s, they at {digits(moved_by_them / their_ns)} GB/s"
    return f"{copied}, as many bytes as the others: {rates}.", _LINK


def _finding(title: str, advice: str, own: pd.DataFrame, row: Mapping[str, Any], part_of: str) -> Finding:
    return Finding(
        severity="low",
        title=title,
        evidence=plain(
            own[
                ["rank", "direction", "source_memory", "target_memory", "copies", "size_bytes", "total_ns", "rate_gbps"]
            ]
        ),
        recommendation=advice.format(who=who(row)),
        gain_ns=row["gain_ns"],
        named=numbers(row["ranks"]),
        table="copies",
        part_of=part_of,
        tells_why=True,
    )


# The rule about data that is copied to a GPU in many small pieces: each costs its host more than the link.


MANY_COPIES = 50
"""Of a step."""

SMALL_COPIES_PCT = 5.0
"""Of a step, which a host takes to make them."""

_SMALL_BYTES = 1 << 20
"""On average: a larger one takes the link longer than a host."""

_SUMS = ["copies", "size_bytes", "total_ns", "host_ns"]


def small_copies(
    headline: Headline, steps: Steps, copies: Copies, launch_loops: LaunchLoops, episodes: Episodes, places: Places,
    replay: Replay, *, many_copies: int = MANY_COPIES, small_copies_pct: float = SMALL_COPIES_PCT,
) -> list[Finding]:  # fmt: skip
    """A host makes 50 copies a step or more to its GPU, under 1 MiB on average, and takes 5 % of a step for it.

    Not where the job would be no quicker if that host took no time at all. What is read back has rules of its own.
    """
    if not len(headline) or not len(copies):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    table = _small(copies, steps_of_operators(steps, basis), many_copies)
    if table.empty:
        return []
    rank = int(table["host_a_step_ns"].idxmax())
    shares = host_shares(table["host_a_step_ns"], rank, basis, small_copies_pct)
    if shares is None:
        return []
    own = table.loc[rank]
    most_ns = shares.most_gained_ns(float(own["host_a_step_ns"]), replay)
    if most_ns is None:
        return []
    copying = launch_loops.table[launch_loops.table["of_uploads"].astype(bool)]
    won = won_by_one_turn(copying, replay, shares, float(own["a_step"]) * basis.per, most_ns)
    return [
        Finding(
            severity=severity(shares.pct),
            title=Title(
                f"Rank {rank}'s host copies {basis.times(own['a_step'] * basis.per)} to its GPU, "
                f"{size_text(own['size_bytes'] / own['copies'])} on average: making these copies takes it "
                f"{time_text(float(own['host_a_step_ns']))} {basis.a_step}, {shares.pct:.0f} % {basis.of_a_step}"
                f"{shares.also(places)}.",
                *once("Copied as one", won, basis),
            ),
            evidence=plain(table.loc[[rank], _SUMS].reset_index()),
            recommendation="Put what belongs together into one tensor on the CPU (in the collate function, pinned) and "
            "copy that: its parts are views on the GPU, which cost nothing.",
            caveat="A profiler slows the host.",
            gain_ns=won.gain_ns,
            gain_is_bound=won.is_bound,
            unprofiled_gain_ns=won.unprofiled_ns,
            is_of_hosts=True,
            named=shares.named(rank),
            table="copies",
            is_to_do_first=True,
            part_of=lateness_or_hosts(rank, episodes),
        )
    ]


def _small(copies: Copies, per: pd.Series, least: int) -> pd.DataFrame:
    """By rank that makes many small ones: their sums, `a_step` of them, and `host_a_step_ns`."""
    to_device = rows_where(copies.table, is_any(copies.table["direction"].astype("category"), "HtoD"))
    table = rows_where(to_device, to_device["host_ns"].notna()).groupby("rank")[_SUMS].sum(min_count=1)
    steps = per.reindex(table.index)
    a_step = table["copies"].astype("float64") / steps
    is_small = (table["size_bytes"] < _SMALL_BYTES * table["copies"]).fillna(value=False)
    host_ns = table["host_ns"].astype("float64") / steps
    return table.assign(a_step=a_step, host_a_step_ns=host_ns)[is_small & (a_step >= least)]
