"""Data parallelism from hooks without waiting: all-reduces run beside the rest of the backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.simple_ddp import SimpleDDP

if TYPE_CHECKING:
    from torch import Tensor

    from traceanalyzer.runners.strategies.base import Job


class SimpleDDPAsync(SimpleDDP):
    """One asynchronous all-reduce a parameter, waited for before the optimizer step."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.pending: list[dist.Work] = []
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self.on_gradient)

    def on_gradient(self, parameter: Tensor) -> None:
        """Called by autograd when the parameter's gradient of this micro-step has been added."""
        if self.is_last_micro_step:
            work = dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, async_op=True)
            self.pending.append(work)

    def synchronize_gradients(self) -> None:
        with span("grad_sync"):
            for work in self.pending:
                work.wait()
            self.pending.clear()
