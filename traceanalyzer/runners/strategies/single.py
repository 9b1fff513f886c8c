"""One rank, all data: the baseline that every other strategy is verified against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceanalyzer.errors import UsageError
from traceanalyzer.runners.strategies.base import Strategy

if TYPE_CHECKING:
    from traceanalyzer.runners.options import RunConfig


class Single(Strategy):
    """Forward, backward, AdamW."""

    @classmethod
    def check(cls, config: RunConfig, world_size: int) -> None:
        if world_size != 1:
            raise UsageError(f"{config.strategy} runs on one rank, not {world_size}: start it without torchrun")
