"""What the model should hold on a GPU under each strategy, beside what was measured: which of them would fit."""

from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.memory.memory import Memory
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.job.model_state import SHARDED, Model, Needs, assumptions, choices, needs
from traceanalyzer.meaning.columns import Adds, Column, declared

SAFE_PCT = 90.0
"""Of the GPU's memory that an estimate may take: fragments, libraries and its own error need the rest."""

YES, TIGHT, NO, OPEN = "yes", "tight", "no", "state does, activations are not known"

_SIZES = (
    "parameter_bytes", "gradient_bytes", "optimizer_bytes", "state_bytes", "buffer_bytes", "activation_bytes",
    "total_bytes", "device_bytes", "headroom_bytes", "measured_peak_bytes",
)  # fmt: skip


_MOST_BYTES = np.iinfo(np.int64).max // 2
"""What is more fits into no table, and no run has it."""


class MemoryFit(Result):
    """One row for each strategy, with and without activation checkpointing, and for smaller micro-batches; an estimate.

    Rows are in the order of what they cost: by strategy first. No rows unless run.json or `--model` tells the
    number of parameters.
    """

    title = "Memory expected, by strategy"
    keys = ("strategy", "tp", "pp", "checkpointing", "micro_batch")
    is_of_one_run = True
    columns = declared(
        strategy=(
            f"{', '.join(SHARDED)}: what data-parallel ranks share of the model's state. zero3 is FSDP with full "
            "sharding, offload that with its state on the host."
        ),
        tp=Column.ident("Ranks that share each layer (tensor parallelism)."),
        pp=Column.ident("Stages of the pipeline."),
        checkpointing=Column.flag("Layers are recomputed in the backward pass: only their inputs are kept."),
        micro_batch=Column.number("Samples of a micro-step on a data-parallel rank; absent where not known."),
        is_own="The run's own strategy, as run.json or `--model` says it.",
        parameter_bytes=Column.size("Parameters on one GPU.", adds=Adds.NONE),
        gradient_bytes=Column.size("Gradients on one GPU.", adds=Adds.NONE),
        optimizer_bytes=Column.size("The optimizer's values and master copies on one GPU.", adds=Adds.NONE),
        state_bytes=Column.size("The three together.", adds=Adds.NONE),
        buffer_bytes=Column.size(
            "DDP's buckets, or two gathered layers and one layer's gradients; n/a without the number of layers.",
            adds=Adds.NONE,
        ),
        activation_bytes=Column.size(
            "Activations of a transformer of this shape; n/a where layers, d_model, seq or batch are not known.",
            adds=Adds.NONE,
        ),
        total_bytes=Column.size("State, buffers and activations; n/a where one of them is.", adds=Adds.NONE),
        device_bytes="Memory of the smallest GPU, or as `--model gpu=` says.",
        headroom_bytes=Column.size("Device − total; negative when it does not fit.", adds=Adds.NONE),
        fits=(
            f"`{YES}`: the total is at most {SAFE_PCT:.0f}% of the device; `{TIGHT}`: it is below the device; `{NO}`; "
            f"`{OPEN}`; absent where the device's memory is not known."
        ),
        is_enough="The first row that fits: the least that is needed at this micro-batch.",
        measured_peak_bytes=Column.size(
            "Largest peak of the ranks' allocated memory, as run.json has it, else the trace; of the run's own row.",
            adds=Adds.NONE,
        ),
        assumptions=Column.text("What the estimate supposes.", is_secondary=True),
    )


def across(
    ranks: Ranks,
    memory: Memory,
    trained_model: Model | None = None,
    run_memory: Mapping[int, Mapping[str, int]] | None = None,
) -> MemoryFit:
    """The model's needs under every strategy.

    `trained_model` is what run.json or the user says of it, `run_memory` what the run itself recorded.
    """
    if trained_model is None:
        return MemoryFit.without_rows()
    return estimate(trained_model, _smallest(ranks), _world(ranks), _peak(memory, run_memory))


def estimate(own: Model, device_bytes: int | None, world: int | None, peak_bytes: int | None) -> MemoryFit:
    """The needs of a job's model under every strategy.

    Args:
        own: the model as the job trains it.
        device_bytes: memory of the smallest GPU, where the model does not tell it.
        world: ranks of the job, where the model does not tell how many share its state.
        peak_bytes: largest peak of the ranks' allocated memory, measured.
    """
    model = placed(own, device_bytes, world)
    rows = [_row(one, needed, own) for one, needed in choices(model)]
    rows = [
        {name: None if isinstance(value, int) and abs(value) > _MOST_BYTES else value for name, value in row.items()}
        for row in rows
    ]
    table = pd.DataFrame(rows).astype({"micro_batch": "Int64", **dict.fromkeys(_SIZES, "Int64")})
    is_own = table["is_own"]
    table.loc[is_own, "measured_peak_bytes"] = peak_bytes
    fits = table["fits"] == YES
    first = fits & ~fits.groupby(table["micro_batch"], dropna=False).cumsum().gt(1)
    return MemoryFit(table.assign(is_enough=first, assumptions=assumptions(model)))


def placed(own: Model, device_bytes: int | None, world: int | None) -> Model:
    """The model with its GPU and the ranks that share its state, where it does not tell them itself."""
    return replace(own, gpu=own.gpu or device_bytes, dp=own.dp or max((world or 1) // (own.tp * own.pp), 1))


def largest_batch(model: Model) -> tuple[int, int] | None:
    """The largest micro-batch, by halves, with which the model fits as it is trained, and what it takes then."""
    batch = model.batch or 0
    while model.gpu and batch:
        total = needs(replace(model, batch=batch)).total_bytes
        if total is None:
            return None
        if 100 * total <= SAFE_PCT * model.gpu:
            return batch, total
        batch //= 2
    return None


def _row(one: Model, needed: Needs, own: Model) -> dict[str, object]:
    total = needed.total_bytes
    return {
        **asdict(needed),
        "strategy": one.strategy,
        "tp": one.tp,
        "pp": one.pp,
        "checkpointing": one.checkpoint,
        "micro_batch": one.batch,
        "is_own": _setting(one) == _setting(own),
        "state_bytes": needed.state_bytes,
        "total_bytes": total,
        "device_bytes": one.gpu,
        "headroom_bytes": None if total is None or one.gpu is None else one.gpu - total,
        "fits": _fits(needed, one.gpu),
        "measured_peak_bytes": None,
    }


def _setting(model: Model) -> tuple[object, ...]:
    return model.strategy, model.tp, model.pp, model.checkpoint, model.batch


def _fits(needed: Needs, device: int | None) -> str | None:
    if device is None:
        return None
    total = needed.total_bytes
    if total is None:
        return OPEN if needed.state_bytes <= device else NO
    return NO if total > device else YES if 100 * total <= SAFE_PCT * device else TIGHT


def _smallest(ranks: Ranks) -> int | None:
    known = ranks.table["device_bytes"].dropna()
    return int(known.min()) if len(known) else None


def _world(ranks: Ranks) -> int:
    sizes = ranks.table["world_size"].dropna()
    return int(sizes.max()) if len(sizes) else len(ranks)


def _peak(memory: Memory, run_memory: Mapping[int, Mapping[str, int]] | None) -> int | None:
    """The run's own record is of all its steps; a capture's is of the recorded ones."""
    recorded = [own["peak_allocated_bytes"] for own in (run_memory or {}).values() if "peak_allocated_bytes" in own]
    peaks = memory.table["peak_allocated_bytes"].dropna() if len(memory) else list[int]()
    return max(recorded) if recorded else int(max(peaks)) if len(peaks) else None
