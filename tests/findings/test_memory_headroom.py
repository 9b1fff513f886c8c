"""How much GPU memory is left, and whether more of it is used in every step."""

import pandas as pd
import pytest

from traceanalyzer.analyses.memory import Memory, MemoryFit
from traceanalyzer.findings.memory_headroom import memory_headroom

GB = 10**9
WHERE = ("peak_ns", "step", "phase", "operator", "module")  # the peak is, unknown here


def found(*peaks, device=80 * GB):
    """Findings of ranks with such peaks in GB."""
    rows = [
        {"rank": rank, "source": "", "events": 1, "allocated_bytes": 0, "peak_allocated_bytes": peak * GB,
         "reserved_bytes": 0, "peak_reserved_bytes": peak * GB, "device_bytes": device, **dict.fromkeys(WHERE)}
        for rank, peak in enumerate(peaks)
    ]  # fmt: skip
    numbers = {name: "Int64" for name in rows[0] if name.endswith("bytes")}
    return list(memory_headroom(None, Memory(pd.DataFrame(rows).astype(numbers)), MemoryFit.without_rows()))


@pytest.mark.parametrize(
    ("peaks", "headline", "named"),
    [
        ((76, 75), "GPU memory is 95% full at the peak of rank 0.", (0,)),
        ((20, 60, 20, 20), "GPU memory is uneven: rank 1 needs 60 GB.", (1,)),
        ((10, 20), "GPU memory is 75% free at the peak.", ()),
    ],
    ids=["full", "uneven", "free"],
)
def test_what_is_left(peaks, headline, named):
    (one,) = found(*peaks)
    assert (one.headline, one.named, one.changes) == (headline, named, ())


def test_memory_in_good_use_says_nothing():
    assert not found(60, 62)
