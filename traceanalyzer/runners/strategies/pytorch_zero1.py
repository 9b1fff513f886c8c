"""ZeRO stage 1 by PyTorch: DistributedDataParallel with a ZeroRedundancyOptimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer

from traceanalyzer.runners.memory_model import expected_memory
from traceanalyzer.runners.model import parameter_count
from traceanalyzer.runners.strategies.pytorch_ddp import PyTorchDDP


class PyTorchZero1(PyTorchDDP):
    """DDP's all-reduces, then a broadcast of each rank's share of the updated parameters."""

    def build_optimizer(self) -> torch.optim.Optimizer:
        return ZeroRedundancyOptimizer(
            self.parameters,
            optimizer_class=torch.optim.AdamW,
            lr=self.config.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=0.1,
            fused=self.world.is_cuda,
        )

    def expected(self) -> dict[str, Any]:
        return expected_memory(parameter_count(self.model), optimizer_shards=self.world.size)
