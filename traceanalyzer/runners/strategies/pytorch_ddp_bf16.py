"""PyTorch's DistributedDataParallel with bf16 parameters: differs from FSDP in the sharding only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from traceanalyzer.runners.strategies.base import adamw
from traceanalyzer.runners.strategies.pytorch_ddp import PyTorchDDP

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor
    from torch.nn.parallel import DistributedDataParallel

    from traceanalyzer.runners.options import RunConfig
    from traceanalyzer.runners.strategies.base import Job


class PyTorchDDPBf16(PyTorchDDP):
    """Passes in bf16, gradients exchanged in fp32, AdamW on fp32 masters of the parameters, as by FSDP."""

    def build_optimizer(self) -> torch.optim.Optimizer:
        self.masters = [parameter.detach().clone().requires_grad_() for parameter in self.parameters]
        return adamw(self.masters, self.config, self.world)

    def wrapped(self, job: Job, **options: Any) -> DistributedDataParallel:
        if job.config.dtype != "fp32":
            job.model.to(torch.bfloat16)
        ddp = super().wrapped(job, **options)
        # Not the function itself: DDP compares its annotations, which are texts here, with its own classes.
        ddp.register_comm_hook(job.world.size, lambda ranks, bucket: _mean_in_fp32(ranks, bucket))  # noqa: PLW0108 - see above
        return ddp

    @classmethod
    def param_dtype(cls, config: RunConfig) -> str:
        return config.dtype

    def autocast(self) -> AbstractContextManager[object]:
        # The parameters are bf16 already; autocast on top would keep second copies.
        return torch.autocast(self.world.device.type, enabled=False)

    def update(self) -> None:
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None
        super().update()
        with torch.no_grad():
            for master, parameter in zip(self.masters, self.parameters, strict=True):
                parameter.copy_(master)


def _mean_in_fp32(ranks: int, bucket: Any) -> torch.futures.Future[Tensor]:
    """The bucket's mean over ranks, added up in fp32."""
    total = bucket.buffer().float().div_(ranks)
    work = dist.all_reduce(total, async_op=True)
    assert work is not None
    return work.get_future().then(lambda _: bucket.buffer().copy_(total))
