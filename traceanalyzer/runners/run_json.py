"""run.json, beside the traces: the job, its speed without a profiler, and its memory."""

import os
import platform
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import torch
import torch.distributed as dist
from msgspec import field
from msgspec.structs import replace

from traceanalyzer.job.run_info import KNOWN_VERSION, RunInfo, StepTime, StepTimes

T = TypeVar("T")

# A web address stays whole: it is documentation, and none of its parts is a folder of this _
_FOLDERS = re.compile(r"(?P<web>https?://\S+)|[\w.~-]*/(?:[^\s/\[\]:]+/)+")
_VARIABLE = re.compile(r"NCCL_|CUDA_|PYTORCH_(?:CUDA_)?ALLOC_CONF")
_ADDRESS = re.compile(r"\[?\d+\.\d+\.\d+\.\d+\]?(?::\d+)?")


def _gpu() -> dict[str, Any] | None:
    """Model and number of the GPUs of this host."""
    if not torch.cuda.is_available():
        return None
    return {"name": torch.cuda.get_device_name(), "count": torch.cuda.device_count()}


def _versions() -> dict[str, str | None]:
    """Versions of what decides which kernels run."""
    has_gpu = torch.cuda.is_available()
    driver = _nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader", "--id=0")
    return {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if has_gpu else None,
        "driver": driver.strip() if driver else None,
        "python": platform.python_version(),
    }


def _topology() -> str | None:
    """`nvidia-smi topo -m` without its terminal colours."""
    matrix = _nvidia_smi("topo", "-m")
    return re.sub(r"\x1b\[[0-9;]*m", "", matrix) if matrix else None


def _hosts() -> tuple[str, ...] | None:
    """Which host each rank runs on, by number, as torchrun deals out ranks; `None` on one host, or without it."""
    sizes = [os.environ.get(name, "") for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")]
    world, local = (int(size) if size.isdigit() else 0 for size in sizes)
    return tuple(f"node {rank // local}" for rank in range(world)) if 0 < local < world else None


def _environment() -> dict[str, str]:
    """What is set for NCCL, CUDA and the allocator, without paths, versions and what this package sets itself."""
    own = {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_VERSION", "CUDA_VERSION"}
    known = {name: value for name, value in os.environ.items() if _VARIABLE.match(name) and name not in own}
    return {name: value for name, value in sorted(known.items()) if "/" not in value}


def _nvidia_smi(*arguments: str) -> str | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


class RunRecord(RunInfo, frozen=True):
    """The file: what reports read of it, and what only people do. What is not known is None, never 0.

    Docs: docs/runners.md.
    """

    format_version: int | None = KNOWN_VERSION
    status: str | None = "ok"
    losses: list[float] | None = None
    expected: list[dict[str, Any]] | None = None
    transfer: list[dict[str, Any]] | None = None
    gpu: dict[str, Any] | None = field(default_factory=_gpu)
    versions: dict[str, str | None] | None = field(default_factory=_versions)
    topology: str | None = field(default_factory=_topology)
    hosts: tuple[str | None, ...] | None = field(default_factory=_hosts)
    environment: dict[str, str] | None = field(default_factory=_environment)

    def timed(self, step_times_ns: list[int], tokens_per_step: int | None) -> Self:
        """With the un-profiled step time (mean, sample standard deviation) and what follows from it."""
        if not step_times_ns:
            return self
        mean_ns = statistics.fmean(step_times_ns)
        spread_ns = round(statistics.stdev(step_times_ns)) if len(step_times_ns) > 1 else None
        return replace(
            self,
            step_time_ns=StepTimes(StepTime(round(mean_ns), spread_ns, len(step_times_ns), tuple(step_times_ns))),
            tokens_per_s=tokens_per_step * 1e9 / mean_ns if tokens_per_step else None,
        )

    def failed(self, error: BaseException, memory: dict[str, int | None]) -> Self:
        """The same run with how it ended: the error's first line, without folders and addresses.

        `memory` is what the rank that failed had needed so far; of the other ranks nothing is known.
        """
        message = _FOLDERS.sub(lambda found: found["web"] or "", (str(error).splitlines() or [""])[0])
        message = _ADDRESS.sub("<peer>", message)
        status = "oom" if isinstance(error, torch.OutOfMemoryError) else "failed"
        return replace(
            self, status=status, error=": ".join(filter(None, [type(error).__name__, message])), memory=(memory,)
        )

    def write(self, folder: Path) -> None:
        """Write `folder/run.json` in one go: a reader never sees half a file."""
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f"run.json.{os.getpid()}"
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        partial.replace(folder / "run.json")


@contextmanager
def recording_failure(
    folder: Path, rank: int, device: torch.device, planned: Callable[[], RunRecord]
) -> Iterator[None]:
    """From here on a run.json is this run's: where the block fails, what was planned with how it ended.

    A rank that failed first has recorded it: the others fail because of it. A rank out of memory records itself in any
    case: others may have recorded first that they lost their connection to it.
    """
    if rank == 0:
        (folder / "run.json").unlink(missing_ok=True)
    try:
        yield
    except BaseException as error:
        if isinstance(error, torch.OutOfMemoryError) or not (folder / "run.json").exists():
            planned().failed(error, peak_memory(rank, device)).write(folder)
        raise


class StepTimer:
    """Marks step boundaries without making the host wait; read the times after a synchronise."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._events: list[torch.cuda.Event] = []
        self._clock_ns: list[int] = []

    def mark(self) -> None:
        """The end of one step and the start of the next."""
        if self._is_cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        else:
            self._clock_ns.append(time.perf_counter_ns())

    def step_times_ns(self) -> list[int]:
        """Each step's time, in order."""
        if self._is_cuda:
            torch.cuda.synchronize()
            return [round(a.elapsed_time(b) * 1e6) for a, b in pairwise(self._events)]
        return [b - a for a, b in pairwise(self._clock_ns)]


def from_all_ranks(mine: T) -> list[T]:
    """What each rank gives, by rank."""
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    gathered = [mine] * ranks
    if ranks > 1:
        dist.all_gather_object(gathered, mine)
    return gathered


def slowest(step_times_ns_by_rank: Sequence[list[int]]) -> list[int]:
    """The times of the rank that took longest in all: a job is as fast as its slowest rank."""
    return max(step_times_ns_by_rank, key=sum)


def peak_memory(rank: int, device: torch.device) -> dict[str, int | None]:
    """This rank's allocator peaks since they were last reset; None without a GPU, or before it was used."""
    if device.type != "cuda" or not torch.cuda.is_initialized():
        return {"rank": rank, "peak_allocated_bytes": None, "peak_reserved_bytes": None}
    return {
        "rank": rank,
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(device),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(device),
    }
