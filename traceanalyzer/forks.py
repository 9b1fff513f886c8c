"""Names of `execution` under which rooms that are being rewritten know them."""

from traceanalyzer.execution import FREE, all_aside, aside, later, signals_wait

__all__ = ["FREE", "all_aside", "aside", "later", "signals_wait"]
