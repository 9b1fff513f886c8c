"""CUDA streams and events under names; without a GPU everything runs in order and they do nothing."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


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
