"""Copies that carry out a collective are communication; those that only stage one are not."""

import pytest

from tests.analyses.communication.test_calls import comms, launch, rows_of
from tests.builders import document, host, kernel

NCCL = "ncclDevKernel_AllGather_RING_LL(x)"


def copy(start, correlation, size=64):
    return kernel(
        start, 5, name="Memcpy DtoD (Device -> Device)", cat="gpu_memcpy", correlation=correlation, bytes=size
    )


GATHER = host(0, 30, name="c10d::_allgather_base_")
CASES = {
    "copies that the host's call launches itself": (
        [GATHER, comms(1, "_allgather_base", 16, 20), launch(3, 1), launch(5, 2), copy(40, 1), copy(50, 2)],
        [("all_gather", 64), ("all_gather", 64)]),
    "a copy of an operator inside": (
        [comms(1, "_allgather_base", 16, 20), host(2, 5, name="aten::copy_"), launch(3, 1), copy(40, 1)], []),
    "a copy beside the kernel that moves the data": (
        [comms(1, "_allgather_base", 16, 20), launch(3, 1), launch(5, 2), copy(40, 1), kernel(50, 5, name=NCCL, correlation=2)],
        [("all_gather", 64)]),
    "a group of one rank": (
        [comms(1, "_allgather_base", 16, 20, **{"Group size": 1}), launch(3, 1), copy(40, 1)], []),
    "a copy after the host's call": ([comms(1, "_allgather_base", 16, 2), launch(5, 1), copy(40, 1)], []),
}  # fmt: skip


@pytest.mark.parametrize(("events", "expected"), CASES.values(), ids=CASES)
def test_copies_of_a_collective(tmp_path, events, expected):
    rows = rows_of(tmp_path, document([*events, kernel(100, 5)], rank=0), "calls")
    assert [(row["collective"], row["size_bytes"]) for row in rows] == expected
