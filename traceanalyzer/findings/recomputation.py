"""Activation recomputation: activation checkpointing runs forward work twice.

Backward runs forward operators again (activation checkpointing).

**Fix.** If memory allows, checkpoint fewer blocks, or only what is cheap to recompute (selective activation
checkpointing). torchtitan: `--activation_checkpoint.mode selective` or `none`.

**Measured.** torchtitan llama3 8B on four H100s, sequence 2,048, full → none: 417 → 345 ms/step, and 9.6 GiB more
memory.
"""

from collections.abc import Iterator

from traceanalyzer.analyses.memory import Memory
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.meaning.columns import size_text, time_text

PLACE = "Compute", 1


def recomputation(run: Run, operators: Operators, memory: Memory) -> Iterator[Finding]:
    """The backward pass runs operators of the forward pass again (activation checkpointing).

    Compiled graphs don't say what they repeat. The change is the recomputed GPU work gone.
    """
    own = operators.table[operators.table["autograd"] == "recompute"]
    by_rank = own.groupby("rank")["gpu_own_ns"].sum() / run.recorded_each
    if not len(by_rank) or not run.is_worth(by_rank.max()):
        return
    ranks = tuple(map(int, by_rank.index[by_rank > 0]))
    by_operator = own.groupby("operator", observed=True)["gpu_own_ns"].sum().nlargest(5)
    is_all = set(ranks) == {*run.ranks}
    left = memory.to_frame()["headroom_bytes"].dropna() if len(memory) else ()
    room = f" The GPUs have {size_text(float(min(left)))} left." if len(left) else ""
    yield Finding(
        headline=f"Activation recomputation: {time_text(by_rank.max())}{run.each} of GPU time.",
        why=f"The backward pass runs forward operators again{'' if is_all else f' on {run.who(ranks)}'}, "
        f"most of it {by_operator.index[0]}.",
        fix="Checkpoint fewer layers, or use selective activation checkpointing (torchtitan: "
        f"activation_checkpoint.mode selective), if memory allows.{room}",
        changes=(Change("operator", 0.0, name="@recompute"),),
        named=() if is_all else ranks,
        evidence=tuple({"operator": name, "gpu_ns": int(ns)} for name, ns in by_operator.items()),
        table="operators",
        caveat="Without it, more activations stay in GPU memory.",
    )
