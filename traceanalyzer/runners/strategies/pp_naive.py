"""Naive model parallelism: the whole batch at once, so one stage works while all others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceanalyzer.runners.strategies.pp_gpipe import GPipe

if TYPE_CHECKING:
    from traceanalyzer.runners.options import RunConfig


class NaivePipeline(GPipe):
    """GPipe with one microbatch."""

    @classmethod
    def microbatch_count(cls, config: RunConfig) -> int:
        del config
        return 1
