"""Redundant communication: gradients of every micro-step, parameters gathered again, more exchanges than peers.

The same data travels more often than needed: gradients in every micro-step, parameters gathered again in backward,
one group that exchanges more often than its sisters.

**Fix.**

```text
with model.no_sync():                 # DDP: all but the last micro-batch
    loss.backward()
model.set_requires_gradient_sync(last_microbatch)   # FSDP2
fully_shard(layer, reshard_after_forward=False)     # keep gathered parameters, if memory allows
```

**Measured.** torchtitan llama3 8B on four H100s, `fsdp_reshard_after_forward` default → never: 345 → 318 ms/step, and
13.6 GiB more memory. While a job is CPU-bound, removing redundant all-reduces saves little.
"""

from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from traceanalyzer.analyses.communication.calls import Calls
from traceanalyzer.analyses.communication.groups import LARGE_BYTES, SHARDED, Groups
from traceanalyzer.analyses.phases import CallPhases
from traceanalyzer.analyses.phases.micro_steps import GRADIENT_COLLECTIVES, MicroSteps
from traceanalyzer.analyses.pipelines.pipeline import Pipeline
from traceanalyzer.analyses.replay.changes import NOT_MADE, Change
from traceanalyzer.analyses.replay.critical_path import Bottleneck
from traceanalyzer.analyses.statistics import RATIO, SHARE
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import digits, numbers, size_text
from traceanalyzer.meaning.names import collectives_words

PLACE = "Communication", 2

_GROUP = ["group", "group_ranks"]


def redundant_communication(
    run: Run,
    calls: Calls,
    call_phases: CallPhases,
    micro_steps: MicroSteps,
    groups: Groups,
    pipeline: Pipeline,
    bottleneck: Bottleneck,
) -> Iterator[Finding]:
    """Gradients are exchanged in each micro-step, parameters gathered again, or one group exchanges more than others.

    The change is those calls not made. Where CPUs are the bottleneck and it saves nothing, it is listed under "Also
    seen".
    """
    if run.steps is None or not len(calls):
        return
    held = run.within(calls.table).merge(call_phases.table[["rank", "call", "phase"]], on=["rank", "call"])
    held = held[held["size_bytes"].notna()].sort_values("start_ns").astype(dict.fromkeys(_GROUP, "object"))
    found = [*_every_micro_step(run, held, run.within(micro_steps.table)), *_gathered_again(run, held, groups.table)]
    if not len(pipeline):  # its stages differ by design
        found += _more_than_sisters(run, held, groups.table)
    for each in found:
        is_fact = bottleneck.bound == "CPU-bound" and not run.is_worth(run.saved_ns(*each.changes))
        of_cpus = (
            " Launching these collectives also costs CPU time, and the CPU limits the step."
            if bottleneck.bound == "CPU-bound"
            else ""
        )
        yield replace(each, why=each.why + of_cpus, changes=() if is_fact else each.changes)


def _every_micro_step(run: Run, calls: pd.DataFrame, steps: pd.DataFrame) -> Iterator[Finding]:
    """All micro-steps of all steps exchange the same sequence of gradients."""
    known = steps["micro_steps"].dropna().unique()
    count = int(known[0]) if len(known) == 1 else 0
    # Several optimizers in turn are several models, each with gradients of its own.
    if count < 2 or (steps["synchronising_micro_steps"] != count).any() or (steps["optimizer_steps"] > 1).any():
        return
    own = calls[calls["collective"].isin(GRADIENT_COLLECTIVES) & (calls["size_bytes"] >= LARGE_BYTES)]
    keys = own["collective"].astype("str") + own["size_bytes"].astype("str") + own["group_ranks"].astype("str")
    sequences = keys.groupby([own["rank"], own["step"]]).agg(list)
    if not len(sequences) or not sequences.map(lambda sequence: _repeats(sequence, count)).all():
        return
    collective = str(own["collective"].iloc[0])
    several, one = collectives_words(collective), own[own["rank"] == own["rank"].iloc[0]]
    moved = one["size_bytes"].astype("float64").sum() * (count - 1) / count / run.count
    yield Finding(
        changes=(Change("collective", NOT_MADE, name=f"{collective}@{count - 1}/{count}"),),
        headline=f"Redundant {several}: gradients are exchanged in all {count} micro-steps.",
        why=f"Each rank exchanges gradients after each of {count} micro-steps; after the last one alone it would be "
        f"{size_text(moved)} less per step.",
        fix="model.no_sync() (DDP) or set_requires_gradient_sync(False) (FSDP2) around all but the last micro-batch.",
        table="micro_steps",
        caveat="Sharded gradients then stay whole on each rank between micro-steps, which takes memory."
        if collective == "reduce_scatter"
        else "",
    )


