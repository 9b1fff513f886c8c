"""What the name of a host event says: synchronising call, launch, blocking copy, data loading, phase of training."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import cast

import numpy as np
import pandas as pd

from traceanalyzer.kinds import CPU_BACKENDS, MOST_NAMES
from traceanalyzer.meaning.vocabulary import DATA, NAMED_CAUSES, Cause
from traceanalyzer.model.tables import mask_of

PHASES = ("forward", "backward", "optimizer", "data", "communication")
"""Phases that ranges can name; `communication` is its set-up, and gradient synchronisation written by hand."""

UNATTRIBUTED = "unattributed"

AUTOGRAD_NODE = "autograd::engine::evaluate_function"
"""Operators of this name run a node of the backward graph."""

FOR_ALL, FOR_EVENT, FOR_STREAM = "all", "event", "stream"
"""What a synchronising call waits for: all streams, an event, one stream (Intel's GPUs: a queue)."""

_SYNCS = (
    (FOR_ALL, re.compile(r"(?:Device|Ctx|Thread)Synchronize")),
    (FOR_EVENT, re.compile(r"EventSynchronize|^ze(?:Event|Fence)HostSynchronize|^urEventWait$")),
    (FOR_STREAM, re.compile(r"StreamSynchronize|^zeCommand(?:Queue|ListHost)Synchronize|^urQueueFinish$")),
)

_BOTH = re.compile(r"(?:forward|fwd)_?(?:and_?)?(?:backward|bwd)|run_?training_?batch")
"""Ranges around a forward and a backward pass: `forward-backward` of Megatron's timers."""

_PHASE_PATTERNS = (
    ("data", re.compile(DATA.names)),
    ("optimizer", re.compile(
        r"^optim|optimizer\w*\.(step|zero_grad)|^opt_step|^zero_grad|^weight_update|^deepspeedengine\.step"
    )),
    ("communication", re.compile(
        r"grad(ient)?s?_(sync|synchronization|all_?reduce|reduce)|(sync|all_?reduce|reduce)_grad"
        r"|broadcast_param|init_process_group|^comm(unication)?(_setup|_init)?$"
    )),
    ("backward", re.compile(r"backward|^bwd")),
    ("forward", re.compile(r"forward|^fwd")),
)  # fmt: skip


def _says(pattern: str) -> Callable[[str], bool]:
    """Whether a name holds the pattern; asked of each name once."""
    holds = re.compile(pattern).search
    return lru_cache(MOST_NAMES)(lambda name: bool(holds(name)))


# cudaLaunchHostFunc runs on the host and leaves no GPU operation.
is_launch = _says(
    r"Launch(?!HostFunc)|Memcpy.*Async|Memset.*Async|^urEnqueue(USM|Mem)|^zeCommandListAppendMemory(Copy|Fill)"
)
"""A call that starts a kernel, copy or memset without waiting for it."""

is_plain_copy = _says(r"^(?:cuda|cu|hip)Memcpy(?!.*Async)")
"""A copy call without `Async`: it returns when the copy is done."""

is_mps_operator = _says(r"::_?mps_")
"""An operator that runs on Apple's GPU."""

is_module_load = _says(r"(?:Module|Library)Load")
"""A call that brings kernels onto the GPU: `cuModuleLoadData`, `cuLibraryLoadData`, `hipModuleLoad`."""

is_graph_launch = _says(r"GraphLaunch")
"""A call that starts a CUDA graph."""

is_graph_capture = _says(r"StreamBeginCapture|StreamEndCapture|GraphInstantiate")
"""A call that records a CUDA graph instead of running work."""

is_memory_call = _says(
    r"^(?:cuda(?:Malloc|Free)(?:Async|Managed)?|hip(?:Malloc|Free)(?:Async)?|cuMem(?:Create|Release|Map|Unmap|SetAccess)"
    r"|cu?(?:da)?(?:MemAlloc|MemFree)(?:Async)?|urUSM(?:(?:Device|Shared)Alloc|Free)|zeMem(?:Alloc(?:Device|Shared)|Free))"
    r"(?:_v\d+)?(?:_ptsz)?$"
)
"""A call that takes memory from the GPU or gives it back: `cudaMalloc`, `hipFree`, `urUSMDeviceAlloc`."""

is_loader_of_workers = _says(r"_MultiProcessingDataLoaderIter")
"""A range in which the host takes a batch that other processes make meanwhile."""

is_framework_range = _says(
    r"^(DistributedDataParallel\.|FullyShardedDataParallel\.|FSDP::|Optimizer\.|ProfilerStep#|torch::|Torch-Compiled"
    r"|## Call CompiledFxGraph|CompiledFunction|PythonSubclass$)|/torchinductor_"
)
"""A range that PyTorch itself puts around a phase: what takes long in it is what the program runs there."""


@lru_cache(MOST_NAMES)
def is_sync(name: str) -> bool:
    """A call that returns when the GPU has done earlier work: `cuda…Synchronize`, `zeEventHostSynchronize`."""
    return waits_for(name) is not None


@lru_cache(MOST_NAMES)
def waits_for(name: str) -> str | None:
    """What a synchronising call of this name waits for; `None` of other calls."""
    return next((what for what, pattern in _SYNCS if pattern.search(name)), None)


@lru_cache(MOST_NAMES)
def is_data(name: str) -> bool:
    """A range in which the host waits for, or prepares, the next batch."""
    return cause_of(name) is DATA


@lru_cache(MOST_NAMES)
def cause_of(name: str) -> Cause | None:
    """Why a GPU is idle while the host is in an event of this name; `None` where the name does not say so."""
    plain = _plain(name)
    return next((cause for cause in NAMED_CAUSES if re.search(cause.names, plain)), None)


def is_autograd_node(name: str) -> bool:
    """An operator that runs a node of the backward graph."""
    return name.startswith(AUTOGRAD_NODE)


def is_cpu_collective(name: str) -> bool:
    """A collective that the CPU carries out: `gloo:all_reduce`, `mpi:all_reduce`."""
    return name.startswith(CPU_BACKENDS)


def is_user_range(name: str) -> bool:
    """A range that says where in the program the host is: neither a profiler step nor a communication call."""
    return not name.startswith(("ProfilerStep", "nccl", *CPU_BACKENDS, "xccl:", "hccl:", "c10d:"))


def holds_whole_pass(name: str) -> bool:
    """A range around all that a program does in a pass: `forward`, `DistributedDataParallel.forward`, a compiled graph.

    `Optimizer.step` is one call of it.
    """
    own = phase(name)
    return own in ("forward", "backward") or (own != "optimizer" and is_framework_range(name))


@lru_cache(MOST_NAMES)
def phase(name: str) -> str | None:
    """Phase that a range's name stands for; `None` when it names none.

    `## forward ##`, `DistributedDataParallel.forward`, `FSDP::post_backward_reduce (blocks.3)`,
    `Optimizer.step#AdamW.step`, `Optimizer.zero_grad#…`, `enumerate(DataLoader)#…`, `grad_sync`.
    """
    if not is_user_range(name):
        return None
    plain = _plain(name)
    if _BOTH.search(plain):
        return None
    return next((known for known, pattern in _PHASE_PATTERNS if pattern.search(plain)), None)


def matches(names: pd.Series, test: Callable[[str], object]) -> np.ndarray:
    """Mask of the rows whose name passes; asks once for each distinct name."""
    return mask_of(cast("pd.Categorical", names.array), test)


def _plain(name: str) -> str:
    """Lower case, without decoration: `## Get Batch ##` is `get_batch`."""
    return re.sub(r"[\s-]+", "_", name.strip("#*=<>[] \t").lower())
