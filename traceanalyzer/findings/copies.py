"""Rules about copies: pageable memory, and blocks that upload, compute and offload one after another."""

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.findings.basis import Basis, milliseconds, severity
from traceanalyzer.findings.finding import Finding

PAGEABLE_PCT = 0.5
SERIAL_PCT = 10.0

_WHOLE_STEP = 0.8
"""Of a step's length: what takes this long is no block of it."""


def pageable_copies(headline: Result, steps: Result, launches: Result, copies: Result) -> list[Finding]:
    """Copies from or to pageable memory with exposed time over 0.5 % of the window, by rank."""
    if not len(copies) or not len(headline):
        return []
    basis = Basis.of(headline, steps)
    windows = launches.table.set_index("rank")["window_ns"]
    table = copies.to_frame()
    table = table[(table["source_memory"] == "pageable") | (table["target_memory"] == "pageable")]
    by_rank = table.groupby("rank")[["copies", "size_bytes", "total_ns", "exposed_ns"]].sum(min_count=1)
    by_rank["share_pct"] = 100.0 * by_rank["exposed_ns"] / by_rank.index.map(windows)
    return [
        _pageable(int(rank), row, basis, int(windows[rank]))
        for rank, row in by_rank[by_rank["share_pct"] >= PAGEABLE_PCT].iterrows()
    ]


def serial_blocks(headline: Result, steps: Result, launches: Result, block_bounds: Result) -> list[Finding]:
    """Repeated blocks whose copies from and to the host (a tenth of them or more) and compute follow each other."""
    if not len(block_bounds) or not len(headline):
        return []
    basis = Basis.of(headline, steps)
    table = block_bounds.to_frame()
    moved = table[["upload_ns", "download_ns"]].sum(axis=1)
    # What repeats once a step is the step.
    length = table["rank"].map({int(rank): basis.mean_ns(rank) for rank in basis.window_ns.index})
    is_step = table["pitch_ns"] >= _WHOLE_STEP * length
    is_block = ~is_step.fillna(value=False).astype(bool) | (basis.steps is None)
    serial = table[is_block & (table["bound"] == "serial") & (100 * moved >= SERIAL_PCT * table["pitch_ns"])]
    windows = launches.table.set_index("rank")["window_ns"]
    return [_serial(row, basis, int(windows[row["rank"]])) for _, row in serial.iterrows()]


def _pageable(rank: int, row: pd.Series, basis: Basis, window_ns: int) -> Finding:
    rate = "" if pd.isna(row["size_bytes"]) else f" at {row['size_bytes'] / row['total_ns']:.1f} GB/s"
    exposed_ns = int(row["exposed_ns"])
    return Finding(
        rule="pageable_copies",
        severity=severity(row["share_pct"]),
        title=f"Rank {rank} copies {int(row['copies'])} times from or to pageable memory{rate}: "
        f"{milliseconds(exposed_ns)} of it hidden by nothing, {row['share_pct']:.1f} % of the window.",
        evidence=({"rank": rank, "copies": int(row["copies"]), "exposed_ns": exposed_ns},),
        recommendation="Pin the host memory (DataLoader(pin_memory=True), tensor.pin_memory()) and copy with "
        "non_blocking=True: the copy then runs at the link's speed and beside compute.",
        caveat="Pinning costs time and memory itself: pin once and reuse buffers.",
        gain_ns=basis.scaled(exposed_ns, window_ns, rank),
    )


def _serial(row: pd.Series, basis: Basis, window_ns: int) -> Finding:
    rank, blocks = int(row["rank"]), int(row["blocks"])
    share = 100.0 * row["exposed_ns"] / row["pitch_ns"]
    return Finding(
        rule="serial_blocks",
        severity=severity(share),
        title=f"Rank {rank}'s {blocks} blocks upload, compute and offload one after another: no compute runs in "
        f"{milliseconds(row['exposed_ns'])} of each block's {milliseconds(row['pitch_ns'])}.",
        evidence=({key: None if pd.isna(value) else value for key, value in row.items()},),
        recommendation="Give uploads and offloads streams of their own, upload block k+1 and offload block k−1 while "
        "block k computes, and tie them by events.",
        caveat="Copies that run beside compute share memory bandwidth: the gain is at most the smaller of the two "
        "times.",
        gain_ns=basis.scaled(int(row["exposed_ns"]) * blocks, window_ns, rank),
    )
