"""Blocking calls: CPUs that wait for their GPUs within a step.

The CPU stands in `cudaStreamSynchronize`, `cudaDeviceSynchronize` or a blocking copy; when it returns, the GPU has
run out of queued kernels and stays idle until the next launches arrive.

**Why.** `.item()`, `.cpu()`, `print(tensor)`, `if tensor:`, NaN checks, boolean masks and `torch.cuda.synchronize()`
wait for everything that was launched before.

**Fix.** Keep the value on the GPU and read it every N steps:

```text
running += loss.detach()          # no .item() in the step
if step % 100 == 0:
    log(running.item() / 100)
```

Copy with `pin_memory=True` and `non_blocking=True`. `torch.cuda.set_sync_debug_mode("warn")` names the lines.

**Measured.** 60 `.item()` calls per step removed: 29.6 → 21.1 ms/step. Three synchronizations per step removed: 32.0
→ 24.9 ms/step.
"""

import re
from collections.abc import Iterator

import pandas as pd

from traceanalyzer.analyses.blame.step_budget import WhatRan
from traceanalyzer.analyses.host.api_calls import SyncCalls
from traceanalyzer.analyses.host.host_names import FOR_ALL, FOR_EVENT, waits_for
from traceanalyzer.analyses.operators.launch_loops import LaunchLoops
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.analyses.streams import SyncCopies
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.per_tensor_work import of_tensors
from traceanalyzer.findings.run import Run, doing, other_work
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import numbered

PLACE = "Input and CPU", 3

_PLACE = ["name", "operator", "range"]

_FIXES = (
    ("aten::(item|_local_scalar_dense)", "No .item(), float() or print of GPU values: read them every N steps."),
    ("aten::(nonzero|masked_select|index|_?unique.*)$", "torch.where or a product with the mask, no boolean indexing."),
)
"""What to do about the operator that waits."""

_ONE_PROCESS = (
    "One process per GPU (torchrun, DistributedDataParallel): one CPU that waits for a GPU leaves others idle."
)


def blocking_calls(
    run: Run, sync_calls: SyncCalls, sync_copies: SyncCopies, what_ran: WhatRan, launch_loops: LaunchLoops, ranks: Ranks
) -> Iterator[Finding]:
    """Calls in a step block the CPU until its GPU is done: `.item()`, pageable copies, synchronization.

    The GPU is idle in and after such a call until the CPU has launched again, and the CPU's lead is gone. Where the CPU
    does something else for most of that time, it is a stall; calls of a loop's turns are per-tensor work. The change is
    calls that do not wait.
    """
    calls = run.within(sync_calls.table)
    calls = calls[~_is_of_ddp(calls)]
    calls = calls.assign(idle_ns=calls["idle_in_call_ns"] + calls["idle_after_ns"])
    idle_ns = calls.groupby("rank")["idle_ns"].sum().astype("float64") / run.count
    if not len(idle_ns) or not idle_ns.max():
        return
    rank = int(idle_ns.idxmax())
    if other_work(doing(run, what_ran, rank)) or _are_in_loops(calls, launch_loops, rank):
        return
    mine = calls[(calls["rank"] == rank) & (calls["idle_ns"] > 0)]
    own = mine.groupby(_PLACE, dropna=False, observed=True)[["calls", "idle_ns"]].sum()
    own = own.sort_values("idle_ns", ascending=False).reset_index()
    steps = run.few_steps(mine, "calls")
    count = int(own["calls"].sum())
    often = f"{round(count / run.count):,} times {run.per}" if round(count / run.count) > 1 else f"once {run.per}"
    often = f"{'once' if count == 1 else f'{count} times'} in {numbered('step', steps)}" if steps else often
    names = sorted(map(str, calls["name"].unique()))
    yield Finding(
        headline=f"Blocking calls: the CPU waits for the GPU {often}.",
        why=f"{_where(own)} drains rank {rank}'s launch queue: its GPU is idle {time_text(idle_ns[rank])}{run.each} "
        "in and after these calls.",
        fix=_ONE_PROCESS if ranks.is_one_process else _fix(run, own, sync_copies, rank),
        changes=tuple(Change("sync", steps=frozenset(steps) or None, name=name) for name in names),
        named=(rank,),
        steps=steps or None,
        evidence=tuple(own.head(5).astype("object").where(own.notna(), None).to_dict("records")),
        table="sync_calls",
        half_of="these waits",  # some stay: the last of a step, or the value that decides the next one
    )


def _are_in_loops(calls: pd.DataFrame, launch_loops: LaunchLoops, rank: int) -> bool:
    """Whether most of a rank's calls are made by the turns of loops that are per-tensor work."""
    loops = of_tensors(launch_loops)
    loops = loops[loops["rank"] == rank]
    return bool(loops["blocking_calls"].sum() >= SHARE * calls.loc[calls["rank"] == rank, "calls"].sum() > 0)


def _is_of_ddp(calls: pd.DataFrame) -> pd.Series:
    """Which calls are DDP's own timing: of its first ten steps, and every hundredth later."""
    is_event = calls["name"].map(waits_for) == FOR_EVENT
    return is_event & (calls["range"] == "DistributedDataParallel.forward").fillna(value=False)


def _where(own: pd.DataFrame) -> str:
    """`cudaStreamSynchronize in aten::item`: the call that costs most, and where."""
    first = own.iloc[0]
    place = next((name for name in first[["operator", "range"]] if pd.notna(name)), None)
    return f"{first['name']}{f' in {short_name(place)}' if place else ''}"


def _fix(run: Run, own: pd.DataFrame, sync_copies: SyncCopies, rank: int) -> str:
    is_pageable = _is_pageable(own, sync_copies, rank)
    torch = "DataLoader(pin_memory=True) and tensor.to(device, non_blocking=True)." if is_pageable else None
    if waits_for(str(own["name"].iloc[0])) == FOR_ALL:
        torch = torch or "Remove torch.cuda.synchronize() from the step: time with CUDA events, or every N steps."
    torch = torch or next((fix for pattern, fix in _FIXES if re.match(pattern, str(own["operator"].iloc[0]))), None)
    return run.terms.choose(
        {
            "torch": torch or f"Avoid {_where(own)}; read values (.item(), .cpu(), print) every N steps.",
            "jax": "No block_until_ready(), float() or np.asarray() of device arrays in the step; read every N steps.",
            "vLLM": "--async-scheduling: the next iteration is prepared while this one runs.",
            "engine": "Leave overlap scheduling on: the next iteration is prepared while this one runs.",
            "native": "Copy asynchronously from pinned memory."
            if is_pageable
            else "Order work by events (cudaStreamWaitEvent) instead of waiting; wait once, at the end.",
        }
    )


def _is_pageable(own: pd.DataFrame, sync_copies: SyncCopies, rank: int) -> bool:
    """Whether most of the idle time follows calls that copy, and most of what these copy is uploaded from pageable."""
    copies = sync_copies.table[sync_copies.table["rank"] == rank]
    uploads = copies[(copies["problem"] == "pageable") & (copies["operation"] == "HtoD")]
    if not uploads["total_bytes"].sum() >= SHARE * copies["total_bytes"].sum() > 0:
        return False
    of_copies = own["operator"].isin(("aten::copy_", "aten::_to_copy", "aten::to"))
    of_copies |= own["name"].isin(uploads["api_call"])
    return bool(own.loc[of_copies, "idle_ns"].sum() >= SHARE * own["idle_ns"].sum())
