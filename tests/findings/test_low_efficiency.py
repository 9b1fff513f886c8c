"""What busy GPUs reach of their peak."""

from types import SimpleNamespace

import pandas as pd

from tests.findings.one_gpu import found
from traceanalyzer.analyses.operators.efficiency import Efficiency
from traceanalyzer.findings.low_efficiency import low_efficiency

PRODUCT = ("aten::mm", "[[8192, 8192], [8192, 8192]]", 60, "nvjet_hsh_128x256")


def test_busy_gpus_reach_a_part_of_their_peak():
    (one,) = found("low_efficiency", [PRODUCT])
    assert one.headline == "MFU is 4%, matrix products reach 4% of the peak."
    assert one.why == "The peak of H200 SXM in TF32 is 495 TFLOP/s."
    assert not one.changes


def test_work_of_unknown_size_has_no_mfu():
    assert not found("low_efficiency", [("aten::mm", None, 60)])


def test_work_that_only_the_run_knows_has_its_share():
    """Nsight's operators are unknown; `run.json` says what a step computes."""
    compute = pd.DataFrame({"rank": [0], "compute_pct": [95.0]})
    known = pd.DataFrame({"gpu": ["H200"], "element_type": ["bf16"], "peak_tflops_per_s": [989.0]})
    mfu = SimpleNamespace(known=lambda: known, by_rank=lambda: pd.Series([30.0]))
    (one,) = low_efficiency(None, Efficiency.without_rows(), mfu, SimpleNamespace(to_frame=lambda: compute))
    assert one.headline == "MFU is 30% of the peak."
