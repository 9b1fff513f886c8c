"""Input-bound: GPUs wait for the next batch.

GPUs are idle at the start of each step while the CPU waits for a batch. The timeline shows the gap under a range such
as `enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__`.

**Why.** `_SingleProcessDataLoaderIter` means `num_workers=0`: the training process makes every batch itself, after
the last step's launches. With workers, the queue is empty because they are too few or too slow.

**Fix.**

```text
loader = DataLoader(dataset, batch_size, num_workers=6, persistent_workers=True, pin_memory=True, prefetch_factor=4)
```

Move decoding and augmentation into the workers, or onto the GPU when the workers' cores are busy.

**Measured.** Hugging Face Trainer on two H200s, `dataloader_num_workers` 0 → 6: 92.8 → 65.8 ms/step. A loader that
took 30 ms per batch, made ready: 61.6 → 31.9 ms/step.
"""

import re
from collections.abc import Iterator

from traceanalyzer.analyses.blame.step_budget import StepNeeds
from traceanalyzer.analyses.host.cpu_time import HostWork
from traceanalyzer.analyses.host.host_names import is_data
from traceanalyzer.analyses.host.idle import GapTable, Idle
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.findings.savings import CUTS
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import DATA, numbered

PLACE = "Input and CPU", 1

_LOADERS = (
    (
        "_SingleProcessDataLoaderIter",
        ", in the main process (num_workers=0)",
        "DataLoader(num_workers=4, persistent_workers=True, pin_memory=True).",
    ),
    (
        "_MultiProcessingDataLoaderIter",
        ", waiting for DataLoader workers",
        "More num_workers or a larger prefetch_factor; less decoding and augmentation per sample.",
    ),
    (
        "(?i)dali",
        ", waiting for NVIDIA DALI",
        'DALI: larger prefetch_queue_depth and num_threads; decode on the GPU (device="mixed").',
    ),
    ("", "", "Load the next batch in DataLoader workers or a thread while the GPU computes."),
)
"""Loaders by their ranges and frames: where batches are made, and how to make them sooner."""


def data_loading(run: Run, idle: Idle, gaps: GapTable, host_work: HostWork, step_needs: StepNeeds) -> Iterator[Finding]:
    """GPUs are idle while the CPU is in the DataLoader or a data range before the next launch.

    The change is batches that are ready when the CPU asks for them.
    """
    waits = run.per_step(idle.table, [DATA.column])[DATA.column].fillna(0).astype("float64")
    if not len(waits) or not run.is_worth(waits.max()):
        return
    rank = int(waits.idxmax())
    own = run.within(gaps.table)
    own = own[(own["rank"] == rank) & (own[DATA.column] > 0)]
    doing = own.groupby("doing", observed=True)[DATA.column].sum().sort_values(ascending=False)
    work = host_work.table[(host_work.table["rank"] == rank) & host_work.table["name"].astype("str").map(is_data)]
    names = [str(name) for name in (*doing.index, *work["name"])]
    where, fix = next((where, fix) for pattern, where, fix in _LOADERS if re.search(pattern, " ".join(names)))
    needs = step_needs.table[step_needs.table["rank"] == rank]
    steps = run.few_steps(needs, DATA.column)
    waited_ns = needs.loc[needs["step"].isin(steps), DATA.column].mean() if steps else waits[rank]
    when = f" in {numbered('step', steps)}" if steps else run.each
    place = next(filter(is_data, names), (*names, "a data range")[0])
    is_one = len(waits) > 1 and int((waits >= SHARE * waits.max()).sum()) == 1
    who = f"rank {rank}'s GPU waits" if is_one else "GPUs wait" if len(waits) > 1 else "the GPU waits"
    bound = "Input-bound" if 100 * waits[rank] >= CUTS[0][0] * run.step_ns else "DataLoader stall"
    yield Finding(
        headline=f"{bound}: {who} {time_text(round(waited_ns))}{when} for the next batch.",
        why=f"Rank {rank}'s GPU is idle while its CPU is in {short_name(place)}{where}.",
        fix=run.terms.choose(
            {
                "torch": fix,
                "jax": "Prefetch batches to the device (tf.data prefetch, grain workers).",
                "native": "Read the next batch in another thread while the GPU computes.",
            }
        ),
        changes=(Change("data", 0.0, steps=frozenset(steps) or None),),
        named=(rank,),
        steps=steps or None,
        evidence=tuple({"doing": name, "idle_ns": int(ns)} for name, ns in doing.head(5).items()),
        table="gaps",
        stated_ns=None if steps else float(waits[rank]),
    )
