"""Waits of streams for each other: exact where the events are recorded, else inferred."""

from itertools import pairwise

import pytest

from tests.samples import sample
from tests.simulator import Capture, scenarios
from tests.simulator.analysed import analysed
from traceanalyzer.analyses import run
from traceanalyzer.meaning.vocabulary import SHORT_NS


def true_dependencies(ops):
    """By stream: from when the stream is free and the operation launched to the end of what it waits for, under others."""
    found = {}
    for stream in {op.instruction.stream for op in ops}:
        own = [op for op in ops if op.instruction.stream == stream]
        others = [(op.start_ns, op.end_ns) for op in ops if op.instruction.stream != stream]
        total = 0
        for before, op in pairwise(own):
            end = max((ops[number].end_ns for number in op.instruction.after), default=0)
            begin = max(before.end_ns, op.launch_end_ns - 100)
            if end - begin >= SHORT_NS:
                points = sorted({begin, end, *(t for other in others for t in other if begin < t < end)})
                total += sum(b - a for a, b in pairwise(points)
                             if any(start <= a and b <= stop for start, stop in others))  # fmt: skip
        found[stream] = total
    return found


@pytest.mark.parametrize("by", ["kineto", "nsys"])
@pytest.mark.parametrize(
    "job", [scenarios.ddp(2, slow_compute_ns={1: 200_000}), scenarios.hsdp(2, 2)], ids=["ddp", "hsdp"]
)
def test_simulated_streams(job, by):
    truth, results = analysed(job, "streams", how=Capture(has_stream_waits=True), by=by)
    frame = results["streams"].to_frame().set_index(["rank", "stream"])
    assert set(frame["dependency_by"]) == {"recorded"}
    expected = {(rank, stream): ns for rank, ops in truth.ops.items() for stream, ns in true_dependencies(ops).items()}
    assert frame["dependency_ns"].to_dict() == expected
    assert sum(expected.values()) > 0


def test_inference_comes_close_on_a_real_capture():
    """Of an Nsight report with its events: what is inferred without them exceeds what was recorded by little."""
    traces = sample("nsys_ddp").ranks
    recorded = run(traces, ["streams"])["streams"].to_frame()
    assert set(recorded["dependency_by"]) == {"recorded"}
    assert recorded["dependency_ns"].tolist() == [0, 8_116_987, 7_031_670, 6_991_907]
