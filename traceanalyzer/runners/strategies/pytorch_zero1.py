"""ZeRO stage 1 by PyTorch: DistributedDataParallel with a ZeroRedundancyOptimizer."""

from __future__ import annotations

from typing import Any

import torch

from traceanalyzer.runners.memory_model import expected_memory
from traceanalyzer.runners.model import parameter_count
from traceanalyzer.runners.strategies.base import adamw_options
from traceanalyzer.runners.strategies.pytorch_ddp import PyTorchDDP


class PyTorchZero1(PyTorchDDP):
    """DDP's all-reduces, then a broadcast of each rank's share of the updated parameters."""

    def build_optimizer(self) -> torch.optim.Optimizer:
        # Imported here: the package runs deprecated code of its own when it is loaded, which no other strategy needs.
        from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415

        options = adamw_options(self.config, self.world)
        return ZeroRedundancyOptimizer(self.parameters, optimizer_class=torch.optim.AdamW, **options)

    def expected(self) -> dict[str, Any]:
        return expected_memory(parameter_count(self.model), optimizer_shards=self.world.size)
