"""Model parallelism by hand: a pipeline's stages under three schedules, and tensor parallelism as in Megatron."""

from collections import deque
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.functional import linear

from traceanalyzer.errors import UsageError
from traceanalyzer.runners.model import Batch, Block, Transformer, run_blocks
from traceanalyzer.runners.options import RunConfig
from traceanalyzer.runners.recording import span
from traceanalyzer.runners.strategies.base import Job, Strategy, parallel_sizes
from traceanalyzer.runners.world import World


class Stage(nn.Module):
    """Consecutive blocks, with the embedding on the first stage and the head on the last."""

    def __init__(self, model: Transformer, split: tuple[int, ...], stage: int) -> None:
        super().__init__()
        self.first_block = sum(split[:stage])
        self.embedding = model.embedding if stage == 0 else None
        self.blocks = model.blocks[self.first_block : self.first_block + split[stage]]
        self.head = model.head if stage == len(split) - 1 else None

    def forward(self, received: Any, batch: Batch) -> Any:
        """The activation for the next stage, or the loss."""
        x = received if self.embedding is None else self.embedding(batch.tokens)
        x = run_blocks(enumerate(self.blocks, self.first_block), x)
        return x if self.head is None else self.head(x, batch.targets)


class GPipe(Strategy):
    """One stage a rank, one batch for all of them, cut into M microbatches, whose activations are all in memory.

    With S stages the bubble is (S−1)/(M+S−1).
    """

    fewest_ranks = 2
    is_data_parallel = False
    default_microbatches = 4

    def __init__(self, job: Job) -> None:
        self.split = stage_split(job.config, job.world.size)
        self.is_last = job.world.rank == job.world.size - 1
        self.in_flight: deque[tuple[Tensor | None, Tensor]] = deque()
        self.losses: list[Tensor] = []
        self.sends: list[tuple[dist.Work, Tensor]] = []
        super().__init__(job)

    def build_model(self, job: Job) -> nn.Module:
        return Stage(job.model, self.split, job.world.rank)

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        super().check(config, world_size)
        stage_split(config, world_size)
        if config.accumulate > 1:
            raise UsageError("a pipeline accumulates over its microbatches: use --microbatches, not --accumulate")
        if config.batch % cls.microbatch_count(config):
            raise UsageError(f"--microbatches {config.microbatches} does not divide --batch {config.batch}")

    @classmethod
    def microbatch_count(cls, config: RunConfig) -> int:
        """Microbatches a step."""
        return config.microbatches

    def step(self, micro_batches: list[Batch]) -> Tensor | None:
        (batch,) = micro_batches
        count = self.microbatch_count(self.config)
        self.losses.clear()
        self.run_schedule([Batch(*part) for part in zip(*(each.chunk(count) for each in batch), strict=True)])
        for work, _ in self.sends:
            work.wait()
        self.sends.clear()
        with span("optimizer"):
            self.update()
        return torch.stack(self.losses).mean() if self.is_last else None

    def forwards_ahead(self, count: int) -> int:
        """Forward passes before the first backward pass: of all `count` microbatches."""
        return count

    def run_schedule(self, microbatches: list[Batch]) -> None:
        """Forward passes ahead, then a forward and a backward pass in turn, then the other backward passes.

        In turn each exchange pairs the send of one direction with the receive of the other.
        """
        count = len(microbatches)
        ahead = self.forwards_ahead(count)
        for index in range(ahead):
            received = self.receive_activation(microbatches[index])
            self.exchange((dist.isend, self.forward_microbatch(index, microbatches[index], received), 1))
        received = self.receive_activation(microbatches[ahead]) if ahead < count else None
        for index in range(ahead, count):
            batch = microbatches[index]
            output = self.forward_microbatch(index, batch, received)
            gradient = self.output_gradient(batch)
            self.exchange((dist.isend, output, 1), (dist.irecv, gradient, 1))
            sent = self.backward_microbatch(index - ahead, count, gradient)
            received = self.activation(batch) if index + 1 < count else None
            self.exchange((dist.isend, sent, -1), (dist.irecv, received, -1))
        for index in range(count - ahead, count):
            gradient = self.output_gradient(microbatches[index])
            self.exchange((dist.irecv, gradient, 1))
            self.exchange((dist.isend, self.backward_microbatch(index, count, gradient), -1))

    def forward_microbatch(self, index: int, batch: Batch, received: Tensor | None) -> Tensor | None:
        """Compute a microbatch's output and keep it for its backward pass; what the next stage gets of it."""
        with span(f"forward mb{index}"), self.autocast():
            output: Tensor = self.model(received, batch)
        self.in_flight.append((received, output))
        if not self.is_last:
            return output.detach()
        self.losses.append(output.detach())
        return None

    def backward_microbatch(self, index: int, count: int, gradient: Tensor | None) -> Tensor | None:
        """Backward of the oldest microbatch in flight; the gradient for the stage before."""
        received, output = self.in_flight.popleft()
        with span(f"backward mb{index}"):
            if self.is_last:
                (output / count).backward()
            else:
                torch.autograd.backward(output, gradient)
        return None if received is None else received.grad

    def exchange(self, *wanted: tuple[Any, Tensor | None, int]) -> None:
        """Start sends to, and wait for receives from, the stage so many further on, all in one group.

        Separate operations could deadlock: two neighbours that both send first wait for each other.
        """
        operations = [
            dist.P2POp(kind, tensor, self.world.rank + step) for kind, tensor, step in wanted if tensor is not None
        ]
        if not operations:
            return
        with span("p2p"):
            works = dist.batch_isend_irecv(operations)
            if any(operation.op is dist.irecv for operation in operations):
                for work in works:
                    work.wait()
            else:
                # A send needs no wait before the end of the step, only its tensor kept alive.
                self.sends += zip(works, (operation.tensor for operation in operations), strict=False)

    def activation(self, batch: Batch) -> Tensor | None:
        """Memory for what the stage before sends."""
        return self._residual_stream(batch).requires_grad_() if self.world.rank else None

    def output_gradient(self, batch: Batch) -> Tensor | None:
        """Memory for the gradient that the stage after sends."""
        return None if self.is_last else self._residual_stream(batch)

    def _residual_stream(self, batch: Batch) -> Tensor:
        """In fp32, as autocast leaves it."""
        return torch.empty((*batch.tokens.shape, self.config.model.d_model), device=self.world.device)

    def receive_activation(self, batch: Batch) -> Tensor | None:
        """What the stage before sends."""
        received = self.activation(batch)
        self.exchange((dist.irecv, received, -1))
        return received

    def parallel(self) -> dict[str, Any]:
        return parallel_sizes(
            pp=self.world.size, microbatches=self.microbatch_count(self.config), split=list(self.split)
        )


