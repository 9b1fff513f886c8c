"""One GPU whose steps run operators one after the other."""

import json

from tests.asked import said_of
from tests.host_builders import host_trace
from traceanalyzer.model import RankMeta

MS = 1_000_000


def found(kind, work, around=()):
    """Findings of a kind where each of three steps runs (operator, shapes, ms[, kernel]) on a busy H200.

    What runs `around` is an autograd node, as (name, sequence number of its forward operator).
    """
    length = sum(ms for _, _, ms, *_ in work) * MS + MS
    begins = [length * step for step in range(3)]
    calls, ops, held = [], [], []
    for start in begins:
        held += [(name, start, start + MS, 1, number, 1) for name, number in around]
        begin = start + MS // 10
        for place, (name, shapes, ms, *kernel) in enumerate(work):
            since = start + place * MS // 100
            dtypes = shapes and json.dumps(["float"] * len(json.loads(shapes)))
            held.append((name, since, since + MS // 200, 1, 7 if around else None, None, shapes, dtypes))
            calls.append(("cudaLaunchKernel", since, since + MS // 400))
            ops.append((kernel[0] if kernel else f"kernel {place}", begin, begin + ms * MS, len(calls)))
            begin += ms * MS
        calls.append(("cudaDeviceSynchronize", start + MS // 2, begin))
    meta = RankMeta(0, "test", ("test.json",), "kineto", device=0, device_name="NVIDIA H200")
    steps = [(f"ProfilerStep#{place}", start, start + length) for place, start in enumerate(begins)]
    every = said_of(host_trace(ops, calls, host_ops=held, ranges=steps, meta=meta))
    return [item for item in every if item.kind == kind and not item.is_nothing]
