"""One job under PyTorch's profiler and under Nsight Systems, with NCCL's payloads and without: the same tables, or a reason."""

import pandas as pd
import pytest

from tests.simulator import Capture, scenarios
from tests.simulator.analysed import analysed
from tests.simulator.jobs import meshes
from traceanalyzer.analyses import ANALYSES

_RECORDER = "it names the recorder, its files and what only one of them writes down"
_OPERATORS = "Nsight has no operators: its ranges, NCCL's own among them, stand for them"
_IDS = "a communicator's id stands for the name of the process group"
_NO_DTYPE = "a payload states bytes and no element type"
_COST = "what recording takes is known of PyTorch's profiler only"

ALWAYS = {
    "ranks": _RECORDER,
    **dict.fromkeys(("operators", "operators_over_ranks", "modules", "nvtx_projection"), _OPERATORS),
    **dict.fromkeys(("host_work",), _OPERATORS),
    "bottleneck": _COST,
}
"""Tables that may differ, and why; all others are the same to the nanosecond."""

COLUMNS = {
    "nccl": {"group": _IDS, "dtype": _NO_DTYPE},
    "by_collective": {"dtype": _NO_DTYPE},
    **{name: {"group": _IDS} for name in ("groups", "comm_phases", "collectives")},
    "critical_path": {"name": _OPERATORS},
}
"""Columns of other tables, the same."""

_ARGUMENTS = "without payloads no call has a size, a group or a peer"
_WAITS = "without groups calls that look alike cannot be told apart, so their waits are not known"
_ON_WAITS = "it follows the waits between ranks, which are not known"

WITHOUT_PAYLOADS = ALWAYS | {
    "integrity": "it says what a capture lacks: matches that cannot be made",
    **dict.fromkeys(("micro_steps", "nccl", "by_collective", "groups", "comm_phases", "collectives", "pipelines", "pipeline"), _ARGUMENTS),
    **dict.fromkeys(("time_parts",), _WAITS),
    **dict.fromkeys(("exposed_comm", "stragglers", "clocks"), _WAITS),
    **dict.fromkeys(("episodes", "replay", "critical_path"), _ON_WAITS),
}  # fmt: skip

OF_TWO_RANKS = ("pipelines", "pipeline", "exposed_comm", "stragglers", "episodes", "replay")
"""Tables that two ranks share even without payloads: what the one sends the other receives."""

TABLES = tuple(name for name, analysis in ANALYSES.items() if not analysis.result.is_detail)

JOBS = {
    "tensor 4 × data 2": lambda: meshes.tensor_by_data(4, 2, steps=2),
    "pipeline 2 × data 4": lambda: meshes.pipeline_by_data(2, 4, steps=2),
    "tensor 2 × data 2": lambda: meshes.tensor_by_data(2, 2, steps=2),
    "pipeline 2 × data 2": lambda: meshes.pipeline_by_data(2, 2, steps=2),
    "pipeline 2": lambda: scenarios.pipeline(2, 4, steps=2),
}


def sampled(*chosen):
    """All jobs, those that are not chosen in thorough runs only."""
    return [pytest.param(name, marks=() if name in chosen else pytest.mark.thorough) for name in JOBS]


def both(job, *, has_payloads, names=TABLES):
    _, kineto = analysed(job, *names)  # its arguments are no payloads: the same for both
    _, nsys = analysed(job, *names, by="nsys", how=Capture(has_payloads=has_payloads))
    return {name: (kineto[name].to_frame(), nsys[name].to_frame()) for name in names}


def assert_same(tables, names):
    for name in names:
        one, other = (frame.drop(columns=list(COLUMNS.get(name, ()))) for frame in tables[name])
        pd.testing.assert_frame_equal(one, other, check_dtype=False, obj=name)


@pytest.mark.parametrize("name", sampled("tensor 2 × data 2"))
def test_with_payloads_all_but_names_is_the_same(name):
    tables = both(JOBS[name](), has_payloads=True)
    assert_same(tables, [name for name in TABLES if name not in ALWAYS])


@pytest.mark.parametrize("name", sampled("tensor 2 × data 2"))
def test_without_payloads_what_cannot_be_told_is_not_guessed(name):
    tables = both(JOBS[name](), has_payloads=False)
    assert_same(tables, [name for name in TABLES if name not in WITHOUT_PAYLOADS])
    one, other = tables["exposed_comm"]
    # What is not known of the waits is not guessed: exposed communication itself is the same.
    assert one["exposed_comm_ns"].tolist() == other["exposed_comm_ns"].tolist()
    split = other[["exposed_transfer_ns", "exposed_wait_ns", "exposed_unmatched_ns"]]
    assert (split.sum(axis=1, min_count=3).dropna() == other["exposed_comm_ns"]).all()
    # One report has one clock, so that an offset between its ranks would be invented.
    assert not tables["clocks"][1]["is_significant"].any()


def test_two_ranks_messages_are_paired_without_payloads():
    assert_same(both(JOBS["pipeline 2"](), has_payloads=False, names=OF_TWO_RANKS), OF_TWO_RANKS)


def test_every_reason_is_of_a_table_that_there_is():
    assert set(WITHOUT_PAYLOADS) | set(COLUMNS) <= set(TABLES)