def stage_split(config: RunConfig, world_size: int) -> tuple[int, ...]:
    """Blocks a stage: --split, else as even as it goes.

    Raises:
        UsageError: the split has another number of stages than there are ranks, or of blocks than layers.
    """
    layers = config.model.layers
    if config.split is None:
        if layers < world_size:
            raise UsageError(f"{layers} layers are too few for {world_size} stages: raise --layers")
        return tuple(layers // world_size + (stage < layers % world_size) for stage in range(world_size))
    if len(config.split) != world_size or sum(config.split) != layers:
        raise UsageError(
            f"--split {','.join(map(str, config.split))} has {len(config.split)} stages and {sum(config.split)} "
            f"blocks, the job has {world_size} ranks and {layers} layers: both must agree"
        )
    return config.split


class NaivePipeline(GPipe):
    """GPipe with one microbatch."""

    @classmethod
    def microbatch_count(cls, config: RunConfig) -> int:
        del config
        return 1


class OneForwardOneBackward(GPipe):
    """GPipe's bubble, but a stage holds the activations of at most S microbatches, not of all M."""

    def forwards_ahead(self, count: int) -> int:
        return min(self.world.size - self.world.rank - 1, count)


class TensorParallel(Strategy):
    """Every rank computes its heads and hidden units of every block, on the same batch.

    Two all-reduces a block in the forward pass and two in the backward, all of them exposed: the next
    operation needs their result. Embedding, norms and head are computed by every rank alike.
    """

    fewest_ranks = 2
    is_data_parallel = False

    def build_model(self, job: Job) -> nn.Module:
        for block in job.model.blocks:
            assert isinstance(block, Block)
            for part, by_output, by_input in ((block.attention, "qkv", "proj"), (block.mlp, "up", "down")):
                for name, is_by_output in ((by_output, True), (by_input, False)):
                    setattr(part, name, OwnPart(getattr(part, name), job.world, is_by_output=is_by_output))
        return job.model

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
