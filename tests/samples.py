"""Real captures: those whose figures tests state, and those of the runners that users find in `sample_traces/`."""

from functools import cache
from pathlib import Path

import traceanalyzer as ta
from traceanalyzer.model import TraceSet

SAMPLES = Path(__file__).parent / "captures"
RUNNERS = Path(__file__).parents[1] / "sample_traces"

RUNS = ("ddp", "ddp_straggler", "fsdp_full", "pp", "moe", "streams")


@cache
def sample(name: str) -> TraceSet:
    """A sample's ranks; read once a test session."""
    return ta.load(SAMPLES / name)
