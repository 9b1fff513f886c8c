"""1F1B: after a warm-up each stage alternates one forward and one backward microbatch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceanalyzer.runners.strategies.pipeline import Pipeline

if TYPE_CHECKING:
    from torch import Tensor

    from traceanalyzer.runners.data import Batch


class OneForwardOneBackward(Pipeline):
    """GPipe's bubble, but a stage holds the activations of at most S microbatches, not of all M."""

    def run_schedule(self, microbatches: list[Batch]) -> None:
        count = len(microbatches)
        warmup = min(self.world.size - self.world.rank - 1, count)
        for index in range(warmup):
            received = self._receive(microbatches[index])
            output = self.forward_microbatch(index, microbatches[index], received)
            self.exchange(to_next=output)
        self._steady(microbatches, warmup)
        for index in range(count - warmup, count):
            gradient = self.output_gradient(microbatches[index])
            self.exchange(from_next=gradient)
            self.exchange(to_previous=self.backward_microbatch(index, count, gradient))

    def _steady(self, microbatches: list[Batch], warmup: int) -> None:
        """Each exchange pairs the send of one direction with the receive of the other."""
        count = len(microbatches)
        received = self._receive(microbatches[warmup]) if warmup < count else None
        for index in range(warmup, count):
            batch = microbatches[index]
            output = self.forward_microbatch(index, batch, received)
            gradient = self.output_gradient(batch)
            self.exchange(to_next=None if self.is_last else output, from_next=gradient)
            sent = self.backward_microbatch(index - warmup, count, gradient)
            received = self.activation(batch) if index + 1 < count else None
            self.exchange(to_previous=sent, from_previous=received)

    def _receive(self, batch: Batch) -> Tensor | None:
        received = self.activation(batch)
        self.exchange(from_previous=received)
        return received
