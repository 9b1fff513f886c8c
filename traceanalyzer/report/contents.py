"""What a report holds: all that a writer sees."""

from dataclasses import dataclass

from traceanalyzer.analyses import Results
from traceanalyzer.errors import Failure
from traceanalyzer.findings import Finding
from traceanalyzer.job.run_info import RunInfo
from traceanalyzer.model import Skipped

FORMAT_VERSION = 3
"""Of `summary.json`; rises when a reader of it must change. One that names tables in files beside it is of the next."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that a writer sees.

    Attributes:
        label: name of the run.
        results: by analysis, in the order in which a report shows them.
        skipped: files, ranks and parts that were left out, and why.
        notes: sentences that a reader of the figures must know.
        remarks: sentences on what was read, which take nothing from the figures.
        run_info: the run.json beside the traces.
        command: the command line that makes this report again.
        created: when it was made, ISO 8601.
        version: of traceanalyzer.
        failures: what could not be computed; its Results are empty.
        snapshots: what memory snapshots beside the traces tell, the gravest first; `memory.html` has more.
    """

    label: str
    results: Results
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    run_info: RunInfo | None = None
    command: str | None = None
    created: str | None = None
    version: str | None = None
    failures: tuple[Failure, ...] = ()
    snapshots: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Report({self.label!r}, {len(self.results)} results, {len(self.findings)} findings)"
