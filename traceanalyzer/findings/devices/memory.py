"""Findings about GPU memory."""

from dataclasses import replace

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.memory.memory import Memory, MemoryCalls, MemorySteps
from traceanalyzer.analyses.memory.memory_categories import MemorySources
from traceanalyzer.analyses.memory.memory_fit import YES, MemoryFit
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.replay.gains import Gain
from traceanalyzer.analyses.replay.replay import Replay, gain_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import Basis, Title, Won, plain, severity
from traceanalyzer.findings.finding import Finding, gained
from traceanalyzer.findings.stragglers.stragglers import late_by
from traceanalyzer.meaning.columns import size_text, time_text
from traceanalyzer.meaning.vocabulary import HOST

# Rules about memory: steps that leave more than they found.


LEAST_BYTES = 1 << 20
"""A step that leaves less than a mebibyte is worth no finding."""

FEWEST_STEPS = 3
"""Two steps may both be the first of something; three in a row are not."""

_MOST_ROWS = 3


def memory_growth(
    memory_steps: MemorySteps, memory_sources: MemorySources, *, least_growth_bytes: int = LEAST_BYTES
) -> list[Finding]:
    """Every recorded step of a rank leaves at least a mebibyte more than it found, over three steps or more."""
    known = memory_steps.to_frame().dropna(subset=["growth_bytes"])
    grown = known.groupby("rank")["growth_bytes"].agg(["size", "min", "mean"])
    grown = grown[(grown["size"] >= FEWEST_STEPS) & (grown["min"] >= least_growth_bytes)]
    if grown.empty:
        return []
    rank = int(grown["mean"].astype("float64").idxmax())
    steps, mean = int(grown["size"][rank]), float(grown["mean"][rank])
    sources = memory_sources.to_frame()
    stay = sources[(sources["rank"] == rank) & (sources["stays_bytes"] > 0)]
    stay = stay.sort_values("stays_bytes", ascending=False).head(_MOST_ROWS)
    others = "" if len(grown) == 1 else f" {len(grown)} ranks do; this one most."
    return [
        Finding(
            severity="high",
            title=f"Rank {rank} holds {mean / 1e6:,.1f} MB more after each of {steps} steps.{others}",
            evidence=plain(known[known["rank"] == rank]),
            recommendation="Look for what is kept from step to step: losses or outputs in a list without detach(), "
            "caches, graphs kept by retain_graph. A memory snapshot beside the traces names the line "
            f"(docs/memory.md). Of operators most stays from {', '.join(map(str, stay['operator']))}.",
            caveat="What an operator allocates may be freed outside it, so that an operator's share is no proof. The "
            "first steps of a run allocate optimizer state and buffers once.",
            named=(rank,),
            table="memory_steps",
        )
    ]


# Rules about memory's limits: little is left, the allocator takes it anew in every step, one rank decides.


LEAST_HEADROOM_PCT = 10.0
"""Below this share of the GPU's memory a longer sample or a fragment more may be one too many."""

GRAVE_HEADROOM_PCT = 3.0

LEAST_COST_PCT = 1.0
"""Of a step, from which the allocator's calls are worth a finding."""

UNEVEN = 1.15
"""Largest over mean peak from which one rank decides what fits."""

_LEAST_UNEVEN_BYTES = 1 << 30


def low_headroom(
    memory: Memory,
    memory_fit: MemoryFit,
    *,
    least_headroom_pct: float = LEAST_HEADROOM_PCT,
    grave_headroom_pct: float = GRAVE_HEADROOM_PCT,
) -> list[Finding]:
    """The allocator held over 90 % of a GPU's memory at its peak; names the least strategy that should leave more."""
    known = memory.to_frame().dropna(subset=["headroom_pct"]) if len(memory) else pd.DataFrame()
    short = known[known["headroom_pct"] < least_headroom_pct] if len(known) else known
    if short.empty:
        return []
    worst = short.sort_values("headroom_pct").iloc[0]
    others = "" if len(short) == 1 else f" {len(short)} ranks are short; this one most."
    return [
        Finding(
            severity="high" if worst["headroom_pct"] < grave_headroom_pct else "medium",
            title=f"Rank {worst['rank']}'s allocator held {size_text(worst['peak_reserved_bytes'])} of its GPU's "
            f"{size_text(worst['device_bytes'])} at its peak: {size_text(worst['headroom_bytes'])} are "
            f"left.{others}",
            evidence=plain(short),
            recommendation="Before it runs out: recompute activations in the backward pass, take a smaller micro-batch "
            f"and accumulate, or share more of the model's state between ranks.{_enough(memory_fit)}",
            caveat="Reserved is what PyTorch's caching allocator holds, more than tensors use: it gives it back when "
            "it must. NCCL, cuBLAS and other processes take memory beside it, which is in no figure here.",
            named=(int(worst["rank"]),),
            table="memory",
        )
    ]


