"""What ran, as a table of the report: strategy, model, batch, dtype and speed without a profiler."""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.job.run_info import RunInfo
from traceanalyzer.meaning.columns import Column


class RunFacts(Result):
    """One row for each thing that the run.json beside the traces says."""

    title: ClassVar[str] = "What ran (run.json)"
    keys: ClassVar[tuple[str, ...]] = ("fact",)
    columns: ClassVar[Mapping[str, Column]] = {
        "fact": Column.text("What run.json calls it; `batch.global_batch` is inside `batch`."),
        "value": Column.text("As it says; times in nanoseconds."),
    }


def run_facts(info: RunInfo) -> RunFacts:
    """The known fields, nested ones by their path; memory by rank and single values of lists are left out."""
    flat = _flat(msgspec.to_builtins(info))
    return RunFacts(pd.DataFrame({"fact": list(flat), "value": [str(value) for value in flat.values()]}, dtype="str"))


def headline_facts(info: RunInfo) -> list[str]:
    """What a page's first lines say of the run: strategy, model, batch and dtype, as far as they are known."""
    model = info.model or {}
    layers, parameters = model.get("layers"), model.get("parameters")
    size = f"{parameters / 1e6:,.0f} M parameters" if isinstance(parameters, int | float) else ""
    inside = ", ".join(filter(None, [f"{layers} layers" if layers else "", size]))
    batch = info.batch.global_batch if info.batch else None
    facts = [
        info.strategy,
        f"model of {inside}" if inside else None,
        f"batch {batch} × {model['seq_len']:,} tokens" if batch and isinstance(model.get("seq_len"), int) else None,
        info.dtype,
        "compiled" if info.compile else None,
        "activation checkpointing" if info.activation_checkpointing else None,
    ]
    return [str(fact) for fact in facts if fact]


def _flat(content: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            made |= _flat(value, f"{before}{name}.")
        elif value is not None and not isinstance(value, list | tuple):
            made[f"{before}{name}"] = value
    return made
