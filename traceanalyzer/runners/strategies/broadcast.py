"""Broadcasts three ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from traceanalyzer.runners.lanes import Lane, pinned_empty
from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.base import Job, Strategy, parallel_sizes

if TYPE_CHECKING:
    from torch import Tensor

    from traceanalyzer.runners.data import Batch
    from traceanalyzer.runners.world import World


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
        self.devices = _devices(job.world)
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


def _devices(world: World) -> list[torch.device]:
    if world.is_cuda:
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    return [torch.device("cpu"), torch.device("cpu")]


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
