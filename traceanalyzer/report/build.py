"""From Results to a Report: findings, what was skipped, and how to make it again."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from traceanalyzer import __version__
from traceanalyzer.analyses import Results
from traceanalyzer.errors import Failure, sentences, warn
from traceanalyzer.findings import Finding, find
from traceanalyzer.job.run_info import RunInfo
from traceanalyzer.report.contents import Report
from traceanalyzer.scale import Summary


def build(
    summary: Summary,
    label: str,
    notes: tuple[str, ...] = (),
    remarks: tuple[str, ...] = (),
    command: str | None = None,
    run_info: RunInfo | None = None,
    findings: tuple[Finding, ...] | None = None,
) -> Report:
    """The report of one run.

    Args:
        summary: its Results, and what was left out.
        label: its name.
        notes: what else limits the figures.
        remarks: which files were chosen, and what was read beside them.
        command: the command line that makes it again.
        run_info: the run.json beside the traces.
        findings: where they are known already.
    """
    failures = list(summary.failures)
    if findings is None:
        findings = find(summary.results, failures)
    warn(failures[len(summary.failures) :])
    return Report(
        label=label,
        results=summary.results,
        findings=findings,
        skipped=summary.skipped,
        notes=(*sentences(failures), *notes, *summary.notes),
        remarks=remarks,
        run_info=run_info,
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        failures=tuple(failures),
    )


def with_results(report: Report, results: Results, failures: Sequence[Failure]) -> Report:
    """The report with these in place of the Results of analyses that it has, and with all that failed by now."""
    others = {name: result for name, result in report.results.items() if name not in results}
    notes = report.notes[len(sentences(report.failures)) :]
    return replace(report, results=results | others, notes=(*sentences(failures), *notes), failures=tuple(failures))