def _enough(memory_fit: MemoryFit) -> str:
    """The first strategy that should fit, where the model is known."""
    table = memory_fit.to_frame()
    found = (
        table[(table["fits"] == YES) & ~table["is_own"].astype("boolean").fillna(value=False)] if len(table) else table
    )
    if found.empty:
        return ""
    row = found.iloc[0]
    ways = "".join(f" with {name}={row[name]}" for name in ("tp", "pp") if row[name] > 1)
    more = " with activation checkpointing" if row["checkpointing"] else ""
    batch = "" if pd.isna(row["micro_batch"]) else f" at a micro-batch of {row['micro_batch']}"
    return (
        f" By estimate {row['strategy']}{ways}{more}{batch} needs {size_text(row['total_bytes'])} "
        "(table memory_fit has its assumptions)."
    )


def allocator_retries(
    memory_calls: MemoryCalls,
    headline: Headline,
    steps: Steps,
    episodes: Episodes,
    replay: Replay,
    *,
    allocator_pct: float = LEAST_COST_PCT,
) -> list[Finding]:
    """Calls of cudaMalloc and cudaFree take over 1 % of a step: the allocator holds no block that fits.

    The gain is of the job replayed without them; where there is no graph of hosts, it is at most their time.
    """
    table = memory_calls.to_frame()
    if table.empty or not len(headline):
        return []
    basis = Basis.of(headline, steps)
    inside = basis.within(table)
    cost = inside.groupby("rank")["host_ns"].sum() / basis.per
    share = 100 * cost / pd.Series({rank: basis.mean_ns(rank) for rank in cost.index}, dtype="float64")
    if share.empty or share.max() < allocator_pct:
        return []
    rank = int(share.idxmax())
    gain = gain_of(replay, Change("memory"))
    found = _calls_for_memory(inside[inside["rank"] == rank], rank, float(cost[rank]), basis, gain)
    gained_pct = gain.gain_pct if gain else float(share.max())
    return [replace(found, severity=severity(gained_pct), part_of=late_by(episodes, rank, HOST.key))]


def _calls_for_memory(own: pd.DataFrame, rank: int, cost_ns: float, basis: Basis, gain: Gain | None) -> Finding:
    """What is said of a rank's calls, which take so long in a mean step."""
    counts = own.groupby("name")["calls"].sum()
    named = ", ".join(f"{calls} {name}" for name, calls in counts.items())
    won = (f" Without them {basis.whole} would be ", Won.recorded(gain), ".") if gain else ()
    return Finding(
        severity="low",
        title=Title(
            f"Rank {rank}'s host spends {time_text(cost_ns)} {basis.of_a_step} in calls for GPU memory: "
            f"{named}{f' in {basis.steps} steps' if basis.steps else ''}.",
            *won,
        ),
        evidence=plain(own),
        recommendation=_FREES if any("Free" in str(name) for name in counts.index) else _GROWS,
        caveat="Without expandable segments cudaFree waits for all of the GPU's work; what waits there may wait "
        "elsewhere without it.",
        **gained(gain, cost_ns),
        is_of_hosts=True,
        named=(rank,),
        table="memory_calls",
    )


_FREES = (
    "A call of torch.cuda.empty_cache() in the step gives back what the next one needs: leave it out. Else the "
    "allocator finds no block that fits, for memory is nearly full or in fragments: "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets freed memory serve requests of other sizes; free what is "
    "not needed, or take a smaller micro-batch."
)

_GROWS = (
    "It still grows: sizes that change from step to step (sequences of any length, uneven experts) need new blocks. "
    "Pad to few lengths, run the largest batch first, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
)


def uneven_memory(memory: Memory, *, uneven_memory_ratio: float = UNEVEN) -> list[Finding]:
    """One rank's peak is 15 % and a gibibyte above the mean: it decides what batch fits."""
    known = memory.to_frame().dropna(subset=["peak_allocated_bytes"]) if len(memory) else pd.DataFrame()
    if len(known) < 2:
        return []
    peaks = known.set_index("rank")["peak_allocated_bytes"].astype("int64")
    most, mean = int(peaks.max()), float(peaks.mean())
    if most < uneven_memory_ratio * mean or most - mean < _LEAST_UNEVEN_BYTES:
        return []
    return [
        Finding(
            severity="low",
            title=f"Rank {int(peaks.idxmax())} decides what fits: its tensors need {size_text(most)} at the peak, "
            f"the ranks' mean is {size_text(mean)}, the least {size_text(int(peaks.min()))}.",
            evidence=plain(known),
            recommendation="In a pipeline the first stage holds most micro-batches, the last one the logits: move "
            "layers, or split the loss over the vocabulary. With experts, bound the tokens that one rank may get.",
            caveat="Peaks of different moments: nothing is lost as long as all fit.",
            named=(int(peaks.idxmax()),),
            table="memory",
        )
    ]
