"""Training data: synthetic sequences or a text's bytes, the same for a seed however ranks share it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from traceanalyzer.errors import InputError
from traceanalyzer.runners.model import IGNORED_TARGET

if TYPE_CHECKING:
    from pathlib import Path

    from traceanalyzer.runners.options import ModelConfig

MASK_EVERY = 7  # one token in seven is predicted by an encoder, about BERT's 15%


class Batch(NamedTuple):
    """Token ids and what to predict, both [samples, seq_len]."""

    tokens: Tensor
    targets: Tensor


class Tokens:
    """Draws the global batch of each step and hands out one data-parallel rank's part of it.

    Every rank draws the whole step's random numbers (a few per sample), so that sample i of step s
    is the same whether one rank trains on all samples or many ranks share them.
    """

    def __init__(
        self, model: ModelConfig, device: torch.device, *, seed: int, samples: int, text: Path | None = None
    ) -> None:
        self.model, self.device, self.seed, self.samples = model, device, seed, samples
        self.text = None if text is None else _read_bytes(text, model)

    def micro_batches(self, step: int, rank: int, ranks: int, accumulate: int) -> list[Batch]:
        """The `accumulate` micro-batches of `rank` among `ranks` that see different data."""
        tokens, targets = self._global_batch(step)
        shape = (accumulate, ranks, -1, self.model.seq_len)
        parts = zip(tokens.view(shape)[:, rank], targets.view(shape)[:, rank], strict=True)
        return [Batch(self._on_device(t), self._on_device(y)) for t, y in parts]

    def _global_batch(self, step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        sequences = self._sequences(generator)
        if self.model.is_causal:
            return sequences[:, :-1], sequences[:, 1:]
        return self._masked(sequences[:, :-1], generator)

    def _sequences(self, generator: torch.Generator) -> Tensor:
        """[samples, seq_len + 1] token ids; synthetic ones count up in steps of 1 to 8, so they can be learnt."""
        offsets = torch.arange(self.model.seq_len + 1)
        if self.text is not None:
            start = torch.randint(len(self.text) - len(offsets) + 1, (self.samples, 1), generator=generator)
            return self.text[start + offsets].long()
        start = torch.randint(self.model.vocab, (self.samples, 1), generator=generator)
        stride = torch.randint(1, 9, (self.samples, 1), generator=generator)
        return (start + stride * offsets) % self.model.vocab

    def _masked(self, sequences: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        # Every sample predicts equally many tokens, so that a mean of means is the global mean.
        first = torch.randint(MASK_EVERY, (self.samples, 1), generator=generator)
        masked = first + MASK_EVERY * torch.arange(self.model.seq_len // MASK_EVERY)
        targets = torch.full_like(sequences, IGNORED_TARGET).scatter(1, masked, sequences.gather(1, masked))
        return sequences.scatter(1, masked, self.model.vocab - 1), targets

    def _on_device(self, tensor: Tensor) -> Tensor:
        if self.device.type != "cuda":
            return tensor.contiguous()
        return tensor.contiguous().pin_memory().to(self.device, non_blocking=True)


def _read_bytes(path: Path, model: ModelConfig) -> Tensor:
    try:
        content = bytearray(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot read the training text: {error.strerror}") from error
    if len(content) <= model.seq_len:
        raise InputError(f"{path}: {len(content)} bytes, but --seq {model.seq_len} needs more: shorten --seq")
    return torch.frombuffer(content, dtype=torch.uint8)
