"""How charts look: colours that mean a kind, others for what is no kind, and where legends stand."""

from collections.abc import Mapping
from types import MappingProxyType

from traceanalyzer.meaning import vocabulary
from traceanalyzer.meaning.vocabulary import LOOKS

KINDS: Mapping[str, str] = MappingProxyType({kind.key: LOOKS[kind.key].colour for kind in vocabulary.KINDS})

WAIT = LOOKS[vocabulary.WAIT.kind].colour

SERIES = ("#8A6FD6", "#C99700", "#A8324A", "#7C8A1F", "#8A5A3C", "#5F7488", "#B79AE8", "#D8C06A")
"""For ranks and families: far from the kinds' blue, sky blue, vermilion, green, grey and pink, in both themes."""

BLOCK = LOOKS[vocabulary.SEVERAL].colour

LEGEND = {"legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}}
"""Part of a layout: the legend above the plot, from its left edge."""
