"""The rule about attention that is computed operator by operator."""

from traceanalyzer.findings.devices.unfused import written_out_attention

from tests.findings.devices.test_recomputing import MS
from tests.host_builders import host_trace
from traceanalyzer.analyses import combine, reduce_rank

NAMES = ("headline", "steps", "operator_shapes", "operators", "episodes")
SCORES = "[[2, 8, 512, 512], [], []]"
PRODUCT = "[[16, 512, 64], [16, 64, 512]]"


def results_of(work, around=(), names=NAMES):
    """Results where each of three steps of 100 ms runs operators: (name, shapes, ms)."""
    begins = [100 * MS * step for step in range(3)]
    steps = [(f"ProfilerStep#{place}", start, start + 100 * MS) for place, start in enumerate(begins)]
    calls, ops, held = [], [], []
    for start in begins:
        begin = start
        for place, (name, own, length) in enumerate(work):
            since = start + place * MS
            held.append((name, since, since + MS // 2, 1, None, None, own))
            calls.append(("cudaLaunchKernel", since, since + MS // 4))
            ops.append(("kernel", max(begin, since), max(begin, since) + length * MS, len(calls)))
            begin = ops[-1][2]
        held += [(name, start, start + 90 * MS, 1) for name in around]
    trace = host_trace(ops, calls, host_ops=held, ranges=steps)
    return combine({0: reduce_rank(trace, names)}, names)


def found(work, around=()):
    results = results_of(work, around)
    return written_out_attention(*(results[name] for name in NAMES))


ATTENTION = [
    ("aten::bmm", PRODUCT, 5), ("aten::copy_", SCORES, 12), ("aten::_softmax", SCORES, 20), ("aten::mul", "[[16, 512, 512], []]", 8),
    ("aten::add", "[[2, 512, 512]]", 9),
]  # fmt: skip


def test_work_on_scores_beside_the_products():
    (one,) = found(ATTENTION)
    assert one.title == (
        "Attention is written out: softmax, and what else runs over its scores of [2, 8, 512, 512], takes 40 ms of rank "
        "0's GPU time a step, 40 % of a step."
    )
    assert (one.gain_ns, one.gain_is_bound, one.severity) == (40 * MS, True, "high")
    assert "attn_implementation" in one.recommendation
