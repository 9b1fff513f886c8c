"""Allocator calls in the step: GPU memory is taken and given back while training runs.

`cudaMalloc` and `cudaFree` inside the step: the caching allocator found no block that fits, and `cudaFree` waits for
the GPU.

**Fix.** Remove `torch.cuda.empty_cache()` from the step; `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`; pad to a
few sizes.
"""

from collections.abc import Iterator

from traceanalyzer.analyses.memory import MemoryCalls
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import HOST, named

PLACE = "Memory and copies", 2


def allocator_retries(run: Run, memory_calls: MemoryCalls) -> Iterator[Finding]:
    """CPUs call cudaMalloc or cudaFree in steps: the caching allocator holds no block that fits.

    The change is steps without these calls. One rank that makes them alone is a straggler.
    """
    own = run.within(memory_calls.table)
    by_rank = own.groupby("rank")["host_ns"].sum() / run.count
    if not len(by_rank) or not run.is_worth(by_rank.max()):
        return
    rank = int(by_rank.idxmax())
    is_one = not run.is_worth(by_rank.drop(rank).max()) if len(by_rank) > 1 else len(run.ranks) > 1
    counts = own[own["rank"] == rank].groupby("name", observed=True)["calls"].sum()
    made = named([f"{count} {name}" for name, count in counts.items()])
    few = run.few_steps(own, "host_ns")
    given_back = counts[counts.index.astype(str).str.contains("Free|Release|Unmap")].sum()
    yield Finding(
        headline=f"CPU-bound: allocating GPU memory takes {time_text(by_rank.max())}{run.each}.",
        why=f"The caching allocator holds no block that fits: {made} in the "
        f"{'recorded steps' if run.steps else 'trace'}"
        f"{f' of rank {rank}' if is_one else ''}.",
        fix=f"Drop torch.cuda.empty_cache() from the step, and set {run.terms.allocator}."
        if given_back >= SHARE * (counts.sum() - given_back)
        else f"Pad to few lengths or run the largest batch first, and set {run.terms.allocator}."
        if run.steps
        else "Record steps after warm-up: a job takes most of its memory in the first ones.",
        changes=(Change("memory", 0.0, frozenset({rank}) if is_one else None, frozenset(few) or None),),
        ranks=(rank,) if is_one else (),
        cause=HOST.key if is_one else None,
        steps=few or None,
        evidence=tuple({"call": name, "calls": int(calls)} for name, calls in counts.items()),
        table="memory_calls",
    )
