"""What a strategy is: one way to take an optimizer step with the ranks at hand."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from traceanalyzer.errors import UsageError
from traceanalyzer.runners.model import Batch, Block, Transformer, build_model, parameter_count
from traceanalyzer.runners.options import RunConfig
from traceanalyzer.runners.recording import span
from traceanalyzer.runners.world import World

STATE_BYTES = {"optimizer": 8, "gradient": 4, "parameter": 4}
"""Of a parameter in fp32 training with AdamW, whose two moments are fp32; in the order in which ZeRO shards them."""


@dataclass(frozen=True)
class Job:
    """What a strategy is built from."""

    config: RunConfig
    world: World

    @cached_property
    def model(self) -> Transformer:
        """The model on this rank's device, the same on every rank; built when first asked for."""
        model = build_model(self.config.model, self.world.device, self.config.seed)
        for block in model.blocks:
            assert isinstance(block, Block)
            block.is_checkpointed = self.config.checkpoint_activations
            if self.config.compile:
                # One compilation serves all blocks; hooks, ranges and checkpoints stay outside of it.
                block.body = torch.compile(block.body)  # type: ignore[method-assign]
        return model


class Strategy:
    """Plain training on one rank's data; a strategy overrides what it does differently."""

    fewest_ranks = 1
    is_one_process = False
    default_accumulate = 1
    # Parts that a batch is cut into; the default batch is so many times the preset's.
    default_microbatches = 1
    default_learning_rate = 3e-4
    # Model FLOPs per parameter and token: 2 for a forward pass, 4 for a backward.
    flops_per_parameter = 6
    is_data_parallel = True
    # Whether whole parameters are cast before they are computed with, so that norms and the residual stream are of that
    # type too; autocast, which casts each use, would then keep second copies.
    casts_parameters = False
    # How many of STATE_BYTES are cut into `shards` parts.
    zero_stage = 0
    # A strategy that only moves bytes trains nothing.
    has_model = True

    def __init__(self, job: Job) -> None:
        self.config, self.world = job.config, job.world
        self.model = self.build_model(job)
        self.parameters = list(self.model.parameters())
        self.elements = parameter_count(self.model)
        self.is_last_micro_step = True
        self.optimizer = self.build_optimizer()

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        """Refuse a job that this strategy cannot run; called before anything is built.

        Raises:
            UsageError: it has too few ranks or too many, or settings that do not fit.
        """
        if cls.is_one_process and world_size != 1:
            raise UsageError(f"{config.strategy} runs in one process, not in {world_size}: start it without torchrun")
        if world_size < cls.fewest_ranks:
            raise UsageError(
                f"{config.strategy} needs at least {cls.fewest_ranks} ranks, this job has {world_size}: start it with "
                f"torchrun --standalone --nproc_per_node={cls.fewest_ranks} -m traceanalyzer.runners …"
            )

    def build_model(self, job: Job) -> nn.Module:
        """What this rank trains."""
        return job.model

    def build_optimizer(self) -> torch.optim.Optimizer:
        """AdamW over what this rank updates."""
        return self.adamw(self.parameters)

    def step(self, micro_batches: list[Batch]) -> Tensor | None:
        """One optimizer step; the mean loss over this rank's samples, None on a rank that computes none."""
        losses = []
        for index, batch in enumerate(micro_batches):
            self.is_last_micro_step = index == len(micro_batches) - 1
            with self.micro_step():
                losses.append(self.forward_backward(batch, 1 / len(micro_batches)))
        self.synchronize_gradients()
        with span("optimizer"):
            self.update()
        return torch.stack(losses).mean()

    def micro_step(self) -> AbstractContextManager[object]:
        """Around the forward and backward pass of one micro-batch."""
        return nullcontext()

    def forward_backward(self, batch: Batch, weight: float) -> Tensor:
        """Add `weight` times the batch's gradients; the batch's loss, detached."""
        with span("forward"), self.autocast():
            loss: Tensor = self.model(*batch)
        with span("backward"):
            (loss * weight).backward()
        return loss.detach()

    def synchronize_gradients(self) -> None:
        """After the last micro-step's backward: nothing, on one rank."""

    def update(self) -> None:
        """Apply and drop the gradients."""
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def autocast(self) -> AbstractContextManager[object]:
        """Matrix products in bf16 when asked for; parameters stay fp32."""
        if self.casts_parameters:
            return torch.autocast(self.world.device.type, enabled=False)
        if self.config.dtype == "fp32":
            return nullcontext()
        return torch.autocast(self.world.device.type, dtype=torch.bfloat16)

    def parallel(self) -> dict[str, Any]:
        """Sizes of the parallel dimensions, for run.json."""
        return parallel_sizes(dp=self.world.size if self.is_data_parallel else 1)

    def expected(self) -> dict[str, Any]:
        """The memory that this rank's parameters, gradients and optimizer state should take.

        This is the arithmetic of the ZeRO paper. Activations, bf16 copies and communication buffers come on top.
        """
        return {
            f"{part}_bytes": size * self.elements // (self.shards() if place < self.zero_stage else 1)
            for place, (part, size) in enumerate(STATE_BYTES.items())
        }

    def shards(self) -> int:
        """Parts that what is sharded is cut into."""
        return self.world.size

    def transfer(self) -> dict[str, Any] | None:
        """What a strategy that moves data between CPU and GPUs moves in a step, for run.json."""
        return None

    def adamw(self, parameters: Iterable[Tensor]) -> torch.optim.AdamW:
        """AdamW in one fused kernel where there is a GPU: a loop over parameters would be CPU-bound."""
        return torch.optim.AdamW(parameters, **self.adamw_options())

    def adamw_options(self) -> dict[str, Any]:
        """The optimizer's settings, one set for all strategies."""
        return {
            "lr": self.config.learning_rate,
            "betas": (0.9, 0.95),
            "eps": self.config.adam_eps,
            "weight_decay": 0.1,
            "fused": self.world.is_cuda,
        }


def parallel_sizes(**sizes: Any) -> dict[str, Any]:
    """run.json's `parallel`: degree of data, tensor and pipeline parallelism, and a pipeline's schedule."""
    return {"dp": 1, "tp": 1, "pp": 1, "microbatches": None, "split": None, **sizes}
