"""The rule about norms that are computed operator by operator."""

from traceanalyzer.findings.devices.unfused import written_out_norms

from tests.findings.devices.test_recomputing import MS
from tests.findings.devices.test_written_out import results_of

NAMES = ("headline", "steps", "operator_shapes")
WHOLE, ROWS, SCALED = "[[4, 128, 768], []]", "[[4, 128, 1]]", "[[4, 128, 768], [4, 128, 1]]"
RMS_NORM = [
    ("aten::pow", WHOLE, 3), ("aten::mean", WHOLE, 4), ("aten::rsqrt", ROWS, 1), ("aten::mul", SCALED, 5),
    # The weights' part, the residual sum and a product are others' work.
    ("aten::mul", "[[768], [4, 128, 768]]", 6), ("aten::add", "[[4, 128, 768], [4, 128, 768]]", 7), ("aten::mm", WHOLE, 30),
]  # fmt: skip


def found(work):
    results = results_of(work, names=NAMES)
    return written_out_norms(*(results[name] for name in NAMES))


def test_means_roots_and_scaling_of_rows():
    (one,) = found(RMS_NORM)
    assert one.title.startswith("Norms are written out, once a step: ")
    assert one.title.endswith("take 13 ms of rank 0's GPU time a step, 13 % of a step.")
    assert one.gain_ns == 13 * MS
