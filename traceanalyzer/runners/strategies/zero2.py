"""ZeRO stage 2 by hand: gradients are reduce-scattered in the backward pass, each rank updates its slice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from traceanalyzer.runners.memory_model import expected_memory
from traceanalyzer.runners.model import parameter_count
from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.base import Job, Strategy, adamw, require_ranks
from traceanalyzer.runners.strategies.flat import FlatUnit, split_into_units

if TYPE_CHECKING:
    from traceanalyzer.runners.options import RunConfig


class Zero2(Strategy):
    """One unit a block and one for the rest: a reduce-scatter and an all-gather each, every step."""

    def __init__(self, job: Job) -> None:
        world = job.world
        root, blocks = split_into_units(job.model, world.rank, world.size, torch.float32)
        self.units = [root, *blocks]
        super().__init__(job)
        for unit in self.units:
            for parameter in unit.parameters:
                parameter.register_post_accumulate_grad_hook(lambda _, unit=unit: self.on_gradient(unit))

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        require_ranks(config.strategy, world_size)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return adamw([unit.shard for unit in self.units], self.config, self.world)

    def on_gradient(self, unit: FlatUnit) -> None:
        """Called by autograd for each gradient."""
        if self.is_last_micro_step:
            unit.on_gradient()

    def synchronize_gradients(self) -> None:
        with span("grad_sync"):
            for unit in self.units:
                unit.finish_reduce_scatter()

    def update(self) -> None:
        super().update()
        for unit in self.units:
            unit.start_gather()
        for unit in self.units:
            unit.finish_gather()

    def expected(self) -> dict[str, Any]:
        ranks = self.world.size
        return expected_memory(parameter_count(self.model), gradient_shards=ranks, optimizer_shards=ranks)
