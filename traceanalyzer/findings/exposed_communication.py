"""Communication-bound: transfers that no compute hides.

Transfers run while no compute kernel runs. Waiting for a straggler is not part of it.

**Why.** The bucket or the layer's parameters are requested too late, or too little compute is left to hide them.

**Fix.**

| strategy | what |
|---|---|
| DDP | `bucket_cap_mb`, `gradient_as_bucket_view=True`; `static_graph=True` |
| FSDP2 | `set_modules_to_forward_prefetch`, `set_modules_to_backward_prefetch`; smaller first and last units |
| FSDP1 | `forward_prefetch=True`, `limit_all_gathers=False`, `BackwardPrefetch.BACKWARD_PRE` |
| tensor parallel | async tensor parallel (`torch._inductor.config._micro_pipeline_tp`), sequence parallel |
| any | 16-bit gradients: `ddp_comm_hooks.default_hooks.bf16_compress_hook`, `MixedPrecisionPolicy(reduce_dtype=…)` |

**Measured.** One all-reduce per parameter after backward, replaced by DDP's buckets: 59.3 → 58.1 ms/step where
compute hid most of it already.
"""

from collections.abc import Iterator, Mapping

import pandas as pd

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.communication import groups as roles
from traceanalyzer.analyses.communication.collectives import transfer_kinds
from traceanalyzer.analyses.communication.groups import Groups, labels
from traceanalyzer.analyses.communication.waits import CallWaits
from traceanalyzer.analyses.host.host_names import UNATTRIBUTED
from traceanalyzer.analyses.phases import CallPhases, ExposedCalls, without_numbers
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.kinds import EXPERTS, MESSAGES
from traceanalyzer.meaning.columns import size_text, time_text
from traceanalyzer.meaning.names import collectives_words

PLACE = "Communication", 1

_PREFETCH = (
    "Prefetch the next layers: set_modules_to_forward_prefetch() and set_modules_to_backward_prefetch() (FSDP2), "
    "forward_prefetch=True and limit_all_gathers=False (FSDP)."
)
_OF_ROLES = (
    (roles.EXPERT, "Overlap dispatch and combine with shared experts or a second micro-batch (DeepEP)."),
    (roles.TENSOR, "Async tensor parallelism (torch._inductor.config._micro_pipeline_tp = True) or sequence parallel."),
    (roles.CONTEXT, "Exchange keys and values of the next chunk while attention runs (ring attention)."),
    (roles.SHARDED, _PREFETCH),
    (roles.SHARD, _PREFETCH),
)
"""PyTorch's own way to hide what a group of this role exchanges; the first role that the group's begins with."""


def exposed_communication(
    run: Run, exposed_calls: ExposedCalls, call_waits: CallWaits, call_phases: CallPhases, groups: Groups,
    pipeline: Pipeline,
) -> Iterator[Finding]:  # fmt: skip
    """Transfers of a collective run while the GPU computes nothing; waits for later ranks are not in it.

    The change is that collective's transfers free. Pipelines' messages belong to their bubble.
    """
    if exposed_calls.table.empty or call_waits.table.empty:
        return
    names = ["rank", "call", "collective", "group", "group_ranks", "is_matched", "is_synchronising", "size_bytes"]
    calls = call_waits.table[names]
    held = run.within(exposed_calls.table).merge(calls[calls["collective"].notna()], on=["rank", "call"])
    held = held.merge(call_phases.table[["rank", "call", "phase", "range"]], on=["rank", "call"], how="left")
    held = held.assign(kind=transfer_kinds(held["collective"]), label=labels(groups, held))
    held["ns"] = held[["transfer_ns", "unmatched_ns"]].fillna(0).sum(axis=1).astype("float64") / run.count
    for kind, own in held.groupby("kind"):
        by_rank = own.groupby("rank")["ns"].sum()
        if run.is_worth(by_rank.max()) and not (kind == MESSAGES and len(pipeline)):
            yield _finding(run, str(kind), own, int(by_rank.idxmax()), float(by_rank.max()), groups.table)


def _several(kind: str) -> str:
    return "communication" if kind == "unknown" else collectives_words(kind)


