"""Memory headroom: how much of the GPUs' memory is free at the peak.

How much of the GPU's memory the peak leaves. Near the limit the allocator stalls; far below it a larger micro-batch
or less recomputation is possible.

**Fix.** `analyze-traces memory snapshots/` shows who holds the peak.
"""

from collections.abc import Iterator

from traceanalyzer.analyses.memory import SAFE_PCT, YES, Memory, MemoryFit
from traceanalyzer.analyses.statistics import RATIO, SHARE
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import size_text

PLACE = "Memory and copies", 3


def memory_headroom(_run: Run, memory: Memory, memory_fit: MemoryFit) -> Iterator[Finding]:
    """GPU memory is nearly full at its peak, one rank needs more than the others, or half of it is free. A fact."""
    known = memory.to_frame().dropna(subset=["headroom_pct"]).set_index("rank")
    if known.empty:
        return
    left = known["headroom_pct"].astype("float64")
    peaks = known["peak_allocated_bytes"].fillna(known["peak_reserved_bytes"]).astype("float64")
    rank, fullest = int(peaks.idxmax()), int(left.idxmin())
    device = size_text(known.loc[fullest, "device_bytes"])
    named: tuple[int, ...] = (fullest,)
    if left[fullest] < 100 - SAFE_PCT:
        headline = f"GPU memory is {100 - left[fullest]:.0f}% full at the peak of rank {fullest}."
        why = f"The allocator holds {size_text(known.loc[fullest, 'peak_reserved_bytes'])} of {device}."
        fix = f"Checkpoint activations, accumulate smaller micro-batches, or shard more.{_enough(memory_fit)}"
    elif left[fullest] > 100 * SHARE:
        headline, named = f"GPU memory is {left[fullest]:.0f}% free at the peak.", ()
        why = f"At most {size_text(peaks.max())} of {device} are in use."
        less = ", less sharding" if len(known) > 1 else ""
        fix = f"A larger micro-batch{less} or less activation checkpointing may fit."
    elif peaks.max() > RATIO * peaks.mean():
        headline, named = f"GPU memory is uneven: rank {rank} needs {size_text(peaks.max())}.", (rank,)
        why = f"The mean of the ranks is {size_text(peaks.mean())}, so rank {rank} limits the batch."
        fix = "Move layers between pipeline stages, split the loss over the vocabulary, or bound tokens per expert."
    else:
        return
    rows = known[["peak_allocated_bytes", "headroom_bytes"]].reset_index()
    yield Finding(headline, why, fix, named=named, evidence=tuple(rows.to_dict("records")), table="memory")


def _enough(memory_fit: MemoryFit) -> str:
    """The first strategy that should fit, where the model is known."""
    table = memory_fit.to_frame()
    fits = table[(table["fits"] == YES) & (table["is_own"] != True)] if len(table) else table  # noqa: E712 - absent is no
    if fits.empty:
        return ""
    row = fits.iloc[0]
    ways = "".join(f", {name}={row[name]}" for name in ("tp", "pp") if row[name] > 1)
    return f" By estimate {row['strategy']}{ways} needs {size_text(row['total_bytes'])}."
