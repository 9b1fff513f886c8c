"""A group of parameters as one flat, evenly cut buffer: what the hand-written ZeRO stages 2 and 3 share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from traceanalyzer.runners.model import Transformer

# torch 2.13 renames both and deprecates the old names.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class FlatUnit:
    """Parameters that are gathered and reduced together.

    `full` holds all of them, padded to a multiple of the world size, and the parameters are views of it.
    `shard` is this rank's slice in fp32, which the optimizer updates. `on_reduced` is called, if given,
    when the unit's gradients are on their way and its parameters no longer needed by the backward pass.
    """

    def __init__(self, parameters: list[nn.Parameter], rank: int, world_size: int, full_dtype: torch.dtype) -> None:
        self.parameters, self.world_size = parameters, world_size
        self.sizes = [p.numel() for p in parameters]
        self.padding = -sum(self.sizes) % world_size
        master = self._flattened([p.data for p in parameters])
        self.full = master.to(full_dtype)
        # In one dtype the shard is a view of the full buffer: the optimizer then updates both.
        self.shard = nn.Parameter((self.full if full_dtype == master.dtype else master).chunk(world_size)[rank])
        for parameter, view in zip(parameters, self.full.split([*self.sizes, self.padding]), strict=False):
            parameter.data = view.view_as(parameter)
        self.on_reduced: Callable[[], None] | None = None
        self._missing = len(parameters)
        self._gather: dist.Work | None = None
        self._reduction: tuple[dist.Work, Tensor, Tensor] | None = None

    def detach_shard(self) -> None:
        """Give the shard memory of its own, so that the full buffer can be freed."""
        self.shard.data = self.shard.data.clone()

    def start_gather(self) -> None:
        """Begin to fill `full` from every rank's shard, unless that is under way."""
        if self._gather is None:
            self._gather = all_gather(self.full, self.shard.data.to(self.full.dtype), async_op=True)

    def finish_gather(self) -> None:
        """Let the current stream wait for the gather, if one is under way."""
        if self._gather is not None:
            self._gather.wait()
            self._gather = None

    def on_gradient(self) -> None:
        """Count a complete gradient; the last one starts the reduce-scatter."""
        self._missing -= 1
        if self._missing == 0:
            self._missing = len(self.parameters)
            self._start_reduce_scatter()
            if self.on_reduced is not None:
                self.on_reduced()

    def finish_reduce_scatter(self) -> None:
        """Wait for this rank's slice of the mean gradient and hand it to the shard."""
        assert self._reduction is not None, "the backward pass left a unit without gradients"
        work, _, gradient = self._reduction
        work.wait()
        self.shard.grad = gradient
        self._reduction = None

    def _start_reduce_scatter(self) -> None:
        flat = self._flattened([p.grad for p in self.parameters if p.grad is not None]).float()
        for parameter in self.parameters:
            parameter.grad = None
        gradient = torch.empty_like(self.shard)
        work = reduce_scatter(gradient, flat, op=dist.ReduceOp.AVG, async_op=True)
        # The input is kept until the work is done: its memory must not be used again before.
        self._reduction = (work, flat, gradient)

    def _flattened(self, tensors: list[Tensor]) -> Tensor:
        return torch.cat([*(t.flatten() for t in tensors), tensors[0].new_zeros(self.padding)])


def split_into_units(
    model: Transformer, rank: int, world_size: int, full_dtype: torch.dtype
) -> tuple[FlatUnit, list[FlatUnit]]:
    """The root unit (embedding and head), and one unit for each block."""
    in_blocks = {id(p) for p in model.blocks.parameters()}
    groups = [[p for p in model.parameters() if id(p) not in in_blocks]]
    groups += [list(block.parameters()) for block in model.blocks]
    root, *blocks = (FlatUnit(group, rank, world_size, full_dtype) for group in groups)
    return root, blocks
