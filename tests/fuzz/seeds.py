"""Small whole inputs that damage starts from."""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

from tests import nsys_builders as nsys
from tests import rocprof_builders, xplane_builders
from tests.builders import document, host, kernel
from tests.doctor.builders import SYS_TOPOLOGY, dump, entry, log
from tests.fuzz_jobs import job
from tests.snapshots.builders import History

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"


@cache
def kineto() -> list[dict[str, Any]]:
    """Documents of one rank: one written out, and ranks of random jobs."""
    own = document(
        [
            {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": 0, "dur": 400.5, "args": {}},
            host(0, 180.125, name="ProfilerStep#3", cat="user_annotation"),
            host(180.5, 200, name="ProfilerStep#4", cat="user_annotation"),
            host(1, 8, name="aten::mm", **{"External id": 1, "Input Dims": [[64, 128], [128, 64]], "Input type": ["float", "float"]}),
            host(3, 2, name="cudaLaunchKernel", cat="cuda_runtime", correlation=1, **{"External id": 1}),
            host(20, 3, name="cudaLaunchKernel", cat="cuda_runtime", correlation=2, **{"External id": 2}),
            host(40, 3, name="cudaMemcpyAsync", cat="cuda_runtime", correlation=3),
            host(60, 90, name="cudaStreamSynchronize", cat="cuda_runtime", correlation=4),
            host(190, 2, name="cudaLaunchKernel", cat="cuda_runtime", correlation=5),
            host(2, 6, name="nn.Module: Linear_0", cat="python_function", **{"Python id": 1, "Python parent id": None}),
            kernel(10.001, 30, name="ampere_sgemm_128x64_nn", correlation=1, grid=[8, 1, 1], block=[128, 1, 1]),
            kernel(30.5, 60, name=NCCL, stream=17, correlation=2, **{
                "Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "Group size": 2, "dtype": "Float",
                "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": 1}),
            kernel(100, 20.75, name="Memcpy DtoH (Device -> Pageable)", cat="gpu_memcpy", correlation=3, bytes=4096),
            kernel(200, 55, name="void vectorized_elementwise_kernel<4, Add>", correlation=5),
            {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 100, "tid": 1, "ts": 5.5,
             "args": {"Device Type": 1, "Device Id": 0, "Total Allocated": 1000, "Total Reserved": 2000}},
            {"ph": "s", "id": 1, "pid": 100, "tid": 1, "ts": 3, "cat": "ac2g", "name": "ac2g"},
            {"ph": "M", "name": "process_name", "pid": 100, "args": {"name": "python"}},
        ],
        rank=0, base_ns=1_790_000_000_000_000_000, deviceProperties=[{"id": 0, "name": "NVIDIA H200"}], trace_id="A1",
    )  # fmt: skip
    return [own, *_of_jobs()]


def _of_jobs() -> list[dict[str, Any]]:
    import tempfile

    found = []
    with tempfile.TemporaryDirectory() as place:
        for seed in range(12):
            job(seed, Path(place, str(seed)))
        for path in sorted(Path(place).rglob("*.json")):
            content = json.loads(path.read_text())
            if path.name != "run.json" and 3 < len(content["traceEvents"]) < 80:
                found.append(content)
    return found


def nsys_tables() -> nsys.Tables:
    """A whole small export."""
    return nsys.export()


def rocprof() -> Any:
    """A capture of rocprofv3, as JSON."""
    return _written(lambda path: rocprof_builders.write_json(path, rocprof_builders.buffers()))


@cache
def xplane() -> bytes:
    """A capture of XLA."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        return xplane_builders.write(Path(place, "a.xplane.pb")).read_bytes()


def _written(write: Any) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "x_results.json")
        write(path)
        return json.loads(path.read_text())


RUN_INFO = {
    "format_version": 1, "strategy": "ddp", "world_size": 2, "status": "complete",
    "model": {"layers": 2, "hidden": 64, "parameters": 12345},
    "batch": {"micro_batch": 4, "grad_accum": 1, "global_batch": 8, "tokens_per_step": 4096}, "dtype": "bfloat16",
    "param_dtype": "float32", "seed": 0, "compile": False, "activation_checkpointing": False,
    "step_time_ns": {"unprofiled": {"mean": 300_000, "std": 10.5, "n": 3, "values": [299_000, 300_000, 301_000]}},
    "tokens_per_s": 1e6, "model_flops_per_step": 1e9, "memory": [{"rank": 0, "peak_allocated_bytes": 10, "peak_reserved_bytes": 20}, None],
    "gpu": {"name": "NVIDIA H200", "count": 2}, "versions": {"torch": "2.9.0", "cuda": None}, "parallel": {"dp": 2},
    "profile": {"with_stack": False}, "topology": SYS_TOPOLOGY,
}  # fmt: skip


def flight_recorder(rng: random.Random) -> dict[int, Any]:
    """Dumps of two ranks: one stands a call behind."""
    ranks = range(2)
    calls = rng.randint(1, 4)
    return {
        0: dump([entry(number) for number in range(1, calls + 1)], ranks),
        1: dump(
            [entry(number, state="scheduled" if number == calls else "completed") for number in range(1, calls + 1)],
            ranks,
        ),
    }


def snapshot() -> Any:
    """A short history of the memory, as PyTorch dumps it."""
    history = History()
    kept = [history.alloc(1 << 20) for _ in range(3)]
    history.step()
    history.free(kept[0])
    history.alloc(5000)
    history.step()
    return history.snapshot()


def logs() -> list[str]:
    """NCCL's logs."""
    return [
        log(), log(ends="closed"), log(via="NET/IB/0", hosts=2, ranks=4, prefix="[{rank}]: "), log(incomplete=(1,)),
        log(environment=(("NCCL_P2P_DISABLE", "1"),), version=("2.21.5+cuda12.4", "2.20.1+cuda12.1")),
    ]  # fmt: skip


TOPOLOGY = SYS_TOPOLOGY

RAS = """\
Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          2            1          2        2

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         2         2         2   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

Warnings
========
"""


RAS_JSON = {
    "nccl_version": "2.30.7", "timestamp": "2026-06-11 11:44:19", "communicators_count": 1,
    "communicators": [{
        "hash": "0xfa93daea854b060b", "secondary_hash": "0x1:0x2", "size": 3, "ranks_count": 2, "missing_ranks_count": 1,
        "ranks": [{"rank": rank, "host": "192.0.2.1", "pid": 7, "cuda_dev": rank, "nvml_dev": rank,
                   "status": {"init_state": 0, "async_error": 0, "finalize_called": False},
                   "collective_counts": {"Broadcast": 0, "AllReduce": 5 + rank}} for rank in range(2)],
        "missing_ranks": [{"rank": 2, "host": "unknown", "pid": -1, "status": {"unresponsive": True, "considered_dead": False}}],
    }],
    "ras": {"collection_time_sec": 0.004, "timeouts_count": 0},
}  # fmt: skip
"""`ncclras -f json`, as NCCL 2.30's src/ras/client_support.cc lays it out."""


def inspector() -> list[dict[str, Any]]:
    """NCCL Inspector's records."""
    return [
        {
            "header": {"id": "0x7f", "rank": rank, "n_ranks": 3, "nnodes": 1},
            "metadata": {"dump_timestamp_us": 1_748_030_377_748_202 + number, "hostname": "n", "pid": 1},
            "coll_perf": {"coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 4 << 20, "coll_exec_time_us": 100,
                          "coll_algobw_gbs": 70.5, "coll_busbw_gbs": 100.0},
        }
        for rank in range(3) for number in range(3)
    ]  # fmt: skip


GATES = ("exposed_comm_pct > 5", "idle_pct > 10 @ any rank", "step_ns > 300 ms @ mean", "nccl.busbw_gb_per_s < 300 @ any row where collective=all_reduce",
         "overlap_pct? < 50", "idle.host_ns > 10 ms @ max rank", "exposed_comm_pct +10 %", "step_ns +5 % significant")  # fmt: skip

CONDITIONS = ("rank=0", "wait_ns>1e6", "name~nccl", "step != 3", "idle_ns <= 0.5", "is_complete=true")

CHANGES = (
    "rank 7=peers",
    "cpu none",
    "operator aten::mm=2x",
    "kernel gemm=0.5x",
    "comm none",
    "collective all_reduce=2x",
    "rank 0,2-3=peers",
)

STEPS = ("all", "complete", "last", "3:5", "3,5", ":4", "4")

RANKS = ("0", "0,2-3", "1-3")

RULES = ("comm=nccl.*", "compute=^gemm$", "copy=Memcpy", "comm=(a|b)+")


@cache
def summary() -> Any:
    """What is known of a job of two ranks, whose page shows a run.json."""
    import tempfile

    from traceanalyzer.discovery import discover
    from traceanalyzer.loading import LoadOptions
    from traceanalyzer.scale import summarise

    with tempfile.TemporaryDirectory() as place:
        job(1, Path(place))
        found = discover(Path(place))
        return summarise(found, found.runs[-1], LoadOptions(), jobs=1)
