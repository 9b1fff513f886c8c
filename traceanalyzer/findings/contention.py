"""Contention: compute slowed by communication beside it.

The same kernels take longer while NCCL runs beside them: NCCL's kernels occupy SMs and share memory bandwidth.

**Fix.** `NCCL_MAX_CTAS`, or per group `ProcessGroupNCCL.Options().config.max_ctas`; copy-engine collectives where
they exist. Measure: fewer CTAs may expose communication.

Only kernels with the same name, grid, operator, shapes and types are compared.
"""

from collections.abc import Iterator

from traceanalyzer.analyses.replay.changes import ALONE, Change
from traceanalyzer.analyses.replay.graph import NEVER
from traceanalyzer.analyses.statistics import RATIO
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import time_text

PLACE = "Communication", 5


def contention(run: Run) -> Iterator[Finding]:
    """Kernels take longer beside communication than the same work does alone.

    The change is every such kernel at its median alone.
    """
    beside_ns = alone_ns = 0
    if run.engine is None:
        return
    for rank, of_rank in run.engine.contention.alone.items():
        alone, lengths = of_rank.lengths_ns(), run.engine.job.nodes[rank].column("ops", "duration_ns")
        known = alone < -NEVER
        beside_ns += int(lengths[known].sum())
        alone_ns += int(alone[known].sum())
    if not alone_ns or beside_ns < RATIO * alone_ns:
        return
    each = run.recorded
    yield Finding(
        headline=f"Kernels run {beside_ns / alone_ns:.2g}× slower while {run.terms.nccl} runs beside them.",
        why=f"The same kernels take {time_text(beside_ns / each)}{run.each} per rank beside communication, and "
        f"{time_text(alone_ns / each)} alone.",
        fix=run.terms.choose(
            {
                "torch": "Give communication fewer SMs (NCCL_MAX_CTAS, or config.max_ctas of ProcessGroupNCCL.Options) "
                "and measure: communication itself may slow down.",
            }
        )
        if run.terms.vendor == "NVIDIA"
        else f"Give {run.terms.nccl} fewer channels, so that it occupies fewer compute units.",
        changes=(Change("compute", ALONE),),
        half_of="this slowdown",
        table="kernels",
    )
