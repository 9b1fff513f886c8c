"""Broadcast, third way: in chunks, so that peers receive one while the host uploads the next."""

from __future__ import annotations

from traceanalyzer.runners.ranges import span
from traceanalyzer.runners.strategies.broadcast import MIB, Broadcast

CHUNK_BYTES = 16 * MIB


class ChunkedBroadcast(Broadcast):
    """One stream uploads, one a peer passes on; an event a chunk ties them together."""

    def broadcast(self) -> None:
        chunk_elements = CHUNK_BYTES // self.payload.element_size()
        chunks = zip(self.payload.split(chunk_elements), *(b.split(chunk_elements) for b in self.buffers), strict=True)
        for source, first, *peers in chunks:
            with span("upload"), self.upload_lanes[0].queue():
                first.copy_(source, non_blocking=True)
            uploaded = self.upload_lanes[0].mark()
            with span("peer_copy"):
                for peer, lane in zip(peers, self.peer_lanes, strict=True):
                    lane.wait_for(uploaded)
                    with lane.queue():
                        peer.copy_(first, non_blocking=True)
