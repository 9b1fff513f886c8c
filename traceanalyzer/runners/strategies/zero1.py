"""ZeRO stage 1 by hand: each rank keeps the optimizer state of the parameters that it owns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from traceanalyzer.runners.memory_model import expected_memory
from traceanalyzer.runners.model import parameter_count
from traceanalyzer.runners.strategies.base import adamw
from traceanalyzer.runners.strategies.simple_ddp import SimpleDDP

if TYPE_CHECKING:
    import torch
    from torch import nn


class Zero1(SimpleDDP):
    """All-reduce every gradient, step the owned parameters, broadcast each from its owner."""

    def build_optimizer(self) -> torch.optim.Optimizer:
        self.owners = _owners(self.parameters, self.world.size)
        owned = [p for p, owner in zip(self.parameters, self.owners, strict=True) if owner == self.world.rank]
        return adamw(owned, self.config, self.world)

    def update(self) -> None:
        self.optimizer.step()
        for parameter, owner in zip(self.parameters, self.owners, strict=True):
            parameter.grad = None
            dist.broadcast(parameter.data, src=owner)

    def expected(self) -> dict[str, Any]:
        return expected_memory(parameter_count(self.model), optimizer_shards=self.world.size)


def _owners(parameters: list[nn.Parameter], world_size: int) -> list[int]:
    """Each parameter's owner: largest first, to the rank that owns least so far."""
    owned_elements = [0] * world_size
    owners = [0] * len(parameters)
    for index in sorted(range(len(parameters)), key=lambda i: -parameters[i].numel()):
        owner = min(range(world_size), key=owned_elements.__getitem__)
        owners[index] = owner
        owned_elements[owner] += parameters[index].numel()
    return owners
