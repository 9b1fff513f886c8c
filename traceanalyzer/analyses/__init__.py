"""What is computed from traces: the registry of analyses (`registry`), how they are run (`engine`), and their rooms."""

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.engine import Parts, combine, of_events, reduce_rank, run, thresholds_of
from traceanalyzer.analyses.registry import ANALYSES, Analysis, column_named

__all__ = [
    "ANALYSES",
    "Analysis",
    "Parts",
    "Result",
    "column_named",
    "combine",
    "of_events",
    "reduce_rank",
    "run",
    "thresholds_of",
]
