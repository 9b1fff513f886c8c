"""Broadcast, first way: the host uploads the payload to every GPU."""

from __future__ import annotations

from typing import Any

from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.broadcast import Broadcast


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
