"""Input-bound: GPUs wait for the next batch."""

from collections.abc import Iterator

from traceanalyzer.analyses.host.idle import GapTable, Idle
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import DATA

_BLOCKING = "_SingleProcessDataLoaderIter"
"""PyTorch's iterator that makes batches in the process that asks for them: `num_workers=0`."""


def data_loading(run: Run, idle: Idle, gaps: GapTable) -> Iterator[Finding]:
    """GPUs are idle while the CPU is in the DataLoader or a data range before the next launch.

    The change is batches that are ready when the CPU asks for them.
    """
    waits = run.per_step(idle.table, [DATA.column])[DATA.column].fillna(0)
    if not len(waits) or not waits.max():
        return
    rank = int(waits.idxmax())
    own = run.within(gaps.to_frame())
    own = own[(own["rank"] == rank) & (own[DATA.column] > 0)]
    doing = own.groupby("doing", observed=True)[DATA.column].sum().sort_values(ascending=False)
    frame = str(doing.index[0]) if len(doing) else "the data loader"
    is_blocking = _BLOCKING in frame
    where = " in the main process (num_workers=0)" if is_blocking else ""
    yield Finding(
        headline=f"Input-bound: GPUs wait {time_text(round(waits.max()))}{run.each} for the DataLoader.",
        why=f"Rank {rank}'s GPU is idle while its CPU is in {frame}{where}.",
        fix=run.terms.choose(
            {
                "torch": "DataLoader(num_workers=4, persistent_workers=True, pin_memory=True)."
                if is_blocking
                else "More num_workers or prefetch_factor; move decoding and augmentation off the critical path.",
                "jax": "Prefetch batches to the device (tf.data prefetch, grain workers).",
                "native": "Read the next batch in another thread while the GPU computes.",
            }
        ),
        changes=(Change("data", 0.0),),
        named=(rank,),
        evidence=tuple({"doing": name, "idle_ns": int(ns)} for name, ns in doing.head(5).items()),
        table="gaps",
    )
