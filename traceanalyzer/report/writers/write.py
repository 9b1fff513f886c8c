"""A report in the formats asked for."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from traceanalyzer.failures import Failure
from traceanalyzer.forks import all_aside
from traceanalyzer.report.contents import Report
from traceanalyzer.report.writers import WRITERS, Writer, write_csv, write_html


def write(
    report: Report,
    folder: Path,
    formats: Sequence[str],
    *,
    plotlyjs: str = "inline",
    failures: list[Failure] | None = None,
    beside: Path | None = None,
    processes: int = 1,
) -> list[Path]:
    """Write the report into the folder in each format; returns the files.

    `failures` takes up parts that fail; `beside` is the folder that the report's own will lie in. With a second process
    the page is drawn while a fork writes the other formats, with more by those that are left.
    """
    drawing = max(1, processes - 1)
    writers: dict[str, Writer] = {
        **WRITERS,
        "html": partial(write_html, plotlyjs=plotlyjs, failures=failures, beside=beside, processes=drawing),
    }
    wanted = dict.fromkeys(formats)
    rest = [partial(_written, writers, report, folder, [name for name in wanted if name != "html"])]
    if "csv" in wanted and processes > _MANY:
        writers["csv"] = partial(write_csv, shares=2)
        rest.append(partial(_written, {"csv": partial(write_csv, share=1, shares=2)}, report, folder, ["csv"]))
    begun = all_aside(rest, processes=processes if len(wanted) > ("html" in wanted) else 1)
    try:
        files = {"html": writers["html"](report, folder) if "html" in wanted else []}
    finally:
        made = [wait() for wait in begun]
    files |= made[0]
    return [path for name in wanted for path in files[name]]


_MANY = 4
"""Processes from which on there is one for a second share of the tables."""


def _written(
    writers: Mapping[str, Writer], report: Report, folder: Path, names: Sequence[str]
) -> dict[str, list[Path]]:
    return {name: writers[name](report, folder) for name in names}
