"""The training loop of all strategies, and `traced` for a loop of one's own: timed, then profiled steps, run.json."""

import math
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor

from traceanalyzer.job.run_info import Batch
from traceanalyzer.runners.model import Tokens, Transformer, parameter_count
from traceanalyzer.runners.options import ProfileConfig, RunConfig
from traceanalyzer.runners.recording import Capture, profiled, span
from traceanalyzer.runners.run_json import RunRecord, StepTimer, from_all_ranks, peak_memory, recording_failure, slowest
from traceanalyzer.runners.strategies import strategy_named
from traceanalyzer.runners.strategies.base import Job, Strategy
from traceanalyzer.runners.world import World, expect_progress, transports


def train(config: RunConfig, world: World) -> RunRecord:
    """Run the configured steps; every rank returns the same record of them."""
    strategy = strategy_named(config.strategy)(Job(config, world))
    steps = Steps(config, world, strategy)
    if world.is_cuda:
        torch.cuda.reset_peak_memory_stats(world.device)

    for _ in range(config.warmup):
        steps.take()

    world.synchronize()
    timer = StepTimer(world.device)
    timer.mark()
    for _ in range(config.steps):
        steps.take()
        timer.mark()
    world.synchronize()
    memory = peak_memory(world.rank, world.device)

    with profiled(config.profile, config.out, world) as capture:
        for _ in range(config.profile.steps):
            steps.take()
            capture.step()
    # A rank that hangs has left others here, their traces written.
    steps.expect_progress()
    world.synchronize()

    mine = {
        "step_times_ns": timer.step_times_ns(),
        "losses": [math.nan if loss is None else loss.item() for loss in steps.losses],
        "memory": memory,
        "expected": {"rank": world.rank, **strategy.expected()},
        "transfer": strategy.transfer(),
        "transports": transports(),
    }
    return _summarised(planned(config, world.size), strategy, from_all_ranks(mine))


class Steps:
    """Takes one step after the other and keeps the losses."""

    def __init__(self, config: RunConfig, world: World, strategy: Strategy) -> None:
        self.config, self.world, self.strategy = config, world, strategy
        self.losses: list[Tensor | None] = []
        self.ranks, self.rank = (world.size, world.rank) if strategy.is_data_parallel else (1, 0)
        samples = config.batch * config.accumulate * self.ranks
        self.tokens = Tokens(config.model, world.device, seed=config.seed, samples=samples)

    def take(self) -> None:
        """The next step, its data included."""
        self.expect_progress()
        index = len(self.losses)
        if self.config.die == (self.world.rank, index):
            os._exit(13)
        micro_batches = []
        if self.strategy.has_model:
            with span("data"):
                micro_batches = self.tokens.micro_batches(index, self.rank, self.ranks, self.config.accumulate)
        self.losses.append(self.strategy.step(micro_batches))

    def expect_progress(self) -> None:
        """End this rank if it takes too long; gloo's collectives fail by themselves after the timeout."""
        if self.world.is_cuda:
            expect_progress(self.config.timeout_s)


def planned(config: RunConfig, world_size: int) -> RunRecord:
    """What is known of a run before it starts: all that a run which fails can record."""
    strategy = strategy_named(config.strategy)
    record = RunRecord(
        strategy=config.strategy, world_size=world_size, seed=config.seed, profile=asdict(config.profile)
    )
    if not strategy.has_model:
        return record
    with torch.device("meta"):
        parameters = parameter_count(Transformer(config.model))
    samples = config.batch * config.accumulate * (world_size if strategy.is_data_parallel else 1)
    tokens = samples * config.model.seq_len
    return replace(
        record,
        model={**asdict(config.model), "parameters": parameters},
        batch=Batch(config.batch, config.accumulate, samples, tokens),
        dtype=config.dtype,
        param_dtype=config.dtype if strategy.casts_parameters else "fp32",
        compile=config.compile,
        activation_checkpointing=config.checkpoint_activations,
        model_flops_per_step=tokens * _model_flops_per_token(config, parameters),
    )


