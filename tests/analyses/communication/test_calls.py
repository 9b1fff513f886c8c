"""Arguments and sizes of communication calls, from kernels and from the host."""

import pytest

from tests.builders import document, host, kernel, write
from traceanalyzer.analyses import run
from traceanalyzer.kinds import KindRules
from traceanalyzer.readers import RankHint, kineto
from traceanalyzer.selection import Selection, select


def arguments(collective, elements, out=None, **more):
    return {"Collective name": collective, "In msg nelems": elements, "Out msg nelems": out or elements, "Group size": 2,
            "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]", **more}  # fmt: skip


def nccl(start, correlation, name="AllReduce_Sum_f32_RING_LL", duration=5, **args):
    return kernel(start, duration, name=f"ncclDevKernel_{name}(x)", stream=17, correlation=correlation, **args)


def launch(start, correlation, thread=1):
    return host(start, 1, name="cuLaunchKernelEx", cat="cuda_driver", thread=thread, correlation=correlation)


def comms(start, collective, elements, duration=10, thread=1, **more):
    return host(start, duration, name="record_param_comms", thread=thread, **arguments(collective, elements, **more))


def results(tmp_path, events, name="calls"):
    return rows_of(tmp_path, document(events, rank=0), name)


def rows_of(tmp_path, content, name):
    (trace,) = kineto.read(write(tmp_path / "a.json", content), RankHint(0, "path"), KindRules())
    return run([select(trace, Selection())], [name])[name].rows()


@pytest.mark.parametrize(
    ("collective", "elements", "out", "size_bytes"),
    [
        ("allreduce", 100, 100, 400),
        ("_allgather_base", 100, 200, 800),
        ("_reduce_scatter_base", 200, 100, 800),
        ("all_to_all", 100, 120, 400),
        ("broadcast", 100, 100, 400),
    ],
)
def test_size_is_that_of_the_full_array(tmp_path, collective, elements, out, size_bytes):
    (row,) = results(tmp_path, [nccl(10, 1, **arguments(collective, elements, out))])
    assert (row["size_bytes"], row["arguments"]) == (size_bytes, "kernel")


@pytest.mark.parametrize(("told", "number"), [(7, 7), ("18446744073709551615", 2**62 - 1), (None, 3), ("x", 3)])
def test_a_call_is_numbered_by_its_id_on_all_ranks(tmp_path, told, number):
    (row,) = results(tmp_path, [nccl(10, 1, **arguments("allreduce", 100, Seq=3, **{"Comms Id": told}))])
    assert row["sequence"] == number


def test_missing_arguments_come_from_the_host_operation_around_the_launch(tmp_path):
    events = [comms(0, "allreduce", 100), launch(5, 1), comms(20, "broadcast", 50, Rank=1), launch(25, 2), nccl(30, 1),
              nccl(40, 2, name="Broadcast_RING_LL")]  # fmt: skip
    found = results(tmp_path, events)
    assert [(row["collective"], row["size_bytes"], row["arguments"]) for row in found] == [
        ("all_reduce", 400, "host"), ("broadcast", 200, "host"),
    ]  # fmt: skip


SEND = {"Dst Rank": 1}


@pytest.mark.parametrize(
    ("events", "collective", "size_bytes"),
    [
        ([comms(0, "send", 10, **SEND), comms(11, "recv", 14, **{"Src Rank": 1}), launch(25, 1)], "send_recv", 96),
        ([comms(0, "reduce_scatter", 10), comms(11, "allreduce", 14), launch(25, 1)], "coalesced", 96),
        ([comms(0, "barrier", 1, duration=20), comms(1, "allreduce", 1, duration=10), launch(5, 1)], "barrier", 4),
        ([comms(0, "allreduce_coalesced", 24, duration=20), comms(1, "allreduce", 10, 3), comms(5, "allreduce", 14, 3),
          launch(15, 1)], "all_reduce", 96),
    ],
)  # fmt: skip
def test_several_operations_in_one_kernel(tmp_path, events, collective, size_bytes):
    name = "SendRecv" if collective == "send_recv" else "AllReduce_Sum_f32_RING_LL"
    (row,) = results(tmp_path, [*events, nccl(40, 1, name=name)])
    assert (row["collective"], row["size_bytes"]) == (collective, size_bytes)


def test_table_of_collectives(tmp_path):
    events = [
        nccl(0, 1, duration=4, **arguments("allreduce", 100)),
        nccl(10, 2, duration=6, **arguments("allreduce", 300)),
        kernel(13, 10),
        nccl(40, 3, duration=2),
    ]
    known, unknown = results(tmp_path, events, "nccl")
    assert (known["group"], known["collective"], known["dtype"], known["calls"]) == ("0", "all_reduce", "Float", 2)
    assert (known["size_bytes"], known["total_ns"], known["mean_ns"]) == (1600, 10_000, 5000.0)
    assert (known["min_ns"], known["max_ns"], known["exposed_comm_ns"], known["overlap_pct"]) == (
        4000,
        6000,
        7000,
        30.0,
    )
    assert (unknown["group"], unknown["size_bytes"], unknown["calls"]) == (None, None, 1)
