"""Work that a loop repeats tensor by tensor.

One loop on the CPU launches the same few small kernels for every parameter: an exponential moving average, gradient
clipping by hand, a NaN check per gradient, a per-sample augmentation.

**Why.** A thousand parameters times four launches is 4,000 launches for work that one kernel can do.

**Fix.** The list forms do it in a few launches:

```text
torch._foreach_mul_(averages, decay)
torch._foreach_add_(averages, parameters, alpha=1 - decay)
torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
optimizer = torch.optim.AdamW(parameters, fused=True)
```

**Measured.** Moving averages on the CPU of rank 0, done on the GPU: 150 → 21.6 ms/step.
"""

import re
from collections.abc import Iterator

import pandas as pd

from traceanalyzer.analyses.host.host_names import phase
from traceanalyzer.analyses.operators.launch_loops import LaunchLoops
from traceanalyzer.analyses.operators.operators import OperatorKernels
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import digits, time_text
from traceanalyzer.meaning.names import short_name

PLACE = "Input and CPU", 4

_FIXES = (
    ("is(finite|nan|inf)", "Check the norm that clip_grad_norm_ returns once; leave detect_anomaly off."),
    ("norm.*item", "torch.nn.utils.clip_grad_norm_ or get_total_norm takes all tensors in one call, without .item()."),
    (
        r"DistributedDataParallel\.forward .*copy_",
        "DistributedDataParallel(broadcast_buffers=False), if ranks need not share buffers such as BatchNorm's.",
    ),
    ("copy_bucket_to_grad", "DistributedDataParallel(gradient_as_bucket_view=True): gradients stay in its buckets."),
    ("copy_|Memcpy", "torch._foreach_copy_ takes the list of all tensors in one call."),
    ("nonzero|aten::index(?!_)|masked_select", "torch.where or a product with the mask, no boolean indexing."),
)
"""What to do about what a turn launches in a phase."""


def per_tensor_work(run: Run, launch_loops: LaunchLoops, operator_kernels: OperatorKernels) -> Iterator[Finding]:
    """The CPU launches the same few operators over and over: for one tensor, or sample, after the other.

    The change is one turn for all of them, and of an optimizer's passes over the parameters the longest alone.
    """
    table = of_tensors(launch_loops)
    for place, rows in table.groupby(table["range"].astype("object").fillna("")):
        first = rows.loc[rows["host_ns"].idxmax()]
        rank, turn = int(first["rank"]), str(first["loop"]).removeprefix(f"{place}: ")
        own = rows[rows["rank"] == rank].sort_values("host_ns", ascending=False)
        launched, host_ns = (own[name].sum() / run.recorded_each for name in ("launches", "host_ns"))
        turns, others = first["turns"] / run.recorded_each, len(own) - 1
        if not run.is_worth(host_ns):
            continue
        passes = _passes(operator_kernels.table, place)
        is_by_tensor = bool(first["of_sizes"]) or phase(place) == "optimizer"
        item = "tensor" if is_by_tensor else "item"
        yield Finding(
            headline=f"{'Per-tensor' if is_by_tensor else 'Launch'} loop: {digits(round(launched))} launches {run.per}"
            f"{f' in {short_name(place)}' if place else ''}.",
            why=f"{turn} {'run' if ',' in turn else 'runs'} for one {item} after the other, {digits(round(turns))} "
            f"{run.per}{f'; {others} more such loops' if others else ''}: {time_text(host_ns)}{run.each} of rank "
            f"{rank}'s CPU{_of_gpu(run, passes[passes['rank'] == rank])}.",
            fix=_fix(run, turn, place, is_by_tensor=is_by_tensor),
            changes=(
                *(Change("loop", name=str(name)) for name in rows["loop"].unique()),
                *run.shorter_operators(_by_operator(passes).iloc[1:]),
            ),
            named=(rank,),
            evidence=tuple(own[["loop", "runs", "turns", "launches", "host_ns"]].head(5).to_dict("records")),
            table="launch_loops",
        )


def of_tensors(launch_loops: LaunchLoops) -> pd.DataFrame:
    """The loops of one tensor, or sample, after the other.

    Turns with matrix products may be layers, which need each other, and autograd's are no loop of the program but where
    it checks gradients; uploads that block are blocking calls.
    """
    table = launch_loops.table
    waits = table["of_uploads"].astype(bool) & (table["blocking_calls"] >= SHARE * table["turns"])
    is_layer = table["has_products"].astype(bool)
    is_layer |= table["of_autograd"].astype(bool) & ~table["loop"].astype("str").str.contains("isnan")
    return table[~(is_layer | waits)]


def _passes(kernels: pd.DataFrame, place: str) -> pd.DataFrame:
    """An optimizer's element-wise kernels: a fused one reads and writes the parameters once."""
    is_own = kernels["path"].astype("str").str.endswith(place) & (kernels["category"] == "element-wise")
    return kernels[is_own & (phase(place) == "optimizer")]


def _by_operator(passes: pd.DataFrame) -> pd.Series:
    """GPU time, longest first."""
    return passes.groupby("operator", observed=True)["gpu_ns"].sum().sort_values(ascending=False)


def _of_gpu(run: Run, passes: pd.DataFrame) -> str:
    """`, and 20.1 ms of its GPU in passes over the parameters`."""
    gpu_ns = passes["gpu_ns"].sum() / run.recorded_each
    return f", and {time_text(gpu_ns)} of its GPU in passes over the parameters" if gpu_ns else ""


def _fix(run: Run, turn: str, place: str, *, is_by_tensor: bool) -> str:
    known = next((fix for pattern, fix in _FIXES if re.search(pattern, f"{place} {turn}")), None)
    if known is None and phase(place) == "optimizer":
        known = "Optimizer with fused=True, else foreach=True; torch._foreach_mul_ and the like in one of your own."
    elif known is None and is_by_tensor:
        known = "torch._foreach_mul_, torch._foreach_add_ and the like take the list of all tensors in one call."
    return run.terms.choose(
        {
            "torch": known
            or "Stack the tensors and compute once (torch.vmap); if turns need each other, "
            f"torch.compile or {run.terms.graphs} for the loop.",
            "engine": f"{run.terms.graphs} around the loop, or one batched kernel.",
            "jax": "jax.vmap over the items, or jax.lax.scan within one jit.",
            "native": f"One batched kernel for all items, or {run.terms.graphs} around the loop.",
        }
    )
