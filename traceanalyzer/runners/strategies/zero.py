"""ZeRO stages 1 to 3 by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.base import STATE_BYTES, Job, Strategy, adamw
from traceanalyzer.runners.strategies.data_parallel import SimpleDDP

if TYPE_CHECKING:
    from collections.abc import Callable

    from traceanalyzer.runners.data import Batch
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


class Zero1(SimpleDDP):
    """All-reduce every gradient, step the owned parameters, broadcast each from its owner."""

    sharded = ("optimizer",)

    def build_optimizer(self) -> torch.optim.Optimizer:
        self.owners = _owners(self.parameters, self.world.size)
        owned = [p for p, owner in zip(self.parameters, self.owners, strict=True) if owner == self.world.rank]
        return adamw(owned, self.config, self.world)

    def update(self) -> None:
        self.optimizer.step()
        for parameter, owner in zip(self.parameters, self.owners, strict=True):
            parameter.grad = None
            dist.broadcast(parameter.data, src=owner)


def _owners(parameters: list[nn.Parameter], world_size: int) -> list[int]:
    """Each parameter's owner: largest first, to the rank that owns least so far."""
    owned_elements = [0] * world_size
    owners = [0] * len(parameters)
    for index in sorted(range(len(parameters)), key=lambda i: -parameters[i].numel()):
        owner = min(range(world_size), key=owned_elements.__getitem__)
        owners[index] = owner
        owned_elements[owner] += parameters[index].numel()
    return owners


class Zero2(Strategy):
    """One unit a block and one for the rest: a reduce-scatter and an all-gather each, every step."""

    fewest_ranks = 2
    sharded: ClassVar[tuple[str, ...]] = ("gradient", "optimizer")

    def __init__(self, job: Job) -> None:
        self.root, self.blocks = split_into_units(job.model, job.world.rank, job.world.size, self.full_dtype(job))
        self.units = [self.root, *self.blocks]
        for unit in self.units:
            for parameter in unit.parameters:
                parameter.register_post_accumulate_grad_hook(lambda _, unit=unit: self.on_gradient(unit))
        super().__init__(job)

    def full_dtype(self, job: Job) -> torch.dtype:
        """Element type of the gathered parameters."""
        del job
        return torch.float32

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


class Zero3(Zero2):
    """2 · blocks + 1 all-gathers a step: each block in forward and in backward, the root once.

    As FSDP does in mixed precision, parameters are gathered in bf16 and the model runs in bf16 without
    autocast, whose own bf16 copies of the weights would live until the backward pass and save nothing.
    """

    casts_parameters = True
    sharded = tuple(STATE_BYTES)
    gathers_ahead = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        for unit in self.units:
            unit.shard.data = unit.shard.data.clone()  # of its own memory, so that the full buffer can be freed
            unit.on_reduced = lambda unit=unit: free(unit)
            free(unit)
        for index, block in enumerate(job.model.blocks):
            block.register_forward_pre_hook(lambda *_, index=index: self.use(index, index + 1))
            block.register_forward_hook(lambda _, __, y, index=index: self.after_forward(index, y))

    def full_dtype(self, job: Job) -> torch.dtype:
        return torch.float32 if job.config.dtype == "fp32" else torch.bfloat16

    def forward_backward(self, batch: Batch, weight: float) -> Tensor:
        allocate(self.root)
        self.root.start_gather()
        if self.gathers_ahead:
            self.gather(0)
        self.root.finish_gather()
        loss = super().forward_backward(batch, weight)
        for unit in self.units:
            free(unit)
        return loss

    def use(self, index: int, following: int) -> None:
        """Wait for this block's parameters and ask for those of the following one, to arrive during this one."""
        self.gather(index)
        self.blocks[index].finish_gather()
        if self.gathers_ahead:
            self.gather(following)

    def after_forward(self, index: int, y: Tensor) -> None:
        """Free the block, and gather it again when the gradient of its output arrives."""
        free(self.blocks[index])
        y.register_hook(lambda _: self.use(index, index - 1))

    def gather(self, index: int) -> None:
        """Start to gather a block, unless there is none or it is there."""
        if 0 <= index < len(self.blocks) and not self.blocks[index].full.untyped_storage().size():
            allocate(self.blocks[index])
            self.blocks[index].start_gather()

    def update(self) -> None:
        Strategy.update(self)  # each block is gathered when it is used


def allocate(unit: FlatUnit) -> None:
    """Give the full buffer its memory back; every view of it, also one that autograd saved, is valid again."""
    unit.full.untyped_storage().resize_(unit.full.nbytes)


def free(unit: FlatUnit) -> None:
    """Release the full buffer's memory, but keep the tensors that point to it."""
    unit.full.untyped_storage().resize_(0)
