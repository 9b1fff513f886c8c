"""The shapes of the models that can be trained, and the batches that suit them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A transformer's shape; `is_causal` tells the decoder from the encoder."""

    preset: str
    layers: int
    d_model: int
    heads: int
    vocab: int
    seq_len: int
    is_causal: bool = True


# The output head has its own matrix (a pipeline can then split the model anywhere), so `gpt2` counts
# 163 M parameters and `gpt2-large` 838 M, 39 M and 64 M more than the published models with tied ones.
PRESETS = {
    "tiny": ModelConfig("tiny", layers=4, d_model=64, heads=4, vocab=256, seq_len=32),
    "tiny-bert": ModelConfig("tiny-bert", 4, 64, 4, 256, 32, is_causal=False),
    "gpt2": ModelConfig("gpt2", layers=12, d_model=768, heads=12, vocab=50_304, seq_len=1024),
    "gpt2-large": ModelConfig("gpt2-large", layers=36, d_model=1280, heads=20, vocab=50_304, seq_len=1024),
    "360m": ModelConfig("360m", layers=24, d_model=1024, heads=16, vocab=28_672, seq_len=1024),
    "bert": ModelConfig("bert", 12, 768, 12, 30_720, 512, is_causal=False),
}
# Samples a rank and micro-step that keep a large GPU busy also while a profiler slows the host
# (under 80 GB, without activation checkpointing).
DEFAULT_BATCH = {"tiny": 4, "tiny-bert": 4, "gpt2": 24, "gpt2-large": 16, "360m": 24, "bert": 64}
