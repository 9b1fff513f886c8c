"""A comparison of runs in every form in which it can be written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from traceanalyzer.diff import Comparison
from traceanalyzer.gate import Outcome
from traceanalyzer.report.writers import Writer, load_and_write
from traceanalyzer.snapshots.comparison import MemoryChange

FORMAT_VERSION = 1
"""Of the comparison's `summary.json`; rises when a reader of it must change."""


@dataclass(frozen=True, slots=True)
class DiffReport:
    """All that a writer sees.

    Attributes:
        comparison: the runs beside each other.
        outcomes: what became of the gates.
        command: the command line that makes this report again.
        created: when it was made, ISO 8601.
        version: of traceanalyzer.
        snapshots: by other run what its memory snapshots tell against the base's.
    """

    comparison: Comparison
    outcomes: Sequence[Outcome] = ()
    command: str | None = None
    created: str | None = None
    version: str | None = None
    snapshots: Mapping[str, MemoryChange] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """`ddp against naive`: the other runs against the base."""
        return f"{', '.join(side.label for side in self.comparison.others)} against {self.comparison.base.label}"


DIFF_WRITERS: Mapping[str, Writer] = MappingProxyType(
    {
        name: partial(load_and_write, f"{__name__}.writers", function)
        for name, function in (
            ("html", "html_write"),
            ("csv", "write_csv"),
            ("json", "write_json"),
            ("md", "markdown_write"),
        )
    }
)
"""By the name that `diff --format` takes."""
