"""Rules about copies: pageable memory, and blocks that upload, compute and offload one after another."""

from dataclasses import replace

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.host.launches import Launches
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.streams.block_bounds import BlockBounds
from traceanalyzer.analyses.streams.copies import Copies
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.alike import of_them
from traceanalyzer.findings.basis import Basis, plain, severity
from traceanalyzer.findings.devices.copies_alone import alone, compute
from traceanalyzer.findings.finding import PAGEABLE, Finding
from traceanalyzer.findings.late.lateness import all_late_by, late_by
from traceanalyzer.findings.won import Won
from traceanalyzer.meaning.listed import named
from traceanalyzer.meaning.quantities import digits, size_text, time_text
from traceanalyzer.model.tables import rows_where

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
        evidence=plain(held[["copies", "size_bytes", "total_ns", "exposed_ns"]].reset_index()),
        recommendation=" ".join(_ADVICE[way] for way in ways),
        caveat="The gain supposes that compute hides all copies. Pinning costs time and memory itself: pin once and "
        "reuse buffers.",
        gain_ns=gain_ns,
        gain_error_ns=None if gain is None else gain.error_ns,
        unprofiled_gain_ns=None if gain is None else gain.unprofiled_gain_ns,
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