def _model_flops_per_token(config: RunConfig, parameters: int) -> int:
    """FLOPs of the matrix products and the attention, recompute excluded, a look-up in a table not counted.

    Attention's two products take 4 · seq · d_model a token, layer and forward pass. They count in full in a causal
    model too, which needs half: as in PaLM's formula of MFU, and as traces are analysed.
    """
    model = config.model
    multiplied = parameters - (model.vocab + model.seq_len) * model.d_model
    attention = 4 * model.layers * model.seq_len * model.d_model
    return strategy_named(config.strategy).flops_per_parameter * (multiplied + attention // 2)


def _summarised(record: RunRecord, strategy: Strategy, ranks: list[dict[str, Any]]) -> RunRecord:
    parallel = strategy.parallel()
    batch = record.batch
    if batch is not None and batch.micro_batch and parallel["microbatches"]:
        batch = replace(batch, micro_batch=batch.micro_batch // parallel["microbatches"])
    summarised = replace(
        record,
        batch=batch,
        memory=tuple(rank["memory"] for rank in ranks),
        losses=_mean_losses([rank["losses"] for rank in ranks]),
        parallel=parallel,
        expected=[rank["expected"] for rank in ranks],
        transfer=[{"rank": rank, **own["transfer"]} for rank, own in enumerate(ranks) if own["transfer"]] or None,
        transports=tuple(sorted({one for rank in ranks for one in rank["transports"] or ()})) or None,
    )
    return summarised.timed(slowest([rank["step_times_ns"] for rank in ranks]), record.tokens_per_step)


def _mean_losses(losses_by_rank: list[list[float]]) -> list[float] | None:
    """Each step's mean over the ranks that computed a loss; a loss that is not finite ends the curve."""
    curve = []
    for of_one_step in zip(*losses_by_rank, strict=True):
        known = [loss for loss in of_one_step if not math.isnan(loss)]
        if not known or not all(map(math.isfinite, known)):
            break
        curve.append(sum(known) / len(known))
    return curve or None


# A loop of one's own.


# The first steps allocate, compile and connect.
UNTIMED_STEPS = 3
DEFAULT_PROFILE = ProfileConfig(wait=10)


class TracedLoop:
    """What the loop calls: `step()` after every optimizer step, `range(name)` around its parts if it likes."""

    def __init__(self, capture: Capture, timer: StepTimer) -> None:
        self._capture, self._timer = capture, timer
        self.losses: list[torch.Tensor | float] = []

    def step(self, loss: torch.Tensor | float | None = None) -> None:
        """The end of a step; a loss is kept for run.json and read only when the block ends."""
        if loss is not None:
            self.losses.append(loss.detach() if isinstance(loss, torch.Tensor) else loss)
        if UNTIMED_STEPS <= self._capture.steps_done + 1 <= self._capture.config.wait:
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
    making the CPU wait. `tokens_per_step` counts all ranks' tokens; with it run.json has the throughput.

    Rank 0 prints what was recorded, and warns (`RuntimeWarning`) when the loop ended before the first recorded step.
    A block that ends by an exception leaves what was recorded until then, and a run.json that says how it ended.
    """
    out = Path(out)
    world = _this_process()
    timer = StepTimer(world.device)
    record = RunRecord(strategy=strategy or out.name, world_size=world.size, profile=asdict(profile))
    with recording_failure(out, world.rank, world.device, lambda: record), profiled(profile, out, world) as capture:
        loop = TracedLoop(capture, timer)
        yield loop
    if world.rank == 0:
        _say_what_was_recorded(capture.steps_done, profile, out)
    # A framework may have started the other ranks inside the block, from a process that knew of none.
    gathered = from_all_ranks((timer.step_times_ns(), peak_memory(world.rank, world.device)))
    if world.rank == 0:
        times_ns, memory = zip(*gathered, strict=True)
        losses = [*map(float, loop.losses)] or None
        record = replace(record, world_size=max(world.size, len(gathered)), memory=memory, losses=losses)
        record.timed(slowest(times_ns), tokens_per_step).write(out)


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
