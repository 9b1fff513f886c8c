"""Data parallelism by hand, from one all-reduce a parameter to overlapped buckets, and one rank as the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.base import Job, Strategy

if TYPE_CHECKING:
    from torch import Tensor, nn


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


@dataclass
class Bucket:
    """Gradients that live in one flat buffer; `missing` of them are not complete yet."""

    parameters: list[nn.Parameter]
    flat: Tensor
    missing: int
    work: dist.Work | None = None


class BucketDDPAsync(SimpleDDP):
    """Few large all-reduces instead of many small ones, each as early as its last gradient allows.

    Buckets are launched in the order of the list on every rank, although gradients may complete in another:
    collectives that two ranks launch in different orders would never meet.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.buckets = [_as_bucket(group) for group in _groups(self.parameters)]
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


def _groups(parameters: list[nn.Parameter]) -> list[list[nn.Parameter]]:
    # The last layer's gradients are complete first.
    groups: list[list[nn.Parameter]] = [[]]
    size_bytes = 0
    for parameter in reversed(parameters):
        if groups[-1] and size_bytes + parameter.nbytes > BUCKET_BYTES:
            groups.append([])
            size_bytes = 0
        groups[-1].append(parameter)
        size_bytes += parameter.nbytes
    return groups


def _as_bucket(parameters: list[nn.Parameter]) -> Bucket:
    flat = torch.zeros(sum(p.numel() for p in parameters), device=parameters[0].device)
    for parameter, gradient in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = gradient.view_as(parameter)
    return Bucket(parameters, flat, missing=len(parameters))
