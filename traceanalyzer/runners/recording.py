"""What a run leaves behind: named ranges, a profiler's capture of some steps, memory snapshots."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._profiler import _ExperimentalConfig
from torch.autograd.profiler import record_function
from torch.distributed import distributed_c10d
from torch.profiler import ProfilerActivity, profile, schedule

from traceanalyzer.runners.options import ProfileConfig
from traceanalyzer.runners.world import World, uninterrupted

NVTX_DOMAIN = "traceanalyzer"
"""Tells the ranges of a training job from those of NCCL and other libraries in the same report."""

_nvtx: Any = None


def use_nvtx(*, is_on: bool) -> None:
    """Write ranges as NVTX, not for the PyTorch profiler (a process has one profiler, so this is process-wide)."""
    global _nvtx  # noqa: PLW0603
    _nvtx = import_module("nvtx") if is_on else None


class Range:
    """A range that code far apart opens and closes, on one thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._record: record_function | None = None

    def open(self) -> None:
        """Start the range."""
        if _nvtx:
            _nvtx.push_range(self.name, domain=NVTX_DOMAIN)
        else:
            self._record = record_function(self.name)
            self._record.__enter__()

    def close(self) -> None:
        """End the range."""
        if self._record is not None:
            self._record.__exit__(None, None, None)
        elif _nvtx:
            _nvtx.pop_range(domain=NVTX_DOMAIN)


@contextmanager
def span(name: str) -> Iterator[None]:
    """A range around a block of code: `data`, `forward`, `backward`, `grad_sync`, `optimizer`, `block_<i>`."""
    opened = Range(name)
    opened.open()
    try:
        yield
    finally:
        opened.close()


def in_block_ranges(index: int, block: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`block(x)` in the range `block_<index>`, and its backward pass in `backward block_<index>`."""
    backward = Range(f"backward block_{index}")
    has_backward = torch.is_grad_enabled() and x.requires_grad
    if has_backward:
        x.register_hook(lambda _: backward.close())
    with span(f"block_{index}"):
        y = block(x)
    if has_backward:
        # Hooks of a function's node run after those of its tensor, with which the following block's range closes.
        assert y.grad_fn is not None
        y.grad_fn.register_prehook(lambda _: backward.open())
    return y


class Capture:
    """Records nothing; `step` is called at the end of every step.

    What a subclass has recorded is written also when the block ends by an exception.
    """

    def __init__(self, config: ProfileConfig, out: Path, world: World) -> None:
        self.config, self.world, self.steps_done = config, world, 0
        self.folder = out / f"rank_{world.rank}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing is left to do."""

    def step(self) -> None:
        """The end of a step."""
        self.steps_done += 1


class _TorchCapture(Capture):
    """torch.profiler on its schedule, with the device idle at both ends of what is recorded.

    At the end no queued kernel is lost; at the beginning none is recorded that was launched before, of which the
    trace could not say by whom, nor in which step. The first recorded step pays for it with an empty queue.
    """

    def __init__(self, config: ProfileConfig, out: Path, world: World) -> None:
        super().__init__(config, out, world)
        self._stamp: int | None = None
        self._profile = profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if world.is_cuda else [])],
            schedule=schedule(wait=config.wait, warmup=config.warmup, active=config.active, repeat=1),
            on_trace_ready=self._write,
            record_shapes=config.record_shapes,
            with_stack=config.with_stack,
            profile_memory=config.profile_memory,
            experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
        )

    def __enter__(self) -> Self:
        self._drain_at_the_ends()
        self._profile.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        # Leaving in mid-capture exports what there is.
        with uninterrupted():
            self._profile.__exit__(None, None, None)

    def step(self) -> None:
        super().step()
        if self._stamp is None:
            self._stamp = _agreed_stamp_ms()
        self._drain_at_the_ends()
        self._profile.step()

    def _drain_at_the_ends(self) -> None:
        if self.world.is_cuda and self.steps_done in (self.config.first_active, self.config.steps):
            torch.cuda.synchronize(self.world.device)

    def _write(self, finished: profile) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        capture = f"capture_{self._stamp or _now_ms()}"
        # No reader takes the partial name for a trace; its end makes torch compress.
        partial = self.folder / f"{capture}.partial.gz"
        with uninterrupted():
            finished.export_chrome_trace(str(partial))
            partial.replace(self.folder / f"{capture}.pt.trace.json.gz")


