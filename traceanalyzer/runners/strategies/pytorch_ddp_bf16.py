"""PyTorch's DistributedDataParallel with bf16 parameters: differs from FSDP in the sharding only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel.distributed import _MixedPrecision

from traceanalyzer.errors import UsageError
from traceanalyzer.runners.strategies.pytorch_ddp import PyTorchDDP

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch.nn.parallel import DistributedDataParallel

    from traceanalyzer.runners.options import RunConfig
    from traceanalyzer.runners.strategies.base import Job


class PyTorchDDPBf16(PyTorchDDP):
    """fp32 parameters that are cast as a whole before the forward pass, and gradients exchanged in fp32, as by FSDP."""

    def wrapped(self, job: Job, **options: Any) -> DistributedDataParallel:
        return super().wrapped(job, **_options(job.config), **options)

    @classmethod
    def param_dtype(cls, config: RunConfig) -> str:
        return config.dtype

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        super().check(config, world_size)
        if config.device == "cpu" and config.dtype != "fp32":
            raise UsageError("PyTorch's DistributedDataParallel casts parameters on GPUs only: use --dtype fp32")

    def autocast(self) -> AbstractContextManager[object]:
        # DDP has cast the parameters already; autocast on top would keep second copies.
        return torch.autocast(self.world.device.type, enabled=False)


def _options(config: RunConfig) -> dict[str, Any]:
    if config.dtype == "fp32":
        return {}
    # PyTorch documents it under a private name only.
    return {"mixed_precision": _MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
