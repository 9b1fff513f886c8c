"""Streams that wait for each other in turn are read in time, whether their operations have launches or not."""

import numpy as np
import pandas as pd
import pytest

from tests.host_builders import host_trace
from tests.simulator import Capture
from tests.simulator.analysed import analysed
from tests.simulator.jobs.sharded import limited
from traceanalyzer.analyses.replay.rank_graph import event_waits, touching
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


@pytest.mark.parametrize(("have_launches", "edges"), [(True, [(0, 1), (2, 1)]), (False, [])])
def test_waits_in_turn_name_each_operation_once(have_launches, edges):
    trace = in_turn(have_launches=have_launches)
    ops = trace.gpu_ops.sort_values(["stream", "start_ns"], ignore_index=True)
    ops = ops.assign(duration_ns=ops["end_ns"] - ops["start_ns"], api_call=ops["launch"])
    table, _ = event_waits(trace, ops)
    assert list(zip(table["source"].tolist(), table["target"].tolist(), strict=True)) == edges


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


def edges_by_times(find, ops, lags_us):
    """Of operations (kind, stream, start, end in µs) and what nothing known explains of each one's start (µs)."""
    table = pd.DataFrame(ops, columns=["kind", "stream", "start_ns", "end_ns"])
    table = table.assign(start_ns=table["start_ns"] * US, duration_ns=(table["end_ns"] - table["start_ns"]) * US)
    table = table.assign(kind=table["kind"].astype("category")).drop(columns="end_ns")
    found = find(table, np.array(lags_us) * US)
    return list(zip(found["source"].tolist(), found["target"].tolist(), strict=True))


@pytest.mark.parametrize(
    ("begins_us", "lag_us", "stream", "is_edge"),
    [
        (110, 50, 8, True),
        (116, 50, 8, True),
        (117, 50, 8, False),  # too late
        (120, 400, 8, True),  # within a twentieth of what nothing explains
        (121, 400, 8, False),
        (110, 0, 8, False),  # what is known explains it
        (110, 50, 7, False),  # of its own stream
        (99, 50, 8, False),  # before that ends
    ],
)
def test_what_begins_just_when_another_stream_ends_waited_for_it(begins_us, lag_us, stream, is_edge):
    ops = [("compute", 7, 0, 100), ("compute", stream, begins_us, 200)]
    assert edges_by_times(touching, ops, [0, lag_us]) == ([(0, 1)] if is_edge else [])


def test_what_takes_no_time_or_is_of_the_own_stream_is_looked_past():
    ops = [("compute", 7, 0, 100), ("compute", 8, 90, 102), ("compute", 8, 105, 200)]
    assert edges_by_times(touching, ops, [0, 0, 50]) == [(0, 2)]
    assert edges_by_times(touching, [("compute", 7, 100, 100), ("compute", 8, 105, 200)], [0, 50]) == []
