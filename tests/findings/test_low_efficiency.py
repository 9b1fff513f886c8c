"""What busy GPUs reach of their peak."""

from tests.findings.one_gpu import found

PRODUCT = ("aten::mm", "[[8192, 8192], [8192, 8192]]", 60, "nvjet_hsh_128x256")


def test_busy_gpus_reach_a_part_of_their_peak():
    (one,) = found("low_efficiency", [PRODUCT])
    assert one.headline == "MFU is 4%, matrix products reach 4% of the peak."
    assert one.why == "The peak of H200 SXM in TF32 is 495 TFLOP/s."
    assert not one.changes


def test_work_of_unknown_size_has_no_mfu():
    assert not found("low_efficiency", [("aten::mm", None, 60)])
