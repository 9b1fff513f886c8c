"""From Results to a Report: findings, what was skipped, and how to make it again."""

from collections.abc import Mapping
from datetime import UTC, datetime

from traceanalyzer import __version__
from traceanalyzer.analyses import Result
from traceanalyzer.findings import Finding, find
from traceanalyzer.report.contents import Report
from traceanalyzer.report.words import care
from traceanalyzer.report.words.run_facts import run_facts
from traceanalyzer.run_info import RunInfo
from traceanalyzer.scale import Summary


def build(
    summary: Summary,
    label: str,
    notes: tuple[str, ...] = (),
    command: str | None = None,
    run_info: RunInfo | None = None,
) -> Report:
    """The report of one run.

    Args:
        summary: its Results, and what was left out.
        label: its name.
        notes: what else there is to say of the choice of files.
        command: the command line that makes it again.
        run_info: the run.json beside the traces.
    """
    return Report(
        label=label,
        results=summary.results if run_info is None else {**summary.results, "run_info": run_facts(run_info)},
        findings=findings_of(summary.results),
        skipped=summary.skipped,
        notes=(*notes, *summary.notes),
        run_info=run_info,
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
    )


def findings_of(results: Mapping[str, Result]) -> tuple[Finding, ...]:
    """All findings, most to gain first; those that rest on doubted Results say so in their caveat."""
    return care.with_caveats(find(results), care.doubted(results))
