"""Low matrix efficiency: what busy GPUs reach of their peak.

The GPUs are busy, but the model's FLOPs are a small part of their peak (MFU).

**Why.** Shapes that fill a GPU badly (small batch, dimensions that are no multiple of 64), memory-bound layers, or a
power limit. A healthy large dense job reaches 35–55% MFU.

**Fix.** Larger micro-batch or sequence, dimensions in multiples of 64–256, fewer and larger matrix products; see the
table of operators by efficiency.
"""

from collections.abc import Iterator

from traceanalyzer.analyses.breakdown import Headline
from traceanalyzer.analyses.operators.efficiency import Efficiency, Mfu
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run

PLACE = "Compute", 5


def low_efficiency(_run: Run, efficiency: Efficiency, mfu: Mfu, headline: Headline) -> Iterator[Finding]:
    """GPUs compute for most of the step: their MFU, and what matrix products reach at their shapes. A fact."""
    known = mfu.known()
    if known.empty or headline.to_frame()["compute_pct"].mean() < 100 * SHARE:
        return
    table = efficiency.to_frame()
    table = table[table["family"] == "gemm"].dropna(subset="flops_pct")
    slow = table.sort_values("flops_pct").head(5)
    took, of = table["gpu_ns"], known.iloc[0]
    reached = f", matrix products reach {(table['flops_pct'] * took).sum() / took.sum():.0f}%" if len(table) else ""
    yield Finding(
        headline=f"MFU is {mfu.by_rank().mean():.0f}%{reached} of the peak.",
        why=f"The peak of {of['gpu']} in {str(of['element_type']).upper()} is {of['peak_tflops_per_s']:.0f} TFLOP/s.",
        evidence=tuple(slow[["operator", "shapes", "gpu_ns", "flops_pct"]].to_dict("records")),
        table="mfu",
        half_of="the time over the peak",
    )
