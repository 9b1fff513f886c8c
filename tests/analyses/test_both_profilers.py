"""One job under PyTorch's profiler and under Nsight Systems without NCCL's payloads: the same tables, or a reason."""

import pandas as pd
import pytest

from tests.simulator import meshes, scenarios
from tests.simulator.analysed import analysed
from traceanalyzer.analyses import ANALYSES

_RECORDER = "it names the recorder, its files and what only one of them writes down"
_ARGUMENTS = "without payloads no call has a size, a group or a peer"
_OPERATORS = "Nsight has no operators: its ranges stand for them"
_WAITS = "without groups calls that look alike cannot be told apart, so their waits are not known"
_ON_WAITS = "it follows the waits between ranks, which are not known"

REASONS = {
    "integrity": "it says what a capture lacks: matches that cannot be made",
    "ranks": _RECORDER,
    "micro_steps": _ARGUMENTS,
    "nccl": _ARGUMENTS,
    "groups": _ARGUMENTS,
    "comm_phases": _ARGUMENTS,
    "collectives": _ARGUMENTS,
    "pipelines": _ARGUMENTS,
    "pipeline": _ARGUMENTS,
    "operators": _OPERATORS,
    "modules": _OPERATORS,
    "host_work": _OPERATORS,
    "nvtx_projection": "NCCL's own ranges are in one of them",
    "phases": _WAITS,
    "exposed_comm": _WAITS,
    "stragglers": _WAITS,
    "matches": _WAITS,
    "clocks": _WAITS,
    "episodes": _ON_WAITS,
    "replay": _ON_WAITS,
    "what_ifs": _ON_WAITS,
    "slowdown": _ON_WAITS,
    "critical_path": _ON_WAITS,
    "slack": _ON_WAITS,
}
"""Tables that may differ, and why; all others are the same to the nanosecond."""

TABLES = tuple(name for name, analysis in ANALYSES.items() if not analysis.result.is_detail)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(meshes.tensor_by_data(4, 2, steps=2), marks=pytest.mark.thorough, id="tensor 4 × data 2"),
        pytest.param(meshes.tensor_by_data(2, 2, steps=2), id="tensor 2 × data 2"),
        pytest.param(scenarios.pipeline(2, 4, steps=2), id="pipeline"),
    ],
)
def test_tables_are_the_same_or_differ_for_a_reason(job):
    kineto, nsys = (analysed(job, *TABLES, by=by)[1] for by in ("kineto", "nsys"))
    for name in TABLES:
        if name not in REASONS:
            pd.testing.assert_frame_equal(kineto[name].to_frame(), nsys[name].to_frame(), check_dtype=False, obj=name)
    known = nsys["exposed_comm"].to_frame()
    both = kineto["exposed_comm"].to_frame()
    # What is not known of the waits is not guessed: exposed communication itself is the same.
    assert known["exposed_comm_ns"].tolist() == both["exposed_comm_ns"].tolist()
    split = known[["exposed_transfer_ns", "exposed_wait_ns", "exposed_unmatched_ns"]]
    assert (split.sum(axis=1, min_count=3).dropna() == known["exposed_comm_ns"]).all()


def test_every_reason_is_of_a_table_that_there_is():
    assert set(REASONS) <= set(TABLES)
