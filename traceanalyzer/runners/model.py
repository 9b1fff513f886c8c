"""What the runners train: a GPT decoder and a BERT-like encoder in plain PyTorch, on synthetic sequences."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # torch's own convention
from torch.utils.checkpoint import checkpoint

from traceanalyzer.runners.options import ModelConfig
from traceanalyzer.runners.recording import in_block_ranges

IGNORED_TARGET = -100


class Attention(nn.Module):
    """Multi-head self-attention; `qkv` keeps each head's query, key and value together.

    A slice of `qkv`'s rows is therefore a set of whole heads, which is what tensor parallelism cuts.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.d_model // config.heads
        self.is_causal = config.is_causal
        self.qkv: nn.Module = nn.Linear(config.d_model, 3 * config.d_model, bias=False)
        self.proj: nn.Module = nn.Linear(config.d_model, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(x).view(batch, length, -1, 3, self.head_dim).permute(3, 0, 2, 1, 4)
        query, key, value = qkv.unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        projected: Tensor = self.proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        return projected


class MLP(nn.Module):
    """The block's feed-forward half."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up: nn.Module = nn.Linear(config.d_model, 4 * config.d_model, bias=False)
        self.down: nn.Module = nn.Linear(4 * config.d_model, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.down(F.gelu(self.up(x)))
        return hidden


class Block(nn.Module):
    """A pre-norm transformer block; `is_checkpointed` recomputes it in the backward pass."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.d_model)
        self.mlp = MLP(config)
        self.is_checkpointed = False

    def forward(self, x: Tensor) -> Tensor:
        # The checkpoint sits inside the block, so that a strategy's hooks on the block do not run again.
        if self.is_checkpointed and torch.is_grad_enabled():
            recomputed: Tensor = checkpoint(self.body, x, use_reentrant=False)
            return recomputed
        return self.body(x)

    def body(self, x: Tensor) -> Tensor:
        """Both halves, each added to the residual stream."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Embedding(nn.Module):
    """Token plus learned position."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocab, config.d_model)
        self.position = nn.Embedding(config.seq_len, config.d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        return embedded


class Head(nn.Module):
    """Final norm, logits and mean cross-entropy in fp32 over the targets that are not ignored."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.logits = nn.Linear(config.d_model, config.vocab, bias=False)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        logits = self.logits(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED_TARGET)


class Transformer(nn.Module):
    """Tokens and targets in, loss out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.head = Head(config)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = run_blocks(enumerate(self.blocks), self.embedding(tokens))
        loss: Tensor = self.head(x, targets)
        return loss


def run_blocks(numbered_blocks: Iterable[tuple[int, nn.Module]], x: Tensor) -> Tensor:
    """Pass `x` through the blocks, each in ranges of its own, forward and backward."""
    for index, block in numbered_blocks:
        x = in_block_ranges(index, block, x)
    return x


def build_model(config: ModelConfig, device: torch.device, seed: int) -> Transformer:
    """A model whose weights depend on `seed`, shape and kind of device only: equal on every rank."""
    torch.manual_seed(seed)
    with torch.device(device):
        model = Transformer(config)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            # Residual branches start smaller, as in GPT-2.
            is_residual = name.endswith(("proj.weight", "down.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * config.layers) ** 0.5 if is_residual else 0.02)
    return model


def parameter_count(module: nn.Module) -> int:
    """Elements of all parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


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

    def __init__(self, model: ModelConfig, device: torch.device, *, seed: int, samples: int) -> None:
        self.model, self.device, self.seed, self.samples = model, device, seed, samples

    def micro_batches(self, step: int, rank: int, ranks: int, accumulate: int) -> list[Batch]:
        """The `accumulate` micro-batches of `rank` among `ranks` that see different data."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        # They count up in steps of 1 to 8, so that they can be learnt.
        start = torch.randint(self.model.vocab, (self.samples, 1), generator=generator)
        stride = torch.randint(1, 9, (self.samples, 1), generator=generator)
        sequences = (start + stride * torch.arange(self.model.seq_len + 1)) % self.model.vocab
        tokens, targets = sequences[:, :-1], sequences[:, 1:]
        if not self.model.is_causal:
            tokens, targets = self._masked(tokens, generator)
        shape = (accumulate, ranks, -1, self.model.seq_len)
        parts = zip(tokens.view(shape)[:, rank], targets.view(shape)[:, rank], strict=True)
        return [Batch(self._on_device(t), self._on_device(y)) for t, y in parts]

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
