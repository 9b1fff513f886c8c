"""How much memory parameters, gradients and AdamW's state should take under a strategy: an expectation."""

from __future__ import annotations

PARAMETER_BYTES = 4  # fp32 master weights
GRADIENT_BYTES = 4
OPTIMIZER_BYTES = 8  # AdamW: two fp32 moments


def expected_memory(
    parameters: int,
    *,
    parameter_shards: int = 1,
    gradient_shards: int = 1,
    optimizer_shards: int = 1,
) -> dict[str, int]:
    """Bytes on one rank that is responsible for `parameters`, each part cut into its number of shards.

    This is the arithmetic of the ZeRO paper for fp32 training; activations, bf16 copies and
    communication buffers come on top.
    """
    return {
        "parameter_bytes": PARAMETER_BYTES * parameters // parameter_shards,
        "gradient_bytes": GRADIENT_BYTES * parameters // gradient_shards,
        "optimizer_bytes": OPTIMIZER_BYTES * parameters // optimizer_shards,
    }
