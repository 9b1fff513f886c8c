"""Memory growth: GPU memory that stays from step to step.

Every recorded step leaves more memory than it found.

**Why.** Tensors with graphs are kept: `losses.append(loss)` instead of `loss.detach()`, caches without a limit.

**Fix.** `analyze-traces memory` on two snapshots names the stack that grows.
"""

from collections.abc import Iterator

from traceanalyzer.analyses.memory import MemorySources, MemorySteps
from traceanalyzer.analyses.statistics import LEAST_PCT, RATIO
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import size_text

PLACE = "Memory and copies", 4


def memory_growth(run: Run, memory_steps: MemorySteps, memory_sources: MemorySources) -> Iterator[Finding]:
    """Every recorded step of a rank leaves about as much more GPU memory in use, together 1% of the peak. A fact."""
    known = memory_steps.to_frame().dropna(subset=["growth_bytes"])
    by_rank = known.groupby("rank").agg(
        least=("growth_bytes", "min"), most=("growth_bytes", "max"), all=("growth_bytes", "sum"),
        steps=("growth_bytes", "size"), peak=("peak_allocated_bytes", "max"),
    )  # fmt: skip
    is_growth = (by_rank["least"] > 0) & (by_rank["steps"] > 1) & (by_rank["most"] <= RATIO * by_rank["least"])
    grown = by_rank[is_growth & (100 * by_rank["all"] >= LEAST_PCT * by_rank["peak"])]
    if grown.empty:
        return
    rank = int(grown["all"].idxmax())
    sources = memory_sources.to_frame()
    stay = sources[(sources["rank"] == rank) & (sources["stays_bytes"] > 0)].sort_values("stays_bytes", ascending=False)
    most = f", most of it allocated by {stay['operator'].iloc[0]}" if len(stay) else ""
    yield Finding(
        headline=f"GPU memory grows by {size_text(grown['all'][rank] / grown['steps'][rank])} in every step.",
        why=f"Each recorded step of {run.who([*grown.index])} leaves as much more in use{most}.",
        fix="Keep no losses, outputs or graphs across steps (loss.detach(), no retain_graph); a memory snapshot names "
        "the line.",
        named=tuple(map(int, grown.index)) if len(grown) < len(run.ranks) or len(run.ranks) == 1 else (),
        evidence=tuple(known[known["rank"] == rank][["step", "start_bytes", "end_bytes"]].to_dict("records")),
        table="memory_steps",
    )