def _repeats(sequence: list[str], count: int) -> bool:
    """Whether it is one sequence so many times; two calls alike may be of two models."""
    each, rest = divmod(len(sequence), count)
    return not rest and len(sequence) > 2 and sequence == sequence[:each] * count


def _gathered_again(run: Run, calls: pd.DataFrame, groups: pd.DataFrame) -> Iterator[Finding]:
    """Backward gathers most of the sizes that the same sharding group gathered in forward."""
    sharded = groups.loc[groups["role"] == SHARDED, _GROUP].astype("object")
    own = calls[calls["collective"] == "all_gather"].merge(sharded, on=_GROUP)
    keys = ["rank", "step", *_GROUP, "size_bytes"]
    forward, backward = (own[own["phase"] == phase].groupby(keys).size() for phase in ("forward", "backward"))
    again = forward.reindex(backward.index).fillna(0).clip(upper=backward) * _sizes(backward)
    if not len(again) or again.sum() < SHARE * (backward * _sizes(backward)).sum():
        return
    kept = size_text(again.groupby("rank").sum().max() / run.count)
    yield Finding(
        changes=(Change("collective", NOT_MADE, name="all_gather@backward"),),
        headline="Parameters are gathered again in backward.",
        why=f"Backward all-gathers {kept}{run.each} on each rank, in the same sizes as forward.",
        fix="reshard_after_forward=False (FSDP2), ShardingStrategy.SHARD_GRAD_OP (FSDP), stage 2 (DeepSpeed).",
        table="calls",
        caveat=f"The fix takes up to {kept} more memory per GPU.",
    )


def _sizes(counts: pd.Series) -> pd.Series:
    return counts.index.get_level_values("size_bytes").to_series(counts.index).astype("float64")


def _more_than_sisters(run: Run, calls: pd.DataFrame, groups: pd.DataFrame) -> Iterator[Finding]:
    """A group runs a collective of one size more often than other groups of its role and size."""
    known = groups.loc[groups["role"].notna() & groups["group_ranks"].notna(), [*_GROUP, "role", "group_size"]]
    own = calls.drop(columns="group_size", errors="ignore").merge(known.astype(dict.fromkeys(_GROUP, "object")))
    sort = ["role", "group_size", "collective", "size_bytes"]
    each = own.groupby([*sort, *_GROUP, "rank"], observed=True).size().groupby([*sort, *_GROUP]).max() / run.count
    for _, counts in each.groupby(sort):
        usual, most = counts.median(), counts.max()
        if len(counts) < 3 and most >= RATIO * counts.min():
            usual = counts.min()
        if most < RATIO * usual:
            continue
        _, _, collective, size, _, text = counts.idxmax()
        ranks, several = tuple(numbers(text)), collectives_words(collective)
        times, own_count = f"{most / usual:.3g}", digits(round(most))
        change = Change("collective", NOT_MADE, name=f"{collective}@{round(most - usual)}/{round(most)}@{text}")
        yield Finding(
            changes=(change,),
            headline=f"{run.who(ranks).capitalize()} run {times}× as many {several} as peers.",
            why=f"They run {own_count} {several} of {size_text(size)}{run.each}, other groups of their role "
            f"{digits(round(usual))}.",
            fix="Set up these ranks like the others: look for a missing model.no_sync(), other buckets, or a hook.",
            ranks=ranks,
            cause="transfer",
            table="calls",
        )
