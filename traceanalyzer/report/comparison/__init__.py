"""A comparison of runs in every form in which it can be written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from traceanalyzer.diff import Comparison
from traceanalyzer.gate import Outcome
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


Writer = Callable[[DiffReport, Path], list[Path]]


def _html(report: DiffReport, folder: Path) -> list[Path]:
    from traceanalyzer.report.comparison import writers  # noqa: PLC0415 - jinja2 only when a page is made

    return writers.html_write(report, folder)


def _csv(report: DiffReport, folder: Path) -> list[Path]:
    from traceanalyzer.report.comparison import writers  # noqa: PLC0415

    return writers.write_csv(report, folder)


def _json(report: DiffReport, folder: Path) -> list[Path]:
    from traceanalyzer.report.comparison import writers  # noqa: PLC0415

    return writers.write_json(report, folder)


def _markdown(report: DiffReport, folder: Path) -> list[Path]:
    from traceanalyzer.report.comparison import writers  # noqa: PLC0415

    return writers.markdown_write(report, folder)


DIFF_WRITERS: Mapping[str, Writer] = MappingProxyType({"html": _html, "csv": _csv, "json": _json, "md": _markdown})
"""By the name that `diff --format` takes."""
