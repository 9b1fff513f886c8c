"""Real captures: those whose figures tests state, and those of the runners that users find in `sample_traces/`."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import traceanalyzer as ta
from traceanalyzer.model import TraceSet

SAMPLES = Path(__file__).parent / "captures"
RUNNERS = Path(__file__).parents[1] / "sample_traces"

RUNS = ("ddp", "ddp_straggler", "fsdp_full", "pp", "moe", "streams")

NSYS = ("nsys_ddp", "nsys_fsdp_full", "nsys_naive", "nsys_cuda_graph_node", "nsys_fsdp_grad_metrics")

OF_RUNNERS = tuple(folder.name for folder in sorted(RUNNERS.iterdir()) if folder.is_dir())

EVERY = (*RUNS, *NSYS, *OF_RUNNERS)
"""Of both profilers: what must hold for every capture is tested on all of them."""

_LIKE_ANOTHER = (
    "ddp_straggler", "pytorch_ddp", "simple_ddp", "zero2", "zero3", "zo_offload_sliced", "nsys_ddp", "nsys_fsdp_full",
)  # fmt: skip
"""Of the same profiler and kinds of events as `ddp`, `fsdp_full`, `zo_offload`, `nsys_naive`, `nsys_fsdp_grad_metrics`."""


def of_each_kind(names: Iterable[str]) -> list[Any]:
    """These captures as cases of a test: a run analyses one of each kind, a thorough one all."""
    return [pytest.param(name, marks=pytest.mark.thorough) if name in _LIKE_ANOTHER else name for name in names]


OF_EACH_KIND = of_each_kind(EVERY)

FEW = [
    name
    if name in ("moe", "pp", "zo_offload", "nsys_cuda_graph_node")
    else pytest.param(name, marks=pytest.mark.thorough)
    for name in EVERY
]
"""Those that differ most, where each costs more than the Results that tests share."""


@cache
def sample(name: str) -> TraceSet:
    """A sample's ranks; read once a test session."""
    # The streams' files are captures of one process after each other: a folder of them is as many runs.
    return ta.load(sorted(folder(name).glob("*.json.gz")) if name == "streams" else folder(name))


def folder(name: str) -> Path:
    """Where a sample's files lie."""
    return (RUNNERS if name in OF_RUNNERS else SAMPLES) / name
