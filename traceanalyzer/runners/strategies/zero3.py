"""ZeRO stage 3 by hand: parameters are gathered block by block before use and freed after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from traceanalyzer.runners.memory_model import expected_memory
from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.base import Job, Strategy, adamw, require_ranks
from traceanalyzer.runners.strategies.flat import FlatUnit, split_into_units

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from traceanalyzer.runners.data import Batch
    from traceanalyzer.runners.options import RunConfig


class Zero3(Strategy):
    """2 · blocks + 1 all-gathers a step: each block in forward and in backward, the root once.

    As FSDP does in mixed precision, parameters are gathered in bf16 and the model runs in bf16 without
    autocast, whose own bf16 copies of the weights would live until the backward pass and save nothing.
    """

    def __init__(self, job: Job) -> None:
        world = job.world
        self.elements = sum(p.numel() for p in job.model.parameters())
        full_dtype = torch.float32 if job.config.dtype == "fp32" else torch.bfloat16
        self.root, self.blocks = split_into_units(job.model, world.rank, world.size, full_dtype)
        self.units = [self.root, *self.blocks]
        for unit in self.units:
            unit.detach_shard()
            unit.on_reduced = lambda unit=unit: free(unit)
            for parameter in unit.parameters:
                parameter.register_post_accumulate_grad_hook(lambda _, unit=unit: self.on_gradient(unit))
            free(unit)
        for index, block in enumerate(job.model.blocks):
            block.register_forward_pre_hook(lambda *_, index=index: self.before_forward(index))
            block.register_forward_hook(lambda _, __, y, index=index: self.after_forward(index, y))
        super().__init__(job)

    @classmethod
    def param_dtype(cls, config: RunConfig) -> str:
        return config.dtype

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        require_ranks(config.strategy, world_size)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return adamw([unit.shard for unit in self.units], self.config, self.world)

    def autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.world.device.type, enabled=False)

    def forward_backward(self, batch: Batch, weight: float) -> Tensor:
        allocate(self.root)
        self.root.start_gather()
        self.prefetch(0)
        self.root.finish_gather()
        loss = super().forward_backward(batch, weight)
        for unit in self.units:
            free(unit)
        return loss

    def before_forward(self, index: int) -> None:
        """Wait for this block's parameters and ask for the next one's, to arrive during this one."""
        self.prefetch(index)
        self.blocks[index].finish_gather()
        self.prefetch(index + 1)

    def after_forward(self, index: int, y: Tensor) -> None:
        """Free the block, and gather it again when the gradient of its output arrives."""
        free(self.blocks[index])
        y.register_hook(lambda _: self.before_backward(index))

    def before_backward(self, index: int) -> None:
        """The same as before the forward pass, in the other direction."""
        self.prefetch(index)
        self.blocks[index].finish_gather()
        self.prefetch(index - 1)

    def prefetch(self, index: int) -> None:
        """Start to gather a block, unless there is none or it is there."""
        if 0 <= index < len(self.blocks) and not is_allocated(self.blocks[index]):
            allocate(self.blocks[index])
            self.blocks[index].start_gather()

    def on_gradient(self, unit: FlatUnit) -> None:
        """Called by autograd for each gradient."""
        if self.is_last_micro_step:
            unit.on_gradient()

    def synchronize_gradients(self) -> None:
        with span("grad_sync"):
            for unit in self.units:
                unit.finish_reduce_scatter()

    def expected(self) -> dict[str, Any]:
        ranks = self.world.size
        return expected_memory(self.elements, parameter_shards=ranks, gradient_shards=ranks, optimizer_shards=ranks)


def is_allocated(unit: FlatUnit) -> bool:
    """Whether the unit's full buffer has memory."""
    return unit.full.untyped_storage().size() > 0


def allocate(unit: FlatUnit) -> None:
    """Give the full buffer its memory back; every view of it, also one that autograd saved, is valid again."""
    unit.full.untyped_storage().resize_(unit.full.nbytes)


def free(unit: FlatUnit) -> None:
    """Release the full buffer's memory, but keep the tensors that point to it."""
    unit.full.untyped_storage().resize_(0)
