"""One rank as the baseline; data parallelism and ZeRO stages 1 to 3 by hand."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from traceanalyzer.runners.model import Batch
from traceanalyzer.runners.recording import span
from traceanalyzer.runners.strategies.base import Job, Strategy
from traceanalyzer.runners.world import World


class Single(Strategy):
    """Forward, backward, AdamW."""

    is_one_process = True


class SimpleDDP(Strategy):
    """Nothing overlaps: communication starts when the backward pass is over."""

    fewest_ranks = 2

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        for parameter in self.parameters:
            dist.broadcast(parameter.data, src=0)

    def synchronize_gradients(self) -> None:
        with span("grad_sync"):
            for parameter in self.parameters:
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)


class SimpleDDPGradientAccumulation(SimpleDDP):
    """The same all-reduces, spread over four times the work unless --accumulate says otherwise."""

    default_accumulate = 4


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


class SimpleDDPAsync(SimpleDDPHook):
    """One asynchronous all-reduce a parameter, waited for before the optimizer step."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.pending: list[dist.Work] = []

    def on_gradient(self, parameter: Tensor) -> None:
        if self.is_last_micro_step:
            work = dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, async_op=True)
            self.pending.append(work)

    def synchronize_gradients(self) -> None:
        with span("grad_sync"):
            for work in self.pending:
                work.wait()
            self.pending.clear()


BUCKET_BYTES = 25_000_000


class Bucket:
    """Gradients that live in one flat buffer; `missing` of them are not complete yet."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        sizes = [parameter.numel() for parameter in parameters]
        self.parameters, self.missing = parameters, len(parameters)
        self.flat = torch.zeros(sum(sizes), device=parameters[0].device)
        self.work: dist.Work | None = None
        for parameter, gradient in zip(parameters, self.flat.split(sizes), strict=True):
            parameter.grad = gradient.view_as(parameter)


class BucketDDPAsync(SimpleDDP):
    """Few large all-reduces instead of many small ones, each as early as its last gradient allows.

    Buckets are launched in the order of the list on every rank, although gradients may complete in another:
    collectives that two ranks launch in different orders would never meet.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        groups: list[list[nn.Parameter]] = [[]]
        for parameter in reversed(self.parameters):  # the last layer's gradients are complete first
            if groups[-1] and sum(one.nbytes for one in (*groups[-1], parameter)) > BUCKET_BYTES:
                groups.append([])
            groups[-1].append(parameter)
        self.buckets = [Bucket(group) for group in groups]
        self.next_bucket = 0
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(lambda _, bucket=bucket: self.on_gradient(bucket))

    def on_gradient(self, bucket: Bucket) -> None:
        """Called by autograd for each gradient; launches every bucket whose turn it is."""
        if not self.is_last_micro_step:
            return
        bucket.missing -= 1
        while self.next_bucket < len(self.buckets) and self.buckets[self.next_bucket].missing == 0:
            due = self.buckets[self.next_bucket]
            due.work = dist.all_reduce(due.flat, op=dist.ReduceOp.AVG, async_op=True)
            self.next_bucket += 1

    def synchronize_gradients(self) -> None:
        with span("grad_sync"):
            for bucket in self.buckets:
                assert bucket.work is not None
                bucket.work.wait()

    def update(self) -> None:
        self.optimizer.step()
        self.next_bucket = 0
        for bucket in self.buckets:
            # The gradients stay views of the flat buffer, so zeroing it is zeroing them.
            bucket.flat.zero_()
            bucket.missing = len(bucket.parameters)


# torch 2.13 renames both and deprecates the old names.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Zero1(SimpleDDP):
    """All-reduce every gradient, step the owned parameters, broadcast each from its owner."""

    zero_stage = 1

    def build_optimizer(self) -> torch.optim.Optimizer:
        # Largest first, each to the rank that owns least so far.
        owned_elements = [0] * self.world.size
        self.owners: dict[nn.Parameter, int] = {}
        for parameter in sorted(self.parameters, key=lambda one: -one.numel()):
            owner = min(range(self.world.size), key=owned_elements.__getitem__)
            self.owners[parameter] = owner
            owned_elements[owner] += parameter.numel()
        return self.adamw([one for one in self.parameters if self.owners[one] == self.world.rank])

    def update(self) -> None:
        self.optimizer.step()
        for parameter in self.parameters:
            parameter.grad = None
            dist.broadcast(parameter.data, src=self.owners[parameter])


