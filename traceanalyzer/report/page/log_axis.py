"""Ticks of a logarithmic axis with their unit written out: 100 µs, 1 ms, 10 ms."""

import math
from collections.abc import Sequence
from typing import Any

from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import text

_WIDE = 3
"""Over as many decades powers of ten are enough; over fewer 2 and 5 are marked too, and within one more."""


def log_axis(values: Sequence[float], unit: Unit, title: str) -> dict[str, Any]:
    """A plotly axis for positive values that are stored in `unit`."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    is_narrow = max(values) < 10 * min(values)
    steps = (1,) if high - low > _WIDE else (1, 1.5, 2, 3, 4, 5, 6, 8) if is_narrow else (1, 2, 5)
    ticks = [step * 10**power for power in range(low, high + 1) for step in steps]
    if min(values) == max(values):
        ticks = [min(values)]  # none of the others may lie beside the one value
    return {
        "title": {"text": title},
        "type": "log",
        "tickvals": ticks,
        "ticktext": [text(tick, unit) for tick in ticks],
    }
