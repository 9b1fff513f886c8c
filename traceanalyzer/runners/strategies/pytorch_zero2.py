"""ZeRO stage 2 by PyTorch: FSDP2 that keeps the parameters from forward to backward."""

from __future__ import annotations

from traceanalyzer.runners.strategies.pytorch_zero3 import PyTorchZero3


class PyTorchZero2(PyTorchZero3):
    """One all-gather a unit and step, half of stage 3's, for the memory of the gathered parameters."""

    reshard_after_forward = False
