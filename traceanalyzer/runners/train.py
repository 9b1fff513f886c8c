"""The training loop that all strategies share: warm up, time, profile, write run.json."""

from __future__ import annotations

import math
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from traceanalyzer.job.run_info import Batch
from traceanalyzer.runners.data import Tokens
from traceanalyzer.runners.model import Transformer, parameter_count
from traceanalyzer.runners.profiling import profiled
from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.run_json import RunRecord
from traceanalyzer.runners.shutdown import expect_progress
from traceanalyzer.runners.strategies import strategy_named
from traceanalyzer.runners.strategies.base import Job, Strategy
from traceanalyzer.runners.timing import StepTimer, from_all_ranks, peak_memory, slowest
from traceanalyzer.runners.world import transports

if TYPE_CHECKING:
    from torch import Tensor

    from traceanalyzer.runners.options import RunConfig
    from traceanalyzer.runners.world import World


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
    if world.is_cuda:
        expect_progress(config.timeout_s)
    world.synchronize()

    mine = {
        "step_times_ns": timer.step_times_ns(),
        "losses": [math.nan if loss is None else loss.item() for loss in steps.losses],
        "memory": memory,
        "expected": {"rank": world.rank, **strategy.expected()},
        "transfer": strategy.transfer(),
        "transports": transports(),
    }
    return _summarised(planned(config, world.size), strategy, from_all_ranks(mine), config)


class Steps:
    """Takes one step after the other and keeps the losses."""

    def __init__(self, config: RunConfig, world: World, strategy: Strategy) -> None:
        self.config, self.world, self.strategy = config, world, strategy
        self.losses: list[Tensor | None] = []
        self.ranks = world.size if strategy.is_data_parallel else 1
        self.rank = world.rank if strategy.is_data_parallel else 0
        samples = config.batch * config.accumulate * self.ranks
        self.tokens = Tokens(config.model, world.device, seed=config.seed, samples=samples, text=config.data)

    def take(self) -> None:
        """The next step, its data included."""
        if self.world.is_cuda:  # gloo's collectives fail by themselves after the timeout
            expect_progress(self.config.timeout_s)
        index = len(self.losses)
        if self.config.die == (self.world.rank, index):
            os._exit(13)
        micro_batches = []
        if self.strategy.has_model:
            with span("data"):
                micro_batches = self.tokens.micro_batches(index, self.rank, self.ranks, self.config.accumulate)
        self.losses.append(self.strategy.step(micro_batches))


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
        param_dtype=strategy.param_dtype(config),
        compile=config.compile,
        activation_checkpointing=config.checkpoint_activations,
        model_flops_per_step=_model_flops(config, parameters, tokens),
    )


def _model_flops(config: RunConfig, parameters: int, tokens: int) -> int:
    """FLOPs of the matrix products and the attention, recompute excluded, a look-up in a table not counted.

    Attention's two products take 4 · seq · d_model a token, layer and forward pass. They count in full in a causal
    model too, which needs half: as in PaLM's formula of MFU, and as traces are analysed.
    """
    model = config.model
    multiplied = parameters - (model.vocab + model.seq_len) * model.d_model
    attention = 4 * model.layers * model.seq_len * model.d_model
    per_parameter = strategy_named(config.strategy).flops_per_parameter
    return tokens * per_parameter * (multiplied + attention // 2)


def _summarised(record: RunRecord, strategy: Strategy, ranks: list[dict[str, Any]], config: RunConfig) -> RunRecord:
    transfers = [{"rank": rank, **r["transfer"]} for rank, r in enumerate(ranks) if r["transfer"]]
    losses = _mean_losses([rank["losses"] for rank in ranks])
    parallel = strategy.parallel()
    if record.batch is not None and parallel["microbatches"]:
        micro_batch = config.batch // parallel["microbatches"]
        record = replace(record, batch=replace(record.batch, micro_batch=micro_batch))
    summarised = replace(
        record,
        memory=tuple(rank["memory"] for rank in ranks),
        losses=losses,
        parallel=parallel,
        expected=[rank["expected"] for rank in ranks],
        transfer=transfers or None,
        transports=tuple(sorted({one for r in ranks for one in r["transports"] or ()})) or None,
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
