"""DeepSpeed's ZeRO, where it is installed (`pip install deepspeed`)."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

import torch

from traceanalyzer.errors import UsageError
from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.base import STATE_BYTES, Job, Strategy

if TYPE_CHECKING:
    from torch import Tensor

    from traceanalyzer.runners.data import Batch
    from traceanalyzer.runners.options import RunConfig


class DeepSpeedZero3(Strategy):
    """An engine of DeepSpeed takes the passes and the step."""

    fewest_ranks = 2
    casts_parameters = True
    stage: ClassVar[int] = 3
    sharded = tuple(STATE_BYTES)

    def __init__(self, job: Job) -> None:
        if not job.world.is_cuda:
            os.environ.setdefault("DS_ACCELERATOR", "cpu")
        import deepspeed  # noqa: PLC0415 - not among what the extra installs

        super().__init__(job)
        settings = {
            "train_micro_batch_size_per_gpu": job.config.batch,
            "gradient_accumulation_steps": job.config.accumulate,
            "zero_optimization": {"stage": self.stage},
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

    stage = 2
    sharded = ("gradient", "optimizer")


class DeepSpeedZero1(DeepSpeedZero3):
    """Optimizer state is shared."""

    stage = 1
    sharded = ("optimizer",)
