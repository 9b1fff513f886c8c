"""What is computed from traces: the registry of analyses (`registry`), how they are run (`engine`), and their rooms."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from traceanalyzer.analyses.base import Result
from traceanalyzer.analyses.engine import Parts, combine, combine_tables, reached_by, reduce_rank, run, thresholds_of
from traceanalyzer.analyses.registry import ANALYSES, Analysis, column_named

if TYPE_CHECKING:
    from traceanalyzer.analyses.results import Results
else:
    Results = Mapping[str, Result]
    """Results by analysis; to the type checker each of its own class."""

__all__ = [
    "ANALYSES",
    "Analysis",
    "Parts",
    "Result",
    "Results",
    "column_named",
    "combine",
    "combine_tables",
    "reached_by",
    "reduce_rank",
    "run",
    "thresholds_of",
]