class _NsysCapture(Capture):
    """Opens Nsight's capture range around the active steps, says who the ranks are, and names steps `step_<n>`."""

    _step_range: Range | None = None

    def __enter__(self) -> Self:
        use_nvtx(is_on=True)
        self._begin_step()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._step_range is not None:
            self._stop()
        use_nvtx(is_on=False)

    def step(self) -> None:
        super().step()
        if self._step_range is not None:
            self._step_range.close()
        if self.steps_done == self.config.steps:
            # One rank's stop ends the capture of all, so each waits until all are done.
            self.world.synchronize()
            self._stop()
        else:
            self._begin_step()

    def _begin_step(self) -> None:
        if self.steps_done < self.config.first_active:
            return
        if self.steps_done == self.config.first_active:
            self.world.synchronize()
            torch.cuda.cudart().cudaProfilerStart()
            introduce(self.world)
        self._step_range = Range(f"step_{self.steps_done}")
        self._step_range.open()

    def _stop(self) -> None:
        self._step_range = None
        torch.cuda.cudart().cudaProfilerStop()


_CAPTURES = {"torch": _TorchCapture, "nsys": _NsysCapture, "none": Capture}


def profiled(config: ProfileConfig, out: Path, world: World) -> Capture:
    """Profile the `config.steps` steps taken inside this context; traces go to `out/rank_<r>/`."""
    return _CAPTURES[config.profiler](config, out, world)


def introduce(world: World) -> None:
    """Ranges `rank 3 of 8` and `group 5 of ranks 1,3,5,7: mesh_tp`, the latter around one small all-reduce.

    NCCL's payload of that call has the communicator's id, which is how the group's other calls are known: payloads say
    it of every call, and who belongs to it only where the job began inside the capture. All ranks go through their
    groups in the order in which they made them.
    """
    with span(f"rank {world.rank} of {world.size}"):
        pass
    names = distributed_c10d._world.pg_names if dist.is_initialized() else {}  # noqa: SLF001  # has no public name
    for group, name in names.items():
        ranks = dist.get_process_group_ranks(group)
        if len(ranks) > 1 and dist.get_rank() in ranks:
            what = f": {group.group_desc}" if group.group_desc else ""
            with span(f"group {name} of ranks {','.join(map(str, ranks))}{what}"):
                dist.all_reduce(torch.ones(1, device=world.device), group=group)
    world.synchronize()


def _agreed_stamp_ms() -> int:
    """One file name for all ranks of a capture: rank 0's clock."""
    stamps = [_now_ms()]
    if dist.is_initialized():
        dist.broadcast_object_list(stamps, src=0)
    return stamps[0]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


SNAPSHOT = "memory_snapshot.pickle"


@contextmanager
def snapshots(out: Path, world: World, *, is_wanted: bool) -> Iterator[None]:
    """Write `out/rank_<r>/memory_snapshot.pickle` when the block ends, if asked, and when it runs out of memory.

    The history of allocations is recorded only if asked: it slows the CPU. Without it a snapshot has the
    memory in use at the end, but not by which line.
    """
    if not world.is_cuda:
        yield
        return
    if is_wanted:  # of more events the older ones are dropped
        torch.cuda.memory._record_memory_history(max_entries=1_000_000)  # noqa: SLF001 - PyTorch has no other name
    path = out / f"rank_{world.rank}" / SNAPSHOT
    path.unlink(missing_ok=True)
    try:
        yield
    except torch.OutOfMemoryError:
        _dump(path)
        raise
    if is_wanted:
        _dump(path)


def _dump(path: Path) -> None:
    """Under its name only when it is whole; what cannot be written hides no error of the run."""
    partial = path.with_suffix(".partial")
    with contextlib.suppress(OSError, RuntimeError):
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.cuda.memory._dump_snapshot(str(partial))  # noqa: SLF001 - PyTorch has no other name
        partial.replace(path)