class FlatUnit:
    """Parameters that are gathered and reduced together.

    `full` holds all of them, padded to a multiple of the world size, and the parameters are views of it.
    `shard` is this rank's slice in fp32, which the optimizer updates.
    """

    def __init__(self, parameters: list[nn.Parameter], world: World, full_dtype: torch.dtype) -> None:
        self.parameters, self.missing = parameters, len(parameters)
        sizes = [parameter.numel() for parameter in parameters]
        self.padding = -sum(sizes) % world.size
        master = self._flattened([parameter.data for parameter in parameters])
        self.full = master.to(full_dtype)
        # In one dtype the shard is a view of the full buffer: the optimizer then updates both.
        whole = self.full if full_dtype == master.dtype else master
        self.shard = nn.Parameter(whole.chunk(world.size)[world.rank])
        for parameter, view in zip(parameters, self.full.split([*sizes, self.padding]), strict=False):
            parameter.data = view.view_as(parameter)
        self._gather: dist.Work | None = None
        self._reduction: tuple[dist.Work, Tensor, Tensor] | None = None

    def start_gather(self) -> None:
        """Begin to fill `full` from every rank's shard; memory that was freed is given back.

        Every view of it, also one that autograd saved, is then valid again.
        """
        self.full.untyped_storage().resize_(self.full.nbytes)
        self._gather = all_gather(self.full, self.shard.data.to(self.full.dtype), async_op=True)

    def finish_gather(self) -> None:
        """Let the current stream wait for the gather, if one is under way."""
        if self._gather is not None:
            self._gather.wait()
            self._gather = None

    def free(self) -> None:
        """Release the full buffer's memory, but keep the tensors that point to it."""
        self.full.untyped_storage().resize_(0)

    def start_reduce_scatter(self) -> None:
        """Begin to add up the gradients over ranks."""
        self.missing = len(self.parameters)
        flat = self._flattened([one.grad for one in self.parameters if one.grad is not None]).float()
        for parameter in self.parameters:
            parameter.grad = None
        gradient = torch.empty_like(self.shard)
        work = reduce_scatter(gradient, flat, op=dist.ReduceOp.AVG, async_op=True)
        # The input is kept until the work is done: its memory must not be used again before.
        self._reduction = (work, flat, gradient)

    def finish_reduce_scatter(self) -> None:
        """Wait for this rank's slice of the mean gradient and hand it to the shard."""
        assert self._reduction is not None, "the backward pass left a unit without gradients"
        work, _, self.shard.grad = self._reduction
        work.wait()
        self._reduction = None

    def _flattened(self, tensors: list[Tensor]) -> Tensor:
        return torch.cat([*(tensor.flatten() for tensor in tensors), tensors[0].new_zeros(self.padding)])


class Zero2(Strategy):
    """One unit a block and one for the rest: a reduce-scatter and an all-gather each, every step."""

    fewest_ranks = 2
    zero_stage = 2

    def build_model(self, job: Job) -> nn.Module:
        model = job.model
        rest = [*model.embedding.parameters(), *model.head.parameters()]
        dtype = torch.bfloat16 if self.casts_parameters and job.config.dtype == "bf16" else torch.float32
        groups = [rest, *(list(block.parameters()) for block in model.blocks)]
        self.units = [FlatUnit(group, job.world, dtype) for group in groups]
        self.root, *self.blocks = self.units
        for unit in self.units:
            for parameter in unit.parameters:
                parameter.register_post_accumulate_grad_hook(lambda _, unit=unit: self.on_gradient(unit))
        return model

    def build_optimizer(self) -> torch.optim.Optimizer:
        return self.adamw([unit.shard for unit in self.units])

    def on_gradient(self, unit: FlatUnit) -> None:
        """Called by autograd for each gradient; the last one starts the unit's reduce-scatter."""
        if self.is_last_micro_step:
            unit.missing -= 1
            if not unit.missing:
                unit.start_reduce_scatter()

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

    zero_stage = 3
    casts_parameters = True
    gathers_ahead = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        for unit in self.units:
            unit.shard.data = unit.shard.data.clone()  # of its own memory, so that the full buffer can be freed
            unit.free()
        for index, block in enumerate(job.model.blocks):
            block.register_forward_pre_hook(lambda *_, index=index: self.use(index, index + 1))
            block.register_forward_hook(lambda _, __, y, index=index: self.after_forward(index, y))

    def on_gradient(self, unit: FlatUnit) -> None:
        super().on_gradient(unit)
        if self.is_last_micro_step and unit.missing == len(unit.parameters):
            unit.free()

    def forward_backward(self, batch: Batch, weight: float) -> Tensor:
        self.root.start_gather()
        if self.gathers_ahead:
            self.gather(0)
        self.root.finish_gather()
        loss = super().forward_backward(batch, weight)
        for unit in self.units:
            unit.free()
        return loss

    def use(self, index: int, following: int) -> None:
        """Wait for this block's parameters and ask for those of the following one, to arrive during this one."""
        self.gather(index)
        self.blocks[index].finish_gather()
        if self.gathers_ahead:
            self.gather(following)

    def after_forward(self, index: int, y: Tensor) -> None:
        """Free the block, and gather it again when the gradient of its output arrives."""
        self.blocks[index].free()
        y.register_hook(lambda _: self.use(index, index - 1))

    def gather(self, index: int) -> None:
        """Start to gather a block, unless there is none or it is there."""
        if 0 <= index < len(self.blocks) and not self.blocks[index].full.untyped_storage().size():
            self.blocks[index].start_gather()

    def update(self) -> None:
        Strategy.update(self)  # each block is gathered when it is used
