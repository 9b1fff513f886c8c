"""Data parallelism and sharding by PyTorch (DDP, ZeroRedundancyOptimizer, FSDP2) and DeepSpeed, where installed."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from traceanalyzer.errors import UsageError
from traceanalyzer.runners.model import Batch
from traceanalyzer.runners.options import RunConfig
from traceanalyzer.runners.recording import span
from traceanalyzer.runners.strategies.base import Job, Strategy


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
        return self.adamw(self.masters)

    def comm_hook(self) -> tuple[Any, Callable[..., Any]]:
        return self.world.size, _mean_in_fp32

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


def _mean_in_fp32(ranks: int, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """The bucket's mean over ranks, added up in fp32."""
    total = bucket.buffer().float().div_(ranks)
    work = dist.all_reduce(total, async_op=True)
    assert work is not None
    return work.get_future().then(lambda _: bucket.buffer().copy_(total))


class PyTorchZero1(PyTorchDDP):
    """DDP's all-reduces, then a broadcast of each rank's share of the updated parameters."""

    zero_stage = 1

    def build_optimizer(self) -> torch.optim.Optimizer:
        # Imported here: the package runs deprecated code of its own when it is loaded, which no other strategy needs.
        from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415

        return ZeroRedundancyOptimizer(self.parameters, optimizer_class=torch.optim.AdamW, **self.adamw_options())


class PyTorchZero3(Strategy):
    """`fully_shard` a block, then the root, which stays gathered between forward and backward."""

    fewest_ranks = 2
    zero_stage = 3
    reshard_after_forward = True
    casts_parameters = True

    def build_model(self, job: Job) -> nn.Module:
        policy = MixedPrecisionPolicy()
        if job.config.dtype == "bf16":
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        mesh = self.build_mesh()
        for block in job.model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=self.reshard_after_forward)
        self.fsdp: FSDPModule = fully_shard(job.model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
        return job.model

    def build_mesh(self) -> DeviceMesh | None:
        """The ranks to shard over: all of them."""
        return None

    def micro_step(self) -> AbstractContextManager[object]:
        self.fsdp.set_requires_gradient_sync(self.is_last_micro_step)
        return super().micro_step()


class PyTorchZero2(PyTorchZero3):
    """One all-gather a unit and step, half of stage 3's, for the memory of the gathered parameters."""

    zero_stage = 2
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

    def build_mesh(self) -> DeviceMesh:
        shape = (self.world.size // self.config.shard_size, self.config.shard_size)
        return init_device_mesh(self.world.device.type, shape, mesh_dim_names=("replicate", "shard"))

    def shards(self) -> int:
        return self.config.shard_size

    def parallel(self) -> dict[str, Any]:
        return {**super().parallel(), "shard": self.config.shard_size}


class DeepSpeedZero3(Strategy):
    """An engine of DeepSpeed takes the passes and the step."""

    fewest_ranks = 2
    casts_parameters = True
    zero_stage = 3

    def __init__(self, job: Job) -> None:
        if not job.world.is_cuda:
            os.environ.setdefault("DS_ACCELERATOR", "cpu")
        import deepspeed  # noqa: PLC0415 - not among what the extra installs

        super().__init__(job)
        settings = {
            "train_micro_batch_size_per_gpu": job.config.batch,
            "gradient_accumulation_steps": job.config.accumulate,
            "zero_optimization": {"stage": self.zero_stage},
            "zero_allow_untested_optimizer": True,
            "bf16": {"enabled": job.config.dtype == "bf16"},
        }
        self.engine, *_ = deepspeed.initialize(
            model=job.model, optimizer=self.optimizer, config=settings, dist_init_required=False
        )

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        super().check(config, world_size)
        if find_spec("deepspeed") is None:
            raise UsageError(f"{config.strategy} needs DeepSpeed: pip install deepspeed")

    def step(self, micro_batches: list[Batch]) -> Tensor | None:
        losses = []
        for batch in micro_batches:
            with span("forward"):
                loss = self.engine(*batch)
            with span("backward"):
                self.engine.backward(loss)  # divides by the number of micro-steps
            with span("optimizer"):
                self.engine.step()  # steps behind the last one only
            losses.append(loss.detach())
        return torch.stack(losses).mean()


class DeepSpeedZero2(DeepSpeedZero3):
    """Gradients and optimizer state are shared."""

    zero_stage = 2


class DeepSpeedZero1(DeepSpeedZero3):
    """Optimizer state is shared."""

    zero_stage = 1
