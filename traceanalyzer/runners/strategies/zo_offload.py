"""Offloaded zeroth-order training: two forward passes a step, blocks on the host except while they are used.

Each block is uploaded, computed and offloaded on a stream of its own for each of the three, so block k+1
uploads and block k−1 offloads while block k computes. With `--slice-params` each rank keeps and uploads 1/n
of every block and the ranks all-gather it over the link between the GPUs, on a fourth stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from traceanalyzer.errors import UsageError
from traceanalyzer.runners.lanes import Lane, pinned_empty
from traceanalyzer.runners.model import parameter_count
from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.base import STATE_BYTES, Job, Strategy
from traceanalyzer.runners.strategies.zero import all_gather

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceanalyzer.runners.data import Batch
    from traceanalyzer.runners.options import RunConfig


@dataclass
class HostBlock:
    """A block's parameters, or this rank's slice of them, in pinned host memory."""

    host: Tensor
    is_offloaded: torch.cuda.Event | None = None


@dataclass
class Slot:
    """GPU memory for one block at a time; `own` is the part of `flat` that this rank uploads."""

    flat: Tensor
    own: Tensor
    is_uploaded: torch.cuda.Event | None = None
    is_computed: torch.cuda.Event | None = None
    is_free: torch.cuda.Event | None = None


def new_slot(elements: int, rank: int, ranks: int, device: torch.device) -> Slot:
    """A slot for `elements` parameters, padded to a multiple of the ranks that share them out."""
    flat = torch.zeros(elements + -elements % ranks, device=device)
    return Slot(flat, flat.chunk(ranks)[rank])


def move_to_host(block: nn.Module, slot: Slot, device: torch.device) -> HostBlock:
    """Copy this rank's part of the block to the host and let go of its memory on the device."""
    with torch.no_grad():
        flat = torch.cat([parameter.flatten() for parameter in block.parameters()])
        slot.flat[: len(flat)] = flat
        host = pinned_empty(len(slot.own), device)
        host.copy_(slot.own)
    for parameter in block.parameters():
        parameter.data = parameter.data.new_empty(0)
    return HostBlock(host)


def point_to(block: nn.Module, shapes: list[torch.Size], flat: Tensor) -> None:
    """Make the block's parameters views of `flat`."""
    views = flat.split([shape.numel() for shape in shapes])
    for parameter, shape, view in zip(block.parameters(), shapes, views, strict=True):
        parameter.data = view.view(shape)


PERTURBATION = 1e-3
SLOTS = 3  # one block is uploaded, one computed, one offloaded


