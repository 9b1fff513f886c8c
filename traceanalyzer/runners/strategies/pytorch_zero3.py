"""ZeRO stage 3 by PyTorch: FSDP2, each block sharded again after its forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from traceanalyzer.runners.memory_model import expected_memory
from traceanalyzer.runners.strategies.base import Job, Strategy, require_ranks

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch.distributed.device_mesh import DeviceMesh

    from traceanalyzer.runners.options import RunConfig


class PyTorchZero3(Strategy):
    """`fully_shard` a block, then the root, which stays gathered between forward and backward."""

    reshard_after_forward: ClassVar[bool] = True

    def __init__(self, job: Job) -> None:
        self.elements = sum(p.numel() for p in job.model.parameters())
        mesh = self.build_mesh(job)
        policy = MixedPrecisionPolicy()
        if job.config.dtype == "bf16":
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in job.model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=self.reshard_after_forward)
        self.fsdp: FSDPModule = fully_shard(job.model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
        super().__init__(job)

    @classmethod
    def param_dtype(cls, config: RunConfig) -> str:
        return config.dtype

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        require_ranks(config.strategy, world_size)

    def build_mesh(self, job: Job) -> DeviceMesh | None:
        """The ranks to shard over: all of them."""
        del job
        return None

    def micro_step(self) -> AbstractContextManager[object]:
        self.fsdp.set_requires_gradient_sync(self.is_last_micro_step)
        return super().micro_step()

    def autocast(self) -> AbstractContextManager[object]:
        # FSDP's policy already casts; autocast on top would keep second copies.
        return torch.autocast(self.world.device.type, enabled=False)

    def expected(self) -> dict[str, Any]:
        shards = self.shards()
        return expected_memory(
            self.elements,
            parameter_shards=shards if self.reshard_after_forward else 1,
            gradient_shards=shards,
            optimizer_shards=shards,
        )

    def shards(self) -> int:
        """Slices that each parameter is cut into."""
        return self.world.size
