"""GPipe: all microbatches forward, then all backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceanalyzer.runners.strategies.pipeline import Pipeline

if TYPE_CHECKING:
    from traceanalyzer.runners.data import Batch


class GPipe(Pipeline):
    """Bubble (S−1)/(M+S−1), and the activations of all M microbatches in memory."""

    def run_schedule(self, microbatches: list[Batch]) -> None:
        for index, batch in enumerate(microbatches):
            received = self.activation(batch)
            self.exchange(from_previous=received)
            output = self.forward_microbatch(index, batch, received)
            self.exchange(to_next=None if self.is_last else output)
        for index, batch in enumerate(microbatches):
            gradient = self.output_gradient(batch)
            self.exchange(from_next=gradient)
            sent = self.backward_microbatch(index, len(microbatches), gradient)
            self.exchange(to_previous=sent)
