"""Names of `spill` under which rooms that are being rewritten know them."""

from traceanalyzer.files.spill import give_back_grown

__all__ = ["give_back_grown"]
