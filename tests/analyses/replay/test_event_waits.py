"""Streams that wait for each other in turn are read in time, whether their operations have launches or not."""

import pandas as pd

from tests.host_builders import host_trace
from tests.simulator import Capture
from tests.simulator.analysed import analysed
from tests.simulator.jobs.sharded import limited
from traceanalyzer.model import make_trace

US = 1_000
TURNS = 40
"""Each names all that was named before: without care two to the power of this."""


def in_turn(*, have_launches):
    """A kernel on each of two streams, and then waits of each for the other, by recorded events."""
    ops = [("gemm", 10 * US, 20 * US, 1, 7), ("gemm", 30 * US, 40 * US, 2, 8), ("gemm", 900 * US, 910 * US, 3, 7)]
    ops = ops if have_launches else [(name, start, end, -1, stream) for name, start, end, _, stream in ops]
    calls = [("cudaLaunchKernel", 0, US), ("cudaLaunchKernel", 2 * US, 3 * US)]
    calls.append(("cudaLaunchKernel", 880 * US, 881 * US))
    calls += [("cudaEventRecord", (10 + 8 * turn) * US, (11 + 8 * turn) * US) for turn in range(TURNS)]
    trace = host_trace(ops, calls)
    waits = pd.DataFrame(
        {
            "start_ns": [(14 + 8 * turn) * US for turn in range(TURNS)],
            "end_ns": [(15 + 8 * turn) * US for turn in range(TURNS)],
            "stream": [7 + turn % 2 for turn in range(TURNS)],
            "source_stream": [8 - turn % 2 for turn in range(TURNS)],
            "record_correlation": [4 + turn for turn in range(TURNS)],
        }
    )
    return make_trace(trace.meta, gpu_ops=trace.gpu_ops, api_calls=trace.api_calls, stream_waits=waits)


def edges_of(job, how):
    _, results = analysed(job, "replay", how=how)
    piece = results["replay"].engine.job.nodes[1].piece
    rows = piece.ops["row"].to_numpy()
    return {*zip(rows[piece.waits["source"]].tolist(), rows[piece.waits["target"]].tolist(), strict=True)}


def test_waits_that_are_inferred_of_a_sharded_job_are_the_recorded_ones():
    """A kernel waits for the all-gather before it, and not for the reduce-scatter on another stream as well."""
    job = limited(2, 2, layers=4, offloaded=1)
    recorded = edges_of(job, Capture(has_stream_waits=True))
    assert len(recorded) > 20
    assert edges_of(job, Capture()) == recorded
