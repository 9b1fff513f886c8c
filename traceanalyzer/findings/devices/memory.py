"""Rules about memory: steps that leave more than they found."""

from traceanalyzer.analyses.memory.memory_sources import MemorySources
from traceanalyzer.analyses.memory.memory_steps import MemorySteps
from traceanalyzer.findings.basis import plain
from traceanalyzer.findings.finding import Finding

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
