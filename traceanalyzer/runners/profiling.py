"""Records some steps: a PyTorch-profiler trace a rank, or the range that Nsight Systems captures."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol, Self

import torch
import torch.distributed as dist
from torch._C._profiler import _ExperimentalConfig
from torch.autograd.profiler import emit_nvtx
from torch.distributed import distributed_c10d
from torch.profiler import ProfilerActivity, profile, schedule

from traceanalyzer.runners.ranges import Range, span, use_nvtx
from traceanalyzer.runners.shutdown import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from traceanalyzer.runners.options import ProfileConfig
    from traceanalyzer.runners.world import World


class Profiler(Protocol):
    """A running profiler."""

    def step(self) -> None:
        """Call at the end of every step."""


@contextmanager
def profiled(config: ProfileConfig, out: Path, world: World) -> Iterator[Profiler]:
    """Profile the `config.steps` steps taken inside; traces go to `out/rank_<r>/`.

    What was recorded is written also when the block ends by an exception.
    """
    if config.profiler == "torch":
        with _TorchCapture(config, out, world) as torch_capture:
            yield torch_capture
    elif config.profiler == "nsys":
        with _NsysCapture(config, world) as nsys_capture:
            yield nsys_capture
    else:
        yield _NoCapture()


class _NoCapture:
    def step(self) -> None:
        """Nothing is recorded."""


class _TorchCapture:
    """torch.profiler on its schedule, with the device idle at both ends of what is recorded.

    At the end no queued kernel is lost; at the beginning none is recorded that was launched before, of which the
    trace could not say by whom, nor in which step. The first recorded step pays for it with an empty queue.
    """

    def __init__(self, config: ProfileConfig, out: Path, world: World) -> None:
        self._config, self._world, self._steps_done = config, world, 0
        self._folder = out / f"rank_{world.rank}"
        self._stamp: int | None = None
        self._profile = profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if world.is_cuda else [])],
            schedule=schedule(wait=config.wait, warmup=config.warmup, active=config.active, repeat=1),
            on_trace_ready=self._write,
            record_shapes=config.record_shapes,
            with_stack=config.with_stack,
            profile_memory=config.profile_memory,
            experimental_config=_ExperimentalConfig(enable_cuda_sync_events=config.stream_waits),
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
        self._steps_done += 1
        if self._stamp is None:
            self._stamp = _agreed_stamp_ms()
        self._drain_at_the_ends()
        self._profile.step()

    def _drain_at_the_ends(self) -> None:
        if self._world.is_cuda and self._steps_done in (self._config.first_active, self._config.steps):
            torch.cuda.synchronize(self._world.device)

    def _write(self, finished: profile) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        capture = f"capture_{self._stamp or _now_ms()}"
        # No reader takes the partial name for a trace; its end makes torch compress.
        partial = self._folder / f"{capture}.partial.gz"
        with uninterrupted():
            finished.export_chrome_trace(str(partial))
            partial.replace(self._folder / f"{capture}.pt.trace.json.gz")


class _NsysCapture:
    """Opens Nsight's capture range around the active steps, says who the ranks are, and names steps `step_<n>`."""

    def __init__(self, config: ProfileConfig, world: World) -> None:
        self._config, self._world, self._steps_done = config, world, 0
        self._step_range: Range | None = None
        self._operators = emit_nvtx(record_shapes=config.record_shapes) if config.nvtx_ops else nullcontext()

    def __enter__(self) -> Self:
        use_nvtx(is_on=True)
        self._operators.__enter__()
        self._begin_step()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._step_range is not None:
            self._stop()
        self._operators.__exit__(None, None, None)
        use_nvtx(is_on=False)

    def step(self) -> None:
        self._steps_done += 1
        if self._step_range is not None:
            self._step_range.close()
        if self._steps_done == self._config.steps:
            # One rank's stop ends the capture of all, so each waits until all are done.
            self._world.synchronize()
            self._stop()
        else:
            self._begin_step()

    def _begin_step(self) -> None:
        if self._steps_done < self._config.first_active:
            return
        if self._steps_done == self._config.first_active:
            self._world.synchronize()
            torch.cuda.cudart().cudaProfilerStart()
            introduce(self._world)
        self._step_range = Range(f"step_{self._steps_done}")
        self._step_range.open()

    def _stop(self) -> None:
        self._step_range = None
        torch.cuda.cudart().cudaProfilerStop()


def introduce(world: World) -> None:
    """Ranges `rank 3 of 8` and `group 5 of ranks 1,3,5,7: mesh_tp`, the latter around one small all-reduce.

    NCCL's payload of that call has the communicator's id, which is how the group's other calls are known: payloads say
    it of every call, and who belongs to it only where the job began inside the capture.
    """
    with span(f"rank {world.rank} of {world.size}"):
        pass
    for name, description, ranks, group in _groups():
        what = f": {description}" if description else ""
        with span(f"group {name} of ranks {','.join(map(str, ranks))}{what}"):
            dist.all_reduce(torch.ones(1, device=world.device), group=group)
    world.synchronize()


def _groups() -> Iterator[tuple[str, str, list[int], dist.ProcessGroup]]:
    """This rank's groups of two or more ranks, in the order in which all ranks made them."""
    names = distributed_c10d._world.pg_names if dist.is_initialized() else {}  # noqa: SLF001  # has no public name
    for group, name in names.items():
        ranks = dist.get_process_group_ranks(group)
        if len(ranks) > 1 and dist.get_rank() in ranks:
            yield name, group.group_desc, ranks, group


def _agreed_stamp_ms() -> int:
    """One file name for all ranks of a capture: rank 0's clock."""
    stamps = [_now_ms()]
    if dist.is_initialized():
        dist.broadcast_object_list(stamps, src=0)
    return stamps[0]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
