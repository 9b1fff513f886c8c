"""What each rank's host and GPU need for a step by themselves, beside what the step takes."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses import Result, Results
from traceanalyzer.analyses.blame.step_needs import host_needs_ns
from traceanalyzer.meaning.vocabulary import COMPUTE, COPY, TRANSFER
from traceanalyzer.report.words.parts import Split, headline_steps


@dataclass(frozen=True, slots=True)
class Floor:
    """Of a mean step; `None` where it cannot be told.

    Attributes:
        host_ns: the step's range on the host less the calls in which it waits for the GPU.
        gpu_ns: time in which the GPU computes, moves data or copies: the step without its waits and its idling.
    """

    host_ns: float | None
    gpu_ns: float | None


def floors(results: Results, split: Split | None) -> dict[int, Floor]:
    """By rank; none of a capture without complete steps."""
    steps = headline_steps(results)
    if split is None or not split.steps or not steps:
        return {}
    columns = [part.column for part in (COMPUTE, TRANSFER, COPY)]
    table = split.table.set_index("rank")
    known = all(column in table for column in columns)
    gpu = table[columns].sum(axis=1) / split.per if known else pd.Series(dtype="float64")
    host = _hosts(results.get("step_needs"), steps)
    return {int(rank): Floor(host.get(rank), float(gpu[rank]) if rank in gpu.index else None) for rank in table.index}


def _hosts(needs: Result | None, steps: list[int]) -> dict[int, float]:
    """Mean over the steps, of ranks of which each is known."""
    if needs is None or not len(needs):
        return {}
    own = needs.table[needs.table["step"].isin(steps)]
    return {int(rank): float(needed) for rank, needed in host_needs_ns(own, least=len(steps)).items()}
