"""A report in the formats asked for."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from traceanalyzer.failures import Failure
from traceanalyzer.report.contents import Report
from traceanalyzer.report.writers import WRITERS, Writer, write_html


def write(
    report: Report,
    folder: Path,
    formats: Sequence[str],
    *,
    plotlyjs: str = "inline",
    failures: list[Failure] | None = None,
    beside: Path | None = None,
) -> list[Path]:
    """Write the report into the folder in each format; returns the files.

    `failures` takes up parts that fail; `beside` is the folder that the report's own will lie in.
    """
    writers: dict[str, Writer] = {
        **WRITERS,
        "html": partial(write_html, plotlyjs=plotlyjs, failures=failures, beside=beside),
    }
    return [path for name in dict.fromkeys(formats) for path in writers[name](report, folder)]
