"""Figures of Results as plotly draws them: plain dictionaries for the page, `Figure` objects for a notebook."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from traceanalyzer.analyses import Result

FIGURES: Mapping[str, Callable[[Result], dict[str, Any] | None]] = MappingProxyType({})
"""By the Result that each is of."""
