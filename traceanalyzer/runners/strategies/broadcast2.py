"""Broadcast, second way: the host uploads to GPU 0, which then copies to its peers."""

from __future__ import annotations

from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.broadcast import Broadcast


class HostToOneThenPeers(Broadcast):
    """Every byte leaves the host once, but the links between the GPUs idle until it has arrived."""

    def broadcast(self) -> None:
        with span("upload"), self.upload_lanes[0].queue():
            self.buffers[0].copy_(self.payload, non_blocking=True)
        uploaded = self.upload_lanes[0].mark()
        with span("peer_copy"):
            for buffer, lane in zip(self.buffers[1:], self.peer_lanes, strict=True):
                lane.wait_for(uploaded)
                with lane.queue():
                    buffer.copy_(self.buffers[0], non_blocking=True)
