"""`traced`: profiler, ranges and run.json for a training loop that is not one of ours."""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace

from traceanalyzer.runners.options import ProfileConfig
from traceanalyzer.runners.profiling import Profiler, profiled
from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.run_json import RunRecord, recording_failure
from traceanalyzer.runners.timing import StepTimer, from_all_ranks, peak_memory, slowest
from traceanalyzer.runners.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

# The first steps allocate, compile and connect.
UNTIMED_STEPS = 3
DEFAULT_PROFILE = ProfileConfig(wait=10)


class TracedLoop:
    """What the loop calls: `step()` after every optimizer step, `range(name)` around its parts if it likes."""

    def __init__(self, capture: Profiler, timer: StepTimer, timed_until: int) -> None:
        self._capture, self._timer, self._timed_until = capture, timer, timed_until
        self.steps_done = 0
        self.losses: list[torch.Tensor | float] = []

    def step(self, loss: torch.Tensor | float | None = None) -> None:
        """The end of a step; a loss is kept for run.json and read only when the block ends."""
        self.steps_done += 1
        if loss is not None:
            self.losses.append(loss.detach() if isinstance(loss, torch.Tensor) else loss)
        if UNTIMED_STEPS <= self.steps_done <= self._timed_until:
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

    Rank 0 prints what was recorded, and warns (`RuntimeWarning`) when the loop ended before the first recorded step.
    A block that ends by an exception leaves what was recorded until then, and a run.json that says how it ended.
    """
    out = Path(out)
    world = _this_process()
    timer = StepTimer(world.device)
    record = RunRecord(strategy=strategy or out.name, world_size=world.size, profile=asdict(profile))
    with recording_failure(out, world.rank, world.device, lambda: record), profiled(profile, out, world) as capture:
        loop = TracedLoop(capture, timer, timed_until=profile.wait)
        yield loop
    if world.rank == 0:
        _say_what_was_recorded(loop.steps_done, profile, out)
    # A framework may have started the other ranks inside the block, from a process that knew of none.
    gathered = from_all_ranks((timer.step_times_ns(), peak_memory(world.rank, world.device)))
    if world.rank == 0:
        record = replace(
            record,
            world_size=max(world.size, len(gathered)),
            memory=tuple(memory for _, memory in gathered),
            losses=[*map(float, loop.losses)] or None,
        )
        record.timed(slowest([times_ns for times_ns, _ in gathered]), tokens_per_step).write(out)


def _say_what_was_recorded(steps: int, profile: ProfileConfig, out: Path) -> None:
    """One line, or a warning that it is nothing."""
    if profile.profiler == "none":
        return
    recorded = min(max(steps - profile.first_active, 0), profile.active)
    if not recorded:
        warnings.warn(
            f"traced: nothing was recorded: the loop took {steps} steps, and recording begins after "
            f"{profile.first_active} (wait {profile.wait}, warmup {profile.warmup}). Take more steps, or shorten "
            "ProfileConfig(wait=…).",
            RuntimeWarning,
            stacklevel=4,  # the line of the `with`
        )
        return
    short = "" if recorded == profile.active else f" of {profile.active}, the loop ended"
    where = f"{out}/rank_<r>/" if profile.profiler == "torch" else "Nsight's report"
    count = "1 step" if recorded == 1 else f"{recorded} steps"
    print(f"traced: {count}{short} → {where}", flush=True)  # noqa: T201 - what a user waits for


def _this_process() -> World:
    """From the launcher's variables, since many frameworks join their process group later.

    Lightning gives the processes that it starts a local rank and the node's only.
    """
    size, local = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")))
    per_node = torch.cuda.device_count() or size
    rank = int(os.environ.get("RANK", int(os.environ.get("NODE_RANK", "0")) * per_node + local))
    return World(rank, size, torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu"))
