"""What ran, as a table of the report: strategy, model, batch, dtype and speed without a profiler."""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.run_info import RunInfo


class RunFacts(Result):
    """One row for each thing that the run.json beside the traces says."""

    title: ClassVar[str] = "What ran (run.json)"
    keys: ClassVar[tuple[str, ...]] = ("fact",)
    columns: ClassVar[Mapping[str, str]] = {
        "fact": "What run.json calls it; `batch.global_batch` is inside `batch`.",
        "value": "As it says; times in nanoseconds.",
    }


def run_facts(info: RunInfo) -> RunFacts:
    """The known fields, nested ones by their path; memory by rank and single values of lists are left out."""
    flat = _flat(msgspec.to_builtins(info))
    return RunFacts(pd.DataFrame({"fact": list(flat), "value": [str(value) for value in flat.values()]}, dtype="str"))


def _flat(content: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            made |= _flat(value, f"{before}{name}.")
        elif value is not None and not isinstance(value, list | tuple):
            made[f"{before}{name}"] = value
    return made
