"""Data parallelism and sharding by PyTorch: DDP, ZeroRedundancyOptimizer and FSDP2."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from traceanalyzer.errors import UsageError
from traceanalyzer.runners.strategies.base import STATE_BYTES, Job, Strategy, adamw, adamw_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor

    from traceanalyzer.runners.options import RunConfig


class PyTorchDDP(Strategy):
    """Buckets, overlap with the backward pass, gradients as views of the buckets."""

    fewest_ranks = 2

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        device_ids = [job.world.device] if job.world.is_cuda else None
        self.ddp = DistributedDataParallel(job.model, device_ids=device_ids, gradient_as_bucket_view=True)
        self.model = self.ddp
        if (hook := self.comm_hook()) is not None:
            self.ddp.register_comm_hook(*hook)

    def comm_hook(self) -> tuple[Any, Callable[..., Any]] | None:
        """State and function that exchange a bucket, where it is not DDP itself."""
        return None

    def micro_step(self) -> AbstractContextManager[object]:
        # Both passes belong inside: DDP decides in the forward pass whether the backward will reduce.
        return nullcontext() if self.is_last_micro_step else self.ddp.no_sync()


class PyTorchDDPBf16(PyTorchDDP):
    """Passes in bf16, gradients exchanged in fp32, AdamW on fp32 masters of the parameters, as by FSDP."""

    casts_parameters = True

    def build_optimizer(self) -> torch.optim.Optimizer:
        self.masters = [parameter.detach().clone().requires_grad_() for parameter in self.parameters]
        if self.config.dtype != "fp32":
            self.model.to(torch.bfloat16)
        return adamw(self.masters, self.config, self.world)

    def comm_hook(self) -> tuple[Any, Callable[..., Any]]:
        # Not the function itself: DDP compares its annotations, which are texts here, with its own classes.
        return self.world.size, lambda ranks, bucket: _mean_in_fp32(ranks, bucket)  # noqa: PLW0108 - see above

    def update(self) -> None:
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None
        super().update()
        with torch.no_grad():
            for master, parameter in zip(self.masters, self.parameters, strict=True):
                parameter.copy_(master)


class PyTorchDDPFp16(PyTorchDDP):
    """Gradients are exchanged in fp16: half the bytes."""

    def comm_hook(self) -> tuple[Any, Callable[..., Any]]:
        return None, default_hooks.fp16_compress_hook


class PyTorchDDPPowerSGD(PyTorchDDP):
    """Of each gradient matrix two thin factors are exchanged, and their error is added to the next step's gradient."""

    def comm_hook(self) -> tuple[Any, Callable[..., Any]]:
        # By default the first 1,000 steps are exchanged whole: longer than these runs.
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
        return state, powerSGD_hook.powerSGD_hook


def _mean_in_fp32(ranks: int, bucket: Any) -> torch.futures.Future[Tensor]:
    """The bucket's mean over ranks, added up in fp32."""
    total = bucket.buffer().float().div_(ranks)
    work = dist.all_reduce(total, async_op=True)
    assert work is not None
    return work.get_future().then(lambda _: bucket.buffer().copy_(total))


class PyTorchZero1(PyTorchDDP):
    """DDP's all-reduces, then a broadcast of each rank's share of the updated parameters."""

    sharded = ("optimizer",)

    def build_optimizer(self) -> torch.optim.Optimizer:
        # Imported here: the package runs deprecated code of its own when it is loaded, which no other strategy needs.
        from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415

        options = adamw_options(self.config, self.world)
        return ZeroRedundancyOptimizer(self.parameters, optimizer_class=torch.optim.AdamW, **options)


class PyTorchZero3(Strategy):
    """`fully_shard` a block, then the root, which stays gathered between forward and backward."""

    fewest_ranks = 2
    sharded = tuple(STATE_BYTES)
    reshard_after_forward: ClassVar[bool] = True
    casts_parameters = True

    def __init__(self, job: Job) -> None:
        mesh = self.build_mesh(job)
        policy = MixedPrecisionPolicy()
        if job.config.dtype == "bf16":
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in job.model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=self.reshard_after_forward)
        self.fsdp: FSDPModule = fully_shard(job.model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
        super().__init__(job)

    def build_mesh(self, job: Job) -> DeviceMesh | None:
        """The ranks to shard over: all of them."""
        del job
        return None

    def micro_step(self) -> AbstractContextManager[object]:
        self.fsdp.set_requires_gradient_sync(self.is_last_micro_step)
        return super().micro_step()


class PyTorchZero2(PyTorchZero3):
    """One all-gather a unit and step, half of stage 3's, for the memory of the gathered parameters."""

    sharded = ("gradient", "optimizer")
    reshard_after_forward = False


class FSDPHybrid(PyTorchZero3):
    """Parameters are gathered in groups of `--shard-size` ranks, gradients also all-reduced across groups.

    On as many ranks as one group has, the mesh's other dimension is 1 and nothing is replicated.
    """

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        super().check(config, world_size)
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
