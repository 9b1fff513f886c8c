"""Exposed copies: copies between CPU and GPU memory that nothing hides.

Host-to-device or device-to-host copies run while neither compute nor communication does.

**Why.** Pageable memory is copied through a staging buffer at a few GB/s and blocks the CPU; pinned memory reaches
the link's rate and runs beside compute.

**Fix.** `DataLoader(pin_memory=True)` with `tensor.to(device, non_blocking=True)`; a prefetch stream for offloaded
layers.

**Measured.** 512 MiB of pageable memory copied in every step, removed: 89.9 → 58.2 ms/step.
"""

from collections.abc import Iterator

from traceanalyzer.analyses.breakdown import Headline, Steps
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.statistics import SHARE, low_median
from traceanalyzer.analyses.streams import Copies
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import digits, size_text, time_text
from traceanalyzer.meaning.gpus import gpu_of
from traceanalyzer.meaning.vocabulary import COPY, numbered

PLACE = "Memory and copies", 1

_WAYS = {"HtoD": "host-to-device", "DtoH": "device-to-host"}

_FIXES = {
    ("HtoD", True): "DataLoader(pin_memory=True) and tensor.to(device, non_blocking=True).",
    (
        "DtoH",
        True,
    ): "Allocate one pinned buffer (torch.empty(…, pin_memory=True)), and buffer.copy_(tensor, non_blocking=True); "
    "read it after event.synchronize(). Checkpoints: "
    "torch.distributed.checkpoint.async_save.",
    ("HtoD", False): "Copy the next batch or block on its own CUDA stream while the current one computes.",
    ("DtoH", False): "Copy on its own CUDA stream beside the next compute; checkpoints: "
    "torch.distributed.checkpoint.async_save.",
}
"""By direction, and whether the CPU's memory is pageable."""


def exposed_copies(run: Run, headline: Headline, steps: Steps, copies: Copies, ranks: Ranks) -> Iterator[Finding]:
    """GPUs do nothing but copy from or to CPU memory; pageable memory is a sign.

    The change is hidden copies: where most of the time lies in few steps (a checkpoint), in these.
    """
    table = headline.to_frame().set_index("rank")
    # What one rank copies alone makes it a straggler.
    alone_ns = float(low_median(table[COPY.column].astype("float64"))) / run.count
    rows = copies.to_frame().sort_values("exposed_ns", ascending=False)
    own = rows[rows["direction"].isin([*_WAYS])]
    if not run.is_worth(alone_ns) or own["exposed_ns"].sum() < SHARE * rows["exposed_ns"].sum():
        return
    way = str(own.groupby("direction")["exposed_ns"].sum().idxmax())
    own = own[own["direction"] == way]
    first = own.iloc[0]
    is_pageable = "pageable" in (first["source_memory"], first["target_memory"])
    gpu = gpu_of(ranks.table.set_index("rank")["device_name"].dropna().get(first["rank"]))
    link = f"; the link carries {gpu.pcie_gbps:g}" if gpu and gpu.pcie_gbps else ""
    what = (
        f" ({size_text(own['size_bytes'].sum() / run.recorded)}{run.each} at {digits(first['rate_gbps'])} GB/s{link})"
        if own["size_bytes"].notna().all()
        else ""
    )
    few = run.few_steps(steps.table, COPY.column)
    memory = "pageable" if is_pageable else str(first["source_memory" if way == "HtoD" else "target_memory"])
    yield Finding(
        headline=f"Exposed {_WAYS[way]} copies: {time_text(alone_ns)}{run.each}"
        f"{', in ' + numbered('step', few) if few else ''}.",
        why=f"Copies through {memory} CPU memory{what} overlap no compute.",
        fix=_FIXES[way, is_pageable],
        changes=(Change("copy", 0.0, steps=frozenset(few) or None),) if table["compute_pct"].max() > 0 else (),
        steps=few or None,
        evidence=tuple(own.head()[["rank", "direction", "copies", "exposed_ns"]].to_dict("records")),
        table="copies",
        half_of="" if few else "these copies",
        caveat="Pinning takes CPU memory: pin once and reuse buffers." if is_pageable else "",
    )
