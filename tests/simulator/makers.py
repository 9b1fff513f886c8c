"""What PyTorch's profiler writes of GPUs of AMD and Intel: other calls, names of kernels, and arguments."""

from collections.abc import Mapping
from typing import Any

from tests.simulator.spoiled import Spoil, edited

_HIP = {"cudaMemcpyAsync": "hipMemcpyWithStream"}

_LEVEL_ZERO = {
    "cudaLaunchKernel": "urEnqueueKernelLaunch",
    "cudaMemcpyAsync": "urEnqueueUSMMemcpy",
    "cudaStreamSynchronize": "urQueueFinish",
    "cudaDeviceSynchronize": "urQueueFinish",
    "cudaEventSynchronize": "urEventWait",
    "cudaMalloc": "urUSMDeviceAlloc",
    "cudaFree": "urUSMFree",
    "cudaEventRecord": "urEnqueueEventsWaitWithBarrierExt",
    "cudaStreamWaitEvent": "urEnqueueEventsWaitWithBarrier",
}

_ONE_CCL = {"AllReduce": "oneccl_allreduce_large", "AllGather": "oneccl_allgatherv_large",
            "ReduceScatter": "oneccl_reduce_scatter_large"}  # fmt: skip

_COPIES = {"Memcpy HtoD (Pinned": "Memcpy H2D (HOST -> DEVICE)", "Memcpy DtoH": "Memcpy D2H (DEVICE -> HOST)",
           "Memcpy HtoD (Pageable": "Memcpy M2D (MEMORY(Unknown) -> DEVICE)"}  # fmt: skip


def of_amd(ranks: int) -> Spoil:
    """The job ran on MI300X: HIP's calls, one kernel for all of RCCL's collectives."""
    return edited(range(ranks), _as_amd)


def of_intel(ranks: int) -> Spoil:
    """The job ran on XPUs: calls of the Unified Runtime, oneCCL's kernels, queues in place of streams, no models."""
    return edited(range(ranks), _as_intel)


def _as_amd(document: dict[str, Any]) -> None:
    document["deviceProperties"] = [{"id": 0, "name": "AMD Instinct MI300X"}]
    for each in document["traceEvents"]:
        if each["cat"] == "cuda_runtime":
            each["name"] = _HIP.get(each["name"], each["name"].replace("cuda", "hip", 1))
        if each["name"].startswith("ncclDevKernel"):
            each["name"] = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"


def _as_intel(document: dict[str, Any]) -> None:
    document["deviceProperties"] = []
    document["distributedInfo"] |= {"backend": "xccl"}
    del document["distributedInfo"]["nccl_version"]
    for each in document["traceEvents"]:
        if each["cat"] == "cuda_runtime":
            each |= {"cat": "xpu_runtime", "name": _LEVEL_ZERO[each["name"]]}
        if each["cat"] in ("kernel", "gpu_memcpy"):
            each["name"] = _by_part(_ONE_CCL | _COPIES, each["name"])
            each["args"]["sycl queue"] = each["args"].pop("stream")
            each["args"].pop("grid", None)


def _by_part(names: Mapping[str, str], name: str) -> str:
    """The name that stands for those with such a part."""
    return next((own for part, own in names.items() if part in name), name)
