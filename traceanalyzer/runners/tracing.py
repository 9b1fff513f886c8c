"""`traced`: profiler, ranges and run.json for a training loop that is not one of ours."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from traceanalyzer.runners.profile_config import ProfileConfig
from traceanalyzer.runners.profiling import Capture, profiled
from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.run_json import RunRecord
from traceanalyzer.runners.timing import StepTimer, peak_memory, slowest
from traceanalyzer.runners.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

# The first steps allocate, compile and connect.
UNTIMED_STEPS = 3
DEFAULT_PROFILE = ProfileConfig(wait=10)


class TracedLoop:
    """What the loop calls: `step()` after every optimizer step, `range(name)` around its parts if it likes."""

    def __init__(self, capture: Capture, timer: StepTimer, timed_until: int) -> None:
        self._capture, self._timer, self._timed_until = capture, timer, timed_until
        self._steps_done = 0
        self.losses: list[torch.Tensor | float] = []

    def step(self, loss: torch.Tensor | float | None = None) -> None:
        """The end of a step; a loss is kept for run.json and read only when the block ends."""
        self._steps_done += 1
        if loss is not None:
            self.losses.append(loss.detach() if isinstance(loss, torch.Tensor) else loss)
        if UNTIMED_STEPS <= self._steps_done <= self._timed_until:
            self._timer.mark()
        self._capture.step()

    def range(self, name: str) -> AbstractContextManager[None]:
        """A named range: `data`, `forward`, `backward`, `grad_sync`, `optimizer` are known to the analysis."""
        return span(name)


@contextmanager
def traced(
    out: str | Path,
    *,
    profile: ProfileConfig = DEFAULT_PROFILE,
    strategy: str | None = None,
    tokens_per_step: int | None = None,
) -> Iterator[TracedLoop]:
    """Profile a few steps of the loop inside, once, and write `out/rank_<r>/` and `out/run.json`.

    The loop may be longer: it runs on un-profiled. Steps before the profiler's warm-up are timed, without
    making the host wait. `tokens_per_step` counts all ranks' tokens; with it run.json has the throughput.
    """
    out = Path(out)
    world = _this_process()
    timer = StepTimer(world.device)
    with profiled(profile, out, world) as capture:
        loop = TracedLoop(capture, timer, timed_until=profile.wait)
        yield loop
    mine = (timer.step_times_ns(), peak_memory(world.rank, world.device))
    gathered = [mine] * world.size
    if world.size > 1 and dist.is_initialized():
        dist.all_gather_object(gathered, mine)
    if world.rank == 0:
        record = RunRecord(strategy=strategy or out.name, world_size=world.size, profile=asdict(profile))
        record = replace(record, memory=[memory for _, memory in gathered], losses=_floats(loop.losses))
        record.timed(slowest([times_ns for times_ns, _ in gathered]), tokens_per_step).write(out)


def _this_process() -> World:
    """From the launcher's variables, since many frameworks join their process group later."""
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if not torch.cuda.is_available():
        return World(rank, size, torch.device("cpu"))
    return World(rank, size, torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))))


def _floats(losses: list[torch.Tensor | float]) -> list[float] | None:
    return [float(loss) for loss in losses] or None
