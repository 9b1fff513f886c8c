"""Data parallelism at its plainest: after the backward pass one blocking all-reduce a parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.base import Job, Strategy, require_ranks

if TYPE_CHECKING:
    from traceanalyzer.runners.options import RunConfig


class SimpleDDP(Strategy):
    """Nothing overlaps: communication starts when the backward pass is over."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        for parameter in self.parameters:
            dist.broadcast(parameter.data, src=0)

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        require_ranks(config.strategy, world_size)

    def synchronize_gradients(self) -> None:
        with span("grad_sync"):
            for parameter in self.parameters:
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
