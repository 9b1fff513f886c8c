"""Data parallelism from hooks: each gradient is all-reduced, blocking, as soon as it is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.distributed as dist

from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.simple_ddp import SimpleDDP

if TYPE_CHECKING:
    from torch import Tensor

    from traceanalyzer.runners.strategies.base import Job


class SimpleDDPHook(SimpleDDP):
    """The all-reduces move into the backward pass, but it waits for each of them."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self.on_gradient)

    def on_gradient(self, parameter: Tensor) -> None:
        """Called by autograd when the parameter's gradient of this micro-step has been added."""
        if self.is_last_micro_step:
            with span("grad_sync"):
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)

    def synchronize_gradients(self) -> None:
        """Nothing is left to do after the backward pass."""
