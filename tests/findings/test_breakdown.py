"""What is said of a run without faults."""

from types import SimpleNamespace

import pandas as pd
import pytest

from traceanalyzer.findings.shares import far_from_peak

STEPS = pd.DataFrame({"gpu": ["H200"], "element_type": ["bf16"], "peak_tflops_per_s": [989.0]})


@pytest.mark.parametrize(("mean_pct", "count"), [(41.5, 1), (100.0, 1), (100.5, 0), (None, 0)])
def test_nothing_is_said_of_a_gpu_that_would_do_more_than_it_can(mean_pct, count):
    mfu, over = (SimpleNamespace(known=lambda: STEPS), SimpleNamespace(of=lambda _: {"mean_pct": mean_pct}))
    found = far_from_peak(mfu, over)
    assert [f"model FLOPs are {mean_pct:.3g} % of the peak of H200 in bf16" in each.title for each in found] == [
        True
    ] * count
