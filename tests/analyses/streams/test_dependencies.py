"""Waits of streams for each other: exact where the events are recorded, else inferred."""

from itertools import pairwise

import pandas as pd
import pytest

from tests.samples import sample
from tests.simulator import Capture, scenarios
from tests.simulator.analysed import analysed
from traceanalyzer.analyses import run
from traceanalyzer.meaning.vocabulary import SHORT_NS
from traceanalyzer.model import RankMeta, make_trace

US = 1_000


def stream_trace(ops, waits, calls=()):
    """`ops`: (stream, launch, start, end); `waits`: (told, stream, source, record); `calls`: records; all in µs."""
    launches = [(launch, "cudaLaunchKernel") for _, launch, *_ in ops] + [(at, "cudaEventRecord") for at in calls]
    number = {at: place for place, (at, _) in enumerate(launches, 1)}
    gpu_ops = pd.DataFrame(
        [{"start_ns": start * US, "end_ns": end * US, "name": "gemm", "kind": "compute", "activity": "kernel",
          "stream": stream, "correlation": number[launch]} for stream, launch, start, end in ops]
    )  # fmt: skip
    api_calls = pd.DataFrame(
        [{"start_ns": at * US, "end_ns": at * US + 500, "name": name, "thread": 1, "correlation": number[at]}
         for at, name in launches]
    )  # fmt: skip
    told = pd.DataFrame(
        [{"start_ns": at * US, "end_ns": at * US + 100, "stream": stream, "source_stream": source,
          "record_correlation": number.get(record, -1)} for at, stream, source, record in waits]
    )  # fmt: skip
    tables = {"gpu_ops": gpu_ops, "api_calls": api_calls} | ({"stream_waits": told} if waits else {})
    return make_trace(RankMeta(0, "test", ("test",), "kineto"), **tables)


# Stream 7 runs 0 to 100 and 100 to 300; stream 9 is free from 20, launched at 32, and begins at 250.
OPS = [(7, 1, 3, 100), (7, 10, 100, 300), (9, 2, 4, 20), (9, 32, 250, 260)]
EVENT = [(30, 9, 7, 5)]

CASES = {
    "no waits are recorded": (OPS, [], (), 217, "inferred"),
    "the event stands after the first operation": (OPS, EVENT, (5,), 67, "recorded"),
    "the event stands after both": (OPS, [(30, 9, 7, 15)], (15,), 217, "recorded"),
    "its record is not in the capture": (OPS, [(30, 9, 7, None), (1, 7, 9, 0)], (0,), 217, "partly inferred"),
    "another stream's wait": (OPS, [(8, 7, 9, 5)], (5,), 0, "recorded"),
    "a wait for a wait, on a stream that runs nothing": (OPS, [(6, 14, 7, 5), (30, 9, 14, 20)], (5, 20), 67, "recorded"),
    "the event had been reached before the launch": (
        [(7, 1, 3, 25), (7, 10, 25, 300), *OPS[2:]], EVENT, (5,), 0, "recorded"),
    "nothing else runs": ([(7, 1, 3, 30), (9, 2, 4, 20), (9, 32, 250, 260)], EVENT, (5,), 0, "recorded"),
}  # fmt: skip


@pytest.mark.parametrize(("ops", "waits", "records", "expected_us", "by"), CASES.values(), ids=CASES)
def test_dependency_of_a_stream(ops, waits, records, expected_us, by):
    frame = run([stream_trace(ops, waits, records)], ["streams"])["streams"].to_frame().set_index("stream")
    row = frame.loc[9]
    assert (row["dependency_by"], row["dependency_ns"] // US) == (by, expected_us)


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
