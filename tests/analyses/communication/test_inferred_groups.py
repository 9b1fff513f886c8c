"""Kernels that spin on peers but name no group: matched over the ranks that run them alike; pure waits everywhere."""

import pandas as pd
import pytest

from tests import once
from tests.analyses.communication.test_members import Ranks, rank, waits
from traceanalyzer.analyses.communication import waits as communication_waits

MULTIMEM = "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)"
PAIR = "void vllm::cross_device_reduce_1stage<__half, 2>(vllm::RankData*)"


def spin(name=MULTIMEM, collective="all_reduce", **more):
    return {"name": name, "collective": collective, "group": None, "group_ranks": None, "group_size": pd.NA,
            "arguments": None, "dtype": None, "size_bytes": pd.NA, **more}  # fmt: skip


def of_job(size, *ranks):
    """The ranks' tables with the job's size; each has a call of a named group first, as real captures do."""
    return {
        number: table.assign(world_size=pd.array([size] * len(table), dtype="Int64"))
        for number, table in enumerate(ranks)
    }


FIRST = (0, 10)


def test_ranks_that_run_a_kernel_alike_are_its_group():
    parts = of_job(2, rank(FIRST, (20, 100, spin())), rank(FIRST, (90, 100, spin())))
    frame = communication_waits.members_across(parts, Ranks(*parts)).to_frame()
    assert frame["matched_by"].tolist() == ["step and position", "step and position; group inferred"] * 2
    assert waits(present=parts)[0, 1] == (70, 1, None)
    assert waits(present=parts)[1, 1] == (0, None, None)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (of_job(4, rank(FIRST, (20, 100, spin())), rank(FIRST, (90, 100, spin()))), "a rank of its group has no trace"),
        (of_job(2, rank(FIRST, (20, 100, spin())), rank(FIRST)), "not seen on every rank of its group"),
        (of_job(2, rank(FIRST, (20, 100, spin())), rank(FIRST, (90, 100, spin(PAIR)))), "not seen on every rank of its group"),
    ],
)  # fmt: skip
def test_where_ranks_differ_nothing_is_inferred(parts, why):
    assert waits(present=parts)[0, 1] == (None, None, why)


@pytest.fixture(scope="module")
def results():
    return once.results("symm")


def test_the_late_host_of_the_symmetric_memory_capture(results):
    """Rank 0's host is late; rank 1 spins in its barriers."""
    calls = results["call_waits"].to_frame()
    barriers = calls[calls["collective"] == "barrier"].groupby("rank")["wait_ns"].agg(["size", "sum"])
    assert barriers["size"].tolist() == [56, 56]
    assert barriers["sum"].tolist() == [229_437, 3_255_057]
    breakdown = results["breakdown"].to_frame()
    assert (breakdown["compute_ns"].max() / breakdown["compute_ns"].min()) < 1.03
    worst = results["stragglers"].to_frame().iloc[0]
    assert (worst["rank"], worst["collective"]) == (0, "barrier")
