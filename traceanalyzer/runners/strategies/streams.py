"""Copies beside compute: broadcasts three ways, and zeroth-order training with its blocks in CPU memory."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from traceanalyzer.errors import UsageError
from traceanalyzer.runners.model import Batch, parameter_count
from traceanalyzer.runners.options import RunConfig
from traceanalyzer.runners.recording import span
from traceanalyzer.runners.strategies.base import STATE_BYTES, Job, Strategy, parallel_sizes
from traceanalyzer.runners.strategies.by_hand import all_gather


class Lane:
    """A stream of one device.

    Work queued inside `with lane.queue():` runs in order with the lane's other work and beside other lanes'.
    """

    def __init__(self, device: torch.device, *, is_current: bool = False) -> None:
        self.stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self.stream = torch.cuda.current_stream(device) if is_current else torch.cuda.Stream(device)

    def queue(self) -> AbstractContextManager[object]:
        """Queue what the block launches on this lane."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def mark(self) -> torch.cuda.Event | None:
        """A point after everything queued so far."""
        return None if self.stream is None else self.stream.record_event()

    def wait_for(self, mark: torch.cuda.Event | None) -> None:
        """Start what is queued from now on only after `mark`."""
        if self.stream is not None and mark is not None:
            self.stream.wait_event(mark)


def pinned_empty(elements: int, device: torch.device) -> torch.Tensor:
    """CPU memory that copies to the device without a staging buffer, so that they can overlap."""
    return torch.empty(elements, pin_memory=device.type == "cuda")


class Broadcast(Strategy):
    """A step brings the payload to every GPU; a subclass is a way to do so.

    One process drives all GPUs, so that copies between them are peer copies on streams of its own.
    On CPU two buffers in host memory stand for GPUs.
    """

    has_model = False
    is_data_parallel = False
    is_one_process = True

    def __init__(self, job: Job) -> None:
        self.config, self.world = job.config, job.world
        elements = job.config.payload_mib * 2**20 // 4
        names = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if job.world.is_cuda else ["cpu", "cpu"]
        self.devices = [*map(torch.device, names)]
        self.payload = torch.empty(elements) if job.config.pageable else pinned_empty(elements, job.world.device)
        torch.arange(elements, out=self.payload)
        self.buffers = [torch.empty(elements, device=device) for device in self.devices]
        self.upload_lanes = [Lane(device) for device in self.devices]
        # A peer copy is queued on the device that it reads from, GPU 0.
        self.peer_lanes = [Lane(self.devices[0]) for _ in self.devices[1:]]

    def step(self, micro_batches: list[Batch]) -> Tensor | None:
        del micro_batches
        self.broadcast()
        # The step ends with its last copy: the next one writes the same buffers, and timing needs an end.
        lanes = [*self.upload_lanes, *self.peer_lanes]
        current = Lane(self.devices[0], is_current=True)
        for lane in lanes:
            current.wait_for(lane.mark())
        for lane in lanes:
            lane.wait_for(current.mark())
        return None

    def broadcast(self) -> None:
        """Queue the copies."""
        raise NotImplementedError

    def parallel(self) -> dict[str, Any]:
        return parallel_sizes()

    def expected(self) -> dict[str, Any]:
        return {}

    def transfer(self) -> dict[str, Any]:
        return {
            "payload_bytes": self.payload.nbytes,
            "devices": len(self.devices),
            "uploaded_bytes_per_step": self.payload.nbytes,
            "peer_bytes_per_step": self.payload.nbytes * (len(self.devices) - 1),
            "is_pinned": self.payload.is_pinned() if self.world.is_cuda else None,
        }


class HostToEveryGPU(Broadcast):
    """Every byte leaves the host once a GPU."""

    def broadcast(self) -> None:
        with span("upload"):
            for buffer, lane in zip(self.buffers, self.upload_lanes, strict=True):
                with lane.queue():
                    buffer.copy_(self.payload, non_blocking=True)

    def transfer(self) -> dict[str, Any]:
        uploads = self.payload.nbytes * len(self.devices)
        return {**super().transfer(), "uploaded_bytes_per_step": uploads, "peer_bytes_per_step": 0}


class ChunkedBroadcast(Broadcast):
    """Every byte leaves the host once: one stream uploads, one a peer passes on, and an event a chunk ties them."""

    chunk_mib = 16

    def broadcast(self) -> None:
        elements = self.chunk_mib * 2**20 // self.payload.element_size()
        for source, first, *peers in zip(
            *(each.split(elements) for each in (self.payload, *self.buffers)), strict=True
        ):
            with span("upload"), self.upload_lanes[0].queue():
                first.copy_(source, non_blocking=True)
            uploaded = self.upload_lanes[0].mark()
            with span("peer_copy"):
                for peer, lane in zip(peers, self.peer_lanes, strict=True):
                    lane.wait_for(uploaded)
                    with lane.queue():
                        peer.copy_(first, non_blocking=True)


