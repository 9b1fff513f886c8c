"""Figures of Results as plotly draws them: plain dictionaries for the page, `Figure` objects for a notebook."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from traceanalyzer.analyses import Result
from traceanalyzer.report.icicle import icicle
from traceanalyzer.report.roofline import roofline

FIGURES: Mapping[str, Callable[[Result], dict[str, Any] | None]] = MappingProxyType(
    {"efficiency": roofline, "operator_kernels": icicle}
)
"""By the Result that each is of."""