class ZerothOrderOffload(Strategy):
    """MeZO's two-point estimate, with each update applied when its block is next on the GPU.

    The projected gradient g = (loss(θ + εz) − loss(θ − εz)) / 2ε is known only after the last block, so block k
    takes its update θ −= lr · g · z at the next step's upload, as in ZO2. z comes from a seed, never from memory.
    """

    flops_per_parameter = 4  # two forward passes
    default_learning_rate = 1e-6  # the estimate is as noisy as the model is large

    def __init__(self, job: Job) -> None:
        self.config, self.world = job.config, job.world
        # Autocast would otherwise cache the bf16 copy of one block's weights and use it for all.
        self.model = self.transformer = job.model.requires_grad_(requires_grad=False)
        device = job.world.device
        self.ranks = job.world.size if job.config.slice_params else 1
        self.slots = self._new_slots(device)
        self.block = job.model.blocks[0]
        self.shapes = [parameter.shape for parameter in self.block.parameters()]
        self.host_blocks = [move_to_host(block, self.slots[0], device) for block in job.model.blocks]
        self.compute = Lane(device, is_current=True)
        self.upload, self.exchange, self.offload = Lane(device), Lane(device), Lane(device)
        self.generator = torch.Generator(device)
        self.step_index = 0
        self.projected_gradient = torch.zeros((), device=device)

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        del world_size
        if config.accumulate > 1:
            raise UsageError(f"{config.strategy} has no gradients to accumulate: leave --accumulate out, raise --batch")

    @torch.no_grad()
    def step(self, micro_batches: list[Batch]) -> Tensor | None:
        (batch,) = micro_batches
        with span("forward"), self.autocast():
            plus, minus = self._both_losses(batch)
        with span("grad_sync"):
            gradient = (plus - minus) / (2 * PERTURBATION)
            if self.world.size > 1:
                dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
        self.projected_gradient = gradient
        self.step_index += 1
        return (plus + minus) / 2

    def _both_losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """loss(θ + εz) and loss(θ − εz), both carried through each block while it is on the GPU."""
        embedding, head = self.transformer.embedding, self.transformer.head
        # Directions are drawn by step and key: blocks have the first ones, then the parameters that stay on the GPU.
        key = len(self.host_blocks)
        self._start_upload(0)
        plus, minus = (embedding(batch.tokens) for _ in self._perturbed(embedding, key))
        for index in range(len(self.host_blocks)):
            self._start_upload(index + 1)
            plus, minus = self._compute_block(index, plus, minus)
            self._start_offload(index)
        states, key = iter((plus, minus)), key + len(list(embedding.parameters()))
        plus, minus = (head(next(states), batch.targets) for _ in self._perturbed(head, key))
        return plus, minus

    def _start_upload(self, index: int) -> None:
        if index == len(self.host_blocks):
            return
        block, slot = self.host_blocks[index], self.slots[index % SLOTS]
        with span(f"upload block_{index}"), self.upload.queue():
            self.upload.wait_for(slot.is_free)
            self.upload.wait_for(block.is_offloaded)
            slot.own.copy_(block.host, non_blocking=True)
        slot.is_uploaded = self.upload.mark()
        if self.ranks > 1:
            with span(f"exchange block_{index}"), self.exchange.queue():
                self.exchange.wait_for(slot.is_uploaded)
                all_gather(slot.flat, slot.own)
            slot.is_uploaded = self.exchange.mark()

    def _compute_block(self, index: int, plus: Tensor, minus: Tensor) -> tuple[Tensor, Tensor]:
        slot = self.slots[index % SLOTS]
        self.compute.wait_for(slot.is_uploaded)
        with span(f"block_{index}"):
            weights = slot.flat[: self.elements]
            self._apply_update(weights, index)
            perturbation = self._direction(weights, index, self.step_index).mul_(PERTURBATION)
            point_to(self.block, self.shapes, weights + perturbation)
            plus = self.block(plus)
            point_to(self.block, self.shapes, weights - perturbation)
            minus = self.block(minus)
        slot.is_computed = self.compute.mark()
        return plus, minus

    def _start_offload(self, index: int) -> None:
        block, slot = self.host_blocks[index], self.slots[index % SLOTS]
        with span(f"offload block_{index}"), self.offload.queue():
            self.offload.wait_for(slot.is_computed)
            block.host.copy_(slot.own, non_blocking=True)
        slot.is_free = block.is_offloaded = self.offload.mark()

    def _perturbed(self, module: nn.Module, key: int) -> Iterator[None]:
        """Twice, for a module that stays on the GPU: with its weights at θ + εz, then at θ − εz."""
        for index, parameter in enumerate(module.parameters()):
            self._apply_update(parameter.data, key + index)
        originals = [parameter.data for parameter in module.parameters()]
        for sign in (1, -1):
            for index, (parameter, original) in enumerate(zip(module.parameters(), originals, strict=True)):
                direction = self._direction(original, key + index, self.step_index)
                parameter.data = original + sign * PERTURBATION * direction
            yield
        for parameter, original in zip(module.parameters(), originals, strict=True):
            parameter.data = original

    def _apply_update(self, weights: Tensor, key: int) -> None:
        """The update of the step before, whose direction is drawn again from its seed."""
        if self.step_index > 0:
            direction = self._direction(weights, key, self.step_index - 1)
            weights.addcmul_(direction, self.projected_gradient, value=-self.config.learning_rate)

    def _direction(self, like: Tensor, key: int, step: int) -> Tensor:
        """The direction z of one block or resident parameter: the same on every rank, whatever the slicing."""
        seed = (self.config.seed * 1_000_003 + step) * 10_007 + key
        self.generator.manual_seed(seed % 2**63)
        return torch.randn(like.shape, generator=self.generator, device=like.device)

    def _new_slots(self, device: torch.device) -> list[Slot]:
        self.elements = parameter_count(self.transformer.blocks[0])
        rank = self.world.rank if self.ranks > 1 else 0
        return [new_slot(self.elements, rank, self.ranks, device) for _ in range(SLOTS)]

    def expected(self) -> dict[str, Any]:
        """The embedding, the head and the slots; a forward pass needs no gradients and no optimizer state."""
        resident = parameter_count(self.transformer.embedding) + parameter_count(self.transformer.head)
        slots = SLOTS * self.slots[0].flat.numel()
        return {
            "parameter_bytes": STATE_BYTES["parameter"] * (resident + slots),
            "gradient_bytes": None,
            "optimizer_bytes": None,
        }

    def transfer(self) -> dict[str, Any]:
        moved = sum(block.host.nbytes for block in self.host_blocks)
        return {
            "uploaded_bytes_per_step": moved,
            "offloaded_bytes_per_step": moved,
            "gathered_bytes_per_step": len(self.host_blocks) * self.slots[0].flat.nbytes if self.ranks > 1 else None,
            "is_sliced": self.ranks > 1,
            "is_pinned": self.host_blocks[0].host.is_pinned() if self.world.is_cuda else None,
        }