def _finding(run: Run, kind: str, own: pd.DataFrame, rank: int, ns: float, groups: pd.DataFrame) -> Finding:
    several, phase, label = _several(kind), _most(own, own["phase"]), _most(own, own["label"])
    where = _most(own, without_numbers(own["range"]))
    role = dict(zip(groups["group_label"], groups["role"].fillna(""), strict=True)).get(label, "")
    is_open = own["ns"].where(~is_true(own["is_matched"]), 0).sum() > SHARE * own["ns"].sum()
    is_unequal = own["ns"].where(~is_true(own["is_synchronising"]), 0).sum() > SHARE * own["ns"].sum()
    place = f"the {role} group" if role and where in (None, phase) else where
    inside = f", mostly in {place}" if place and place != phase else ""
    when = f", mostly in {phase}" if phase and phase != UNATTRIBUTED else ""
    partners = "; waiting for ranks whose calls are unknown may be part of it" if is_open else ""
    return Finding(
        headline=f"Exposed {several}: {'up to ' if is_unequal else ''}{time_text(ns)}{run.each}{when}"
        f"{' (unattributed)' if is_open else ''}.",
        why=f"Rank {rank}'s GPU runs no compute during {several}{inside}{_calls(run, own, rank)}{partners}.",
        fix=run.terms.choose(
            {
                "torch": _of_torch(kind, str(role), phase),
                "jax": "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true, and larger combine "
                "thresholds (--xla_gpu_all_gather_combine_threshold_bytes).",
                "engine": "Fuse all-reduce with normalization, or overlap two micro-batches; fewer tensor-parallel "
                "ranks where the model fits.",
                "native": f"Start {several} sooner, on a stream of their own, and compute meanwhile.",
            }
        ),
        changes=() if is_open else (Change("collective", 0.0, name=kind),),
        half_of="the transfer time",
        stated_ns=ns,
        named=(rank,),
        evidence=tuple(
            {"range": None if pd.isna(row["range"]) else row["range"], "phase": row["phase"], "exposed_ns": row["ns"]}
            for row in own.groupby(["range", "phase"], dropna=False, observed=True)["ns"].sum().reset_index()
            .sort_values("ns", ascending=False).head(5).to_dict("records")
        ),
        table="exposed_calls",
        caveat="Part of it may be waiting for other ranks: these calls take different times on each rank."
        if is_unequal
        else "",
    )  # fmt: skip


def _calls(run: Run, own: pd.DataFrame, rank: int) -> str:
    """`: 2 calls per step, 1.72 GB on average`."""
    calls = own[(own["rank"] == rank) & (own["ns"] > 0)].drop_duplicates("call")
    count, size = round(len(calls) / run.count), calls["size_bytes"].astype("float64").mean()
    each = "" if pd.isna(size) else f", {size_text(size)} on average"
    return f": {count:,} call{'' if count == 1 else 's'} {run.per}{each}" if count else ""


def _most(own: pd.DataFrame, by: pd.Series) -> str | None:
    """The phase, range or group that holds most of the time; `None` where none does."""
    sums = own["ns"].groupby(by.astype("object")).sum()
    return str(sums.idxmax()) if len(sums) and sums.max() >= SHARE * own["ns"].sum() else None


def _of_torch(kind: str, role: str, phase: str | None) -> str:
    role = roles.EXPERT if kind in EXPERTS else role
    fix = next((fix for start, fix in _OF_ROLES if role.startswith(start)), None)
    if fix == _PREFETCH and kind == "reduce_scatter":
        return "Smaller last FSDP units, or MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)."
    if (
        fix is None
        or (fix == _PREFETCH and phase not in _PASSES)
        or (role.startswith(roles.EXPERT) and kind not in _TOKENS)
    ):
        fix = _OF_CALLS.get((kind, phase))
    if fix is None and kind == "all_reduce" and role.startswith(roles.DATA):
        fix = "Let DistributedDataParallel all-reduce buckets during backward, instead of all gradients after it."
    return fix or f"Start {_several(kind)} sooner: async_op=True, and wait() only where the result is used."


_PASSES, _TOKENS = ("forward", "backward"), ("all_to_all", *EXPERTS)

_OF_CALLS: Mapping[tuple[str, str | None], str] = {
    ("all_reduce", "backward"): "DistributedDataParallel with bucket_cap_mb=25, its default: buckets then start "
    "during backward; or bf16_compress_hook.",
    ("broadcast", "forward"): "DistributedDataParallel(broadcast_buffers=False), if ranks need not share buffers.",
    ("broadcast", "optimizer"): "fully_shard() instead of ZeroRedundancyOptimizer: gathers run beside compute.",
}
"""By collective and phase, where the group's role does not tell."""
