"""From Results to a Report: findings, what was skipped, and how to make it again."""

from datetime import UTC, datetime

from traceanalyzer import __version__
from traceanalyzer.findings import find
from traceanalyzer.report import Report, care
from traceanalyzer.report.run_facts import run_facts
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
        findings=care.with_caveats(find(summary.results), care.doubted(summary.results)),
        skipped=summary.skipped,
        notes=(*notes, *summary.notes),
        run_info=run_info,
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
    )
