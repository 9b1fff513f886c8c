"""PyTorch's DistributedDataParallel."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel

from traceanalyzer.runners.strategies.base import Job, Strategy, require_ranks

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from traceanalyzer.runners.options import RunConfig


class PyTorchDDP(Strategy):
    """Buckets, overlap with the backward pass, gradients as views of the buckets."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.ddp = self.wrapped(job)
        self.model = self.ddp

    def wrapped(self, job: Job, **options: Any) -> DistributedDataParallel:
        """The model that exchanges its gradients."""
        device_ids = [job.world.device] if job.world.is_cuda else None
        return DistributedDataParallel(job.model, device_ids=device_ids, gradient_as_bucket_view=True, **options)

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        require_ranks(config.strategy, world_size)

    def micro_step(self) -> AbstractContextManager[object]:
        # Both passes belong inside: DDP decides in the forward pass whether the backward will reduce.
        return nullcontext() if self.is_last_micro_step else self.ddp.no_sync()
