"""Writes a capture as the Kineto files of PyTorch's profiler: one gzip JSON a rank."""

import gzip
import json
from pathlib import Path
from typing import Any

from tests.simulator.capture import Captured, Recorded, StreamWait
from tests.simulator.engine import GpuOp
from tests.simulator.program import Comm

BASE_NS = 1_790_000_000_000_000_000

KERNELS = {
    "all_reduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_gather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "reduce_scatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_to_all": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "gather": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "send_recv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
_NAMES = {"all_reduce": "allreduce", "all_gather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base",
          "all_to_all": "all_to_all", "broadcast": "broadcast", "gather": "gather"}  # fmt: skip

_CATEGORIES = {"range": "user_annotation", "operator": "cpu_op", "call": "cuda_runtime", "frame": "python_function",
               "gloo": "user_annotation"}  # fmt: skip

_HOST_THREAD, _GLOO_THREAD = 100, 150

_MOST_LISTED = 30


def write(captured: Captured, folder: Path) -> list[Path]:
    """`rank<r>.json.gz` of every rank."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(captured, recorded, folder) for recorded in captured.ranks]


def _write(captured: Captured, recorded: Recorded, folder: Path) -> Path:
    path = folder / f"rank{recorded.rank}.json.gz"
    text = json.dumps(_document(captured, recorded)).encode()
    path.write_bytes(gzip.compress(text[: round(len(text) * captured.how.cut.get(recorded.rank, 1))], 1))
    return path


def _document(captured: Captured, recorded: Recorded) -> dict[str, Any]:
    job = captured.run.job
    groups = [
        {"pg_name": group.name, "pg_desc": group.description, "backend_config": "cuda:nccl",
         "pg_size": len(group.ranks), "ranks": list(group.ranks)}
        for group in job.groups
    ]  # fmt: skip
    events = [
        *(_host_event(recorded, event) for event in recorded.host),
        *(event for op in recorded.launches for event in _launch(captured, recorded, op)),
        *(_gpu_op(captured, recorded, op) for op in recorded.ops),
        *(event for wait in recorded.waits for event in _stream_wait(captured, recorded, wait)),
    ]
    return {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": recorded.rank, "world_size": len(job.programs),
                            "pg_count": len(groups), "pg_config": groups, "nccl_version": "2.28.9"},
        "deviceProperties": [{"id": 0, "name": job.gpus[recorded.rank] if job.gpus else "NVIDIA H200"}],
        "baseTimeNanoseconds": BASE_NS,
        **({"hostname": job.hosts[recorded.rank]} if job.hosts else {}),
        "traceEvents": events,
    }  # fmt: skip


def _event(recorded: Recorded, category: str, name: str, start_ns: int, end_ns: int, thread: int,
           **args: Any) -> dict[str, Any]:  # fmt: skip
    pid = 0 if category in ("kernel", "gpu_memcpy", "cuda_sync") else 1000 + recorded.rank
    start_ns, end_ns = (recorded.how.clock_ns(recorded.rank, time_ns) for time_ns in (start_ns, end_ns))
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": thread,
            "ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000, "args": args}  # fmt: skip


def _host_event(recorded: Recorded, event: Any) -> dict[str, Any]:
    shapes = json.loads(event.shapes) if event.shapes else []
    args = {"Input Dims": shapes, "Input type": ["c10::BFloat16"] * len(shapes)} if shapes else {}
    args |= {"Fwd thread id": 0, "Sequence number": event.sequence} if event.sequence >= 0 else {}
    thread = _GLOO_THREAD if event.what == "gloo" else _HOST_THREAD + event.is_aside
    return _event(recorded, _CATEGORIES[event.what], event.name, event.start_ns, event.end_ns, thread, **args)


def _launch(captured: Captured, recorded: Recorded, op: GpuOp) -> list[dict[str, Any]]:
    graph = op.instruction.graph
    if graph not in (-1, op.number):
        return []
    usual = "cudaLaunchKernel" if graph < 0 else "cudaGraphLaunch"
    name = "cudaMemcpyAsync" if op.instruction.kind == "copy" else usual
    start, end = op.launch_start_ns, op.launch_end_ns
    events = [_event(recorded, "cuda_runtime", name, start + 100, end - 100, _HOST_THREAD, correlation=op.number + 1)]
    comm = op.instruction.comm
    if comm and not comm.kernel and captured.how.arguments != "none":
        texts = _arguments(captured, recorded, op, comm)
        # Messages of one kernel are recorded one after the other, before the end of their group launches it.
        ends = [end] if len(texts) == 1 else [start + 90 * place // len(texts) for place in range(1, len(texts) + 1)]
        events += [
            _event(recorded, "cpu_op", "record_param_comms", begin, until, _HOST_THREAD, **each)
            for begin, until, each in zip([start, *ends[:-1]], ends, texts, strict=True)
        ]
    return events


def _stream_wait(captured: Captured, recorded: Recorded, wait: StreamWait) -> list[dict[str, Any]]:
    """The calls, which PyTorch's profiler always has; and what it tells of them where it is asked to."""
    calls = [
        _event(
            recorded,
            "cuda_runtime",
            "cudaEventRecord",
            wait.record_ns,
            wait.record_ns + 20,
            _HOST_THREAD,
            correlation=wait.record_correlation,
        ),
        _event(
            recorded,
            "cuda_runtime",
            "cudaStreamWaitEvent",
            wait.wait_ns,
            wait.wait_ns + 20,
            _HOST_THREAD,
            correlation=wait.correlation,
        ),
    ]
    if not captured.how.has_stream_waits:
        return calls
    told = _event(recorded, "cuda_sync", "Stream Wait Event", wait.wait_ns, wait.wait_ns + 20, wait.stream,
                  device=0, stream=wait.stream, correlation=wait.correlation, wait_on_stream=wait.source_stream,
                  wait_on_cuda_event_record_corr_id=wait.record_correlation, wait_on_cuda_event_id=7)  # fmt: skip
    return [*calls, told]


def _gpu_op(captured: Captured, recorded: Recorded, op: GpuOp) -> dict[str, Any]:
    comm = op.instruction.comm
    name = (comm.kernel or KERNELS[comm.collective]) if comm else op.instruction.name
    category = "gpu_memcpy" if op.instruction.kind == "copy" else "kernel"
    graph = op.instruction.graph
    launch = op.number if graph < 0 else graph
    args: dict[str, Any] = {"device": 0, "stream": op.instruction.stream, "correlation": launch + 1}
    args |= {"graph node id": (1 << 32) + op.number - graph} if graph >= 0 else {}
    args |= (
        {"bytes": op.instruction.size_bytes}
        if category == "gpu_memcpy"
        else {"grid": [op.instruction.blocks, 1, 1], "block": [128, 1, 1]}
    )
    is_described = captured.how.arguments == "kernel" and op.number in recorded.launched
    if comm and not comm.kernel and is_described and comm.collective != "send_recv":
        args |= _arguments(captured, recorded, op, comm)[0]
    return _event(recorded, category, name, op.start_ns, op.end_ns, op.instruction.stream, **args)


def _listed(ranks: tuple[int, ...]) -> str:
    """As PyTorch writes them: no more than 30."""
    if len(ranks) <= _MOST_LISTED:
        return str(list(ranks))
    return f"[{', '.join(map(str, ranks[: _MOST_LISTED - 1]))}, ..., {ranks[-1]}]"


def _arguments(captured: Captured, recorded: Recorded, op: GpuOp, comm: Comm) -> list[dict[str, Any]]:
    """One set for a collective, one for each message of an exchange; peers are numbered within the group."""
    ranks = comm.group.ranks
    shared: dict[str, Any] = {
        "dtype": comm.dtype,
        "In msg nelems": comm.elements // len(ranks) if comm.collective == "all_gather" else comm.elements,
        "Out msg nelems": comm.elements // len(ranks) if comm.collective == "reduce_scatter" else comm.elements,
        "Group size": len(ranks),
        "Process Group Name": comm.group.name,
        "Process Group Description": comm.group.description,
        "Process Group Ranks": _listed(ranks),
    }
    if any(comm.splits):
        sent, received = comm.splits
        shared |= {"Collective name": "all_to_allv", "In split size": str([*sent]), "Out split size": str([*received]),
                   "Out msg nelems": sum(received)}  # fmt: skip
        return [shared]
    if captured.how.has_sequence:
        shared["Seq"] = recorded.sequences[op.number]
    if comm.collective != "send_recv":
        return [{"Collective name": _NAMES[comm.collective], **shared}]
    sends = [{"Collective name": "send", "Dst Rank": peer, **shared} for peer in comm.sends]
    return sends + [{"Collective name": "recv", "Src Rank": peer, **shared} for peer in comm.receives]
