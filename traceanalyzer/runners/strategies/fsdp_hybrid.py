"""Hybrid sharding: FSDP2 shards within a group of ranks and replicates over the groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from traceanalyzer.errors import UsageError
from traceanalyzer.runners.strategies.base import Job, require_ranks
from traceanalyzer.runners.strategies.pytorch_zero3 import PyTorchZero3

if TYPE_CHECKING:
    from traceanalyzer.runners.options import RunConfig


class FSDPHybrid(PyTorchZero3):
    """Parameters are gathered in groups of `--shard-size` ranks, gradients also all-reduced across groups.

    On as many ranks as one group has, the mesh's other dimension is 1 and nothing is replicated.
    """

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        require_ranks(config.strategy, world_size)
        if world_size % config.shard_size:
            raise UsageError(f"--shard-size {config.shard_size} does not divide the {world_size} ranks")

    def build_mesh(self, job: Job) -> DeviceMesh:
        groups = job.world.size // job.config.shard_size
        return init_device_mesh(
            job.world.device.type,
            (groups, job.config.shard_size),
            mesh_dim_names=("replicate", "shard"),
        )

    def shards(self) -> int:
        return self.config.shard_size

    def parallel(self) -> dict[str, Any]:
        return {**super().parallel(), "shard": self.config.shard_size}
