"""simple_ddp with gradient accumulation: all-reduces once every few micro-batches."""

from __future__ import annotations

from traceanalyzer.runners.strategies.simple_ddp import SimpleDDP


class SimpleDDPGradientAccumulation(SimpleDDP):
    """The same all-reduces, spread over four times the work unless --accumulate says otherwise."""

    default_accumulate = 4