class HostToOneThenPeers(ChunkedBroadcast):
    """The links between the GPUs idle until all of it has arrived at the first."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.chunk_mib = job.config.payload_mib


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


PERTURBATION = 1e-3
SLOTS = 3  # one block is uploaded, one computed, one offloaded


class ZerothOrderOffload(Strategy):
    """MeZO's two-point estimate, with each update applied when its block is next on the GPU.

    Each block is uploaded, computed and offloaded on a stream of its own for each of the three, so block k+1
    uploads and block k−1 offloads while block k computes. With `--slice-params` each rank keeps and uploads 1/n
    of every block and the ranks all-gather it over the link between the GPUs, on a fourth stream.

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
        self.elements = parameter_count(job.model.blocks[0])
        self.slots = [self._new_slot() for _ in range(SLOTS)]
        self.host_blocks = [self._moved_to_host(block) for block in job.model.blocks]
        # Each is computed in the place of the first; the memory of the others is freed.
        job.model.blocks = job.model.blocks[:1]
        self.resident = [parameters_to_vector(part.parameters()) for part in (job.model.embedding, job.model.head)]
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
        blocks = len(self.host_blocks)
        embedding, head = self.resident
        self._start_upload(0)
        states = self._computed(blocks, embedding, self.transformer.embedding, (batch.tokens, batch.tokens))
        for index in range(blocks):
            self._start_upload(index + 1)
            slot = self.slots[index % SLOTS]
            self.compute.wait_for(slot.is_uploaded)
            with span(f"block_{index}"):
                states = self._computed(index, slot.flat[: self.elements], self.transformer.blocks[0], states)
            slot.is_computed = self.compute.mark()
            self._start_offload(index)
        return self._computed(blocks + 1, head, self.transformer.head, states, batch.targets)

    def _computed(
        self, key: int, weights: Tensor, module: nn.Module, inputs: tuple[Tensor, Tensor], *more: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The module's output of the first input at θ + εz, and of the second at θ − εz.

        The weights first take the update of the step before, whose direction is drawn again from its seed.
        """
        if self.step_index > 0:
            direction = self._direction(weights, key, self.step_index - 1)
            weights.addcmul_(direction, self.projected_gradient, value=-self.config.learning_rate)
        perturbation = self._direction(weights, key, self.step_index).mul_(PERTURBATION)
        vector_to_parameters(weights + perturbation, module.parameters())
        plus = module(inputs[0], *more)
        vector_to_parameters(weights - perturbation, module.parameters())
        return plus, module(inputs[1], *more)

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

    def _start_offload(self, index: int) -> None:
        block, slot = self.host_blocks[index], self.slots[index % SLOTS]
        with span(f"offload block_{index}"), self.offload.queue():
            self.offload.wait_for(slot.is_computed)
            block.host.copy_(slot.own, non_blocking=True)
        slot.is_free = block.is_offloaded = self.offload.mark()

    def _direction(self, like: Tensor, key: int, step: int) -> Tensor:
        """The direction z of one block, the embedding or the head: the same on every rank, whatever the slicing."""
        seed = (self.config.seed * 1_000_003 + step) * 10_007 + key
        self.generator.manual_seed(seed % 2**63)
        return torch.randn(like.shape, generator=self.generator, device=like.device)

    def _new_slot(self) -> Slot:
        """For one block, padded to a multiple of the ranks that share it out."""
        flat = torch.zeros(self.elements + -self.elements % self.ranks, device=self.world.device)
        return Slot(flat, flat.chunk(self.ranks)[self.world.rank if self.ranks > 1 else 0])

    def _moved_to_host(self, block: nn.Module) -> HostBlock:
        """This rank's part of the block."""
        slot = self.slots[0]
        slot.flat[: self.elements] = parameters_to_vector(block.parameters())
        host = pinned_empty(len(slot.own), self.world.device)
        return HostBlock(host.copy_(slot.own))

    def expected(self) -> dict[str, Any]:
        """The embedding, the head and the slots; a forward pass needs no gradients and no optimizer state."""
        elements = sum(map(len, self.resident)) + SLOTS * len(self.slots[0].flat)
        return {"parameter_bytes": STATE_BYTES["parameter"] * elements}

    def transfer(self) -> dict[str, Any]:
        moved = sum(block.host.nbytes for block in self.host_blocks)
        return {
            "uploaded_bytes_per_step": moved,
            "offloaded_bytes_per_step": moved,
            "gathered_bytes_per_step": len(self.host_blocks) * self.slots[0].flat.nbytes if self.ranks > 1 else None,
            "is_sliced": self.ranks > 1,
            "is_pinned": self.host_blocks[0].host.is_pinned() if self.world.is_cuda else None,
        }
