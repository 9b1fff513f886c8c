"""Tensor parallelism by hand, as in Megatron: heads and hidden units are shared out over the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import linear

from traceanalyzer.errors import UsageError
from traceanalyzer.runners.model import Block
from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.base import Job, Strategy, parallel_sizes

if TYPE_CHECKING:
    from traceanalyzer.runners.options import RunConfig
    from traceanalyzer.runners.world import World


class TensorParallel(Strategy):
    """Every rank computes its heads and hidden units of every block, on the same batch.

    Two all-reduces a block in the forward pass and two in the backward, all of them exposed: the next
    operation needs their result. Embedding, norms and head are computed by every rank alike.
    """

    fewest_ranks = 2
    is_data_parallel = False

    def __init__(self, job: Job) -> None:
        for block in job.model.blocks:
            assert isinstance(block, Block)
            attention, mlp = block.attention, block.mlp
            attention.qkv, mlp.up = (OwnPart(layer, job.world, is_by_output=True) for layer in (attention.qkv, mlp.up))
            attention.proj, mlp.down = (
                OwnPart(layer, job.world, is_by_output=False) for layer in (attention.proj, mlp.down)
            )
        super().__init__(job)

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        super().check(config, world_size)
        if config.model.heads % world_size:
            raise UsageError(f"{config.model.heads} heads cannot be shared evenly over {world_size} ranks")

    def parallel(self) -> dict[str, Any]:
        return parallel_sizes(tp=self.world.size)


class OwnPart(nn.Module):
    """This rank's features of a linear layer.

    By output the backward pass sums the input's gradient over the ranks, by input the forward pass the outputs.
    """

    def __init__(self, whole: nn.Module, world: World, *, is_by_output: bool) -> None:
        super().__init__()
        self.is_by_output = is_by_output
        part = whole.get_parameter("weight").chunk(world.size, dim=0 if is_by_output else 1)[world.rank]
        self.weight = nn.Parameter(part.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        if self.is_by_output:
            return linear(_AllReduce.apply(x, False), self.weight)
        return _AllReduce.apply(linear(x, self.weight), True)


class _AllReduce(Function):
    """The sum over the ranks in one of the passes, and nothing in the other."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, in_forward: bool) -> Tensor:
        ctx.in_forward = in_forward
        return _summed(x) if in_forward else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] if ctx.in_forward else _summed(gradients[0]), None


def _summed(x: Tensor) -> Tensor:
    summed = x.contiguous().clone()
    with span("tp_all_reduce"):
        dist.all_reduce(summed)
    return summed
