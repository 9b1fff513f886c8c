"""Steps that leave more memory than they found."""

import pandas as pd
import pytest
from traceanalyzer.findings.devices.memory import memory_growth

from traceanalyzer.analyses.memory.memory import MemorySteps
from traceanalyzer.analyses.memory.memory_categories import MemorySources

MB = 1 << 20


def steps(*growths, rank=0):
    rows = [
        {"rank": rank, "step": number, "events": 2, "start_bytes": 0, "peak_allocated_bytes": growth, "end_bytes": growth, "peak_reserved_bytes": growth}
        for number, growth in enumerate(growths)
    ]  # fmt: skip
    return MemorySteps(pd.DataFrame(rows).astype({name: "Int64" for name in rows[0] if name != "rank"}))


SOURCES = MemorySources(pd.DataFrame([
    {"rank": 0, "phase": "forward", "operator": "aten::mm", "events": 3, "allocated_bytes": 40 * MB, "freed_bytes": 10 * MB, "highest_bytes": 1},
    {"rank": 0, "phase": "backward", "operator": "aten::add", "events": 3, "allocated_bytes": 1, "freed_bytes": 9 * MB, "highest_bytes": 1},
]))  # fmt: skip


@pytest.mark.parametrize(("growths", "speaks"), [
    ([8 * MB, 8 * MB, 8 * MB], True), ([8 * MB, 8 * MB], False), ([8 * MB, 0, 8 * MB], False), ([100, 100, 100], False),
])  # fmt: skip
def test_growth_in_every_step(growths, speaks):
    found = memory_growth(steps(*growths), SOURCES)
    assert bool(found) == speaks
    if speaks:
        assert found[0].title == "Rank 0 holds 8.4 MB more after each of 3 steps."
        assert "most stays from aten::mm." in found[0].recommendation
