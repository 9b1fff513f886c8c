"""Steps that leave more memory in use than they found."""

from types import SimpleNamespace

import pandas as pd
import pytest

from traceanalyzer.analyses.memory import MemorySources, MemorySteps
from traceanalyzer.findings.memory_growth import memory_growth

MB = 10**6
RUN = SimpleNamespace(ranks=(0, 1), who=lambda ranks: f"rank {ranks[0]}")


def found(*growths):
    """Findings of rank 0's steps with such growth in MB, of 100 MB."""
    rows = [
        {"rank": 0, "step": number, "events": 2, "start_bytes": 0, "peak_allocated_bytes": 100 * MB,
         "end_bytes": growth * MB, "peak_reserved_bytes": 100 * MB}
        for number, growth in enumerate(growths)
    ]  # fmt: skip
    steps = MemorySteps(pd.DataFrame(rows).astype({name: "Int64" for name in rows[0] if name != "rank"}))
    return list(memory_growth(RUN, steps, MemorySources.without_rows()))


def test_growth_in_every_step():
    (one,) = found(8, 8, 8)
    assert one.headline == "GPU memory grows by 8 MB in every step."
    assert one.why == "Each recorded step of rank 0 leaves as much more in use."
    assert one.named == (0,)


@pytest.mark.parametrize(
    "growths", [(8,), (8, 0, 8), (0, 0), (1, 50)], ids=["one", "a pause", "none", "the first steps"]
)
def test_other_steps_say_nothing(growths):
    assert not found(*growths)
