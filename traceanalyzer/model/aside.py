"""Names of `spilled` under which rooms that are being rewritten know them."""

from traceanalyzer.model.spilled import rearranged, spilled, spilled_arrays

laid_aside, arrays_aside = spilled, spilled_arrays

__all__ = ["arrays_aside", "laid_aside", "rearranged"]
