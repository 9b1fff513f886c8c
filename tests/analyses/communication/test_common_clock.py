"""One clock for the ranks: corrected where it is known to be off, aligned where nothing is known."""

import pandas as pd
import pytest

from tests.builders import rank_trace
from tests.simulator import Capture, scenarios
from tests.simulator.analysed import analysed
from traceanalyzer.analyses import run
from traceanalyzer.analyses.communication.clocks import common_clock
from traceanalyzer.export import perfetto
from traceanalyzer.report.timeline import timeline_data

NEEDED = (*perfetto.NEEDED, "timeline")

RECORDED = "All ranks on one clock, as recorded."


@pytest.mark.parametrize(
    ("offset", "is_significant", "starts", "shifts", "said"),
    [
        (40_000, True, (0, 40), {0: 0, 1: 40_000}, "rank 1 by 40\u202fµs (± 30\u202fµs)"),
        (40_000, False, (0, 40), {0: 0, 1: 0}, RECORDED),
        (None, None, (0, 50), {0: 0, 1: 0}, RECORDED),
        (None, None, (0, 5_000), {0: 0, 1: 5_000}, "do not agree: rank 1 is drawn with its first operation"),
    ],
)
def test_clocks(offset, is_significant, starts, shifts, said):
    results = run([rank_trace([("compute", t, t + 100)], rank=rank) for rank, t in enumerate(starts)], NEEDED)
    clocks = pd.DataFrame(
        {
            "rank": [0, 1],
            "offset_ns": pd.array([0, offset], "Int64"),
            "uncertainty_ns": pd.array([30_000, 30_000], "Int64"),
            "is_significant": pd.array([False, is_significant], "boolean"),
            "reference": pd.array([None if offset is None else 0] * 2, "Int64"),
        }
    )
    results["clocks"] = type("Known", (), {"to_frame": lambda _: clocks})()
    found = common_clock(results)
    assert found.shifts == shifts
    assert said in found.note


def test_a_clock_that_is_off_is_corrected_on_the_page_as_in_the_export():
    """Three milliseconds, which collectives tell to the uncertainty: every moment of the rank is moved by them."""
    _, results = analysed(scenarios.ddp(2, steps=3), *NEEDED, how=Capture(offset_ns={1: 3_000_000}))
    found = common_clock(results)
    assert abs(found.shift_ns(1) - found.shift_ns(0) - 3_000_000) < 100_000
    assert timeline_data(results).clock == found
    assert "corrected" in found.note
