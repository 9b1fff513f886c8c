"""Sizes and collectives from the operator that launched a call; which it is; what has none."""

import json

import pytest

from tests.analyses.communication.test_calls import launch, results
from tests.builders import host, kernel
from traceanalyzer import kinds


def operator(start, duration, name, dims, types, thread=1):
    return host(start, duration, name=name, thread=thread, **{"Input Dims": dims, "Input type": types})


def row(tmp_path, *events, name="calls"):
    (found,) = results(tmp_path, list(events), name)
    return found


@pytest.mark.parametrize(
    ("name", "collective"),
    [("symm_mem::fused_all_gather_matmul", "all_gather"), ("symm_mem::fused_matmul_reduce_scatter", "reduce_scatter"),
     ("aten::copy_", "peer_copy")],
)  # fmt: skip
def test_a_peer_copy_is_of_the_collective_that_launched_it_and_keeps_its_bytes(tmp_path, name, collective):
    around = operator(0, 20, name, [[1000]], ["float"])
    copy = kernel(30, 5, name="Memcpy PtoP (Device -> Device)", cat="gpu_memcpy", correlation=1, bytes=64)
    found = row(tmp_path, around, launch(5, 1), copy)
    assert (found["collective"], found["size_bytes"]) == (collective, 64)


@pytest.mark.parametrize(
    ("what", "dims", "types", "ranks", "size_bytes"),
    [
        ("all_reduce", [[2, 3]], ["float"], None, 24),
        ("all_gather", [[2, 3]], ["float"], 4, 96),
        ("all_gather", [[2, 3]], ["float"], None, None),
        ("all_gather", [[8, 3], [2, 3]], ["float", "float"], 4, 96),
        ("reduce_scatter", [[2, 3], [8, 3]], ["float", "float"], 4, 96),
        ("all_reduce", [[], [2, 3]], ["Scalar", "float"], None, 24),
        ("all_reduce", [[2, 3]], ["Quux"], None, None),
        ("all_reduce", [[[2], [3]]], ["TensorList"], None, None),
        ("all_reduce", [["x"]], ["float"], None, None),
        ("all_reduce", "no list", ["float"], None, None),
    ],
)  # fmt: skip
def test_bytes_of_an_operators_arguments(what, dims, types, ranks, size_bytes):
    assert kinds.operator_bytes(what, json.dumps(dims), json.dumps(types), ranks, None).size_bytes == size_bytes
