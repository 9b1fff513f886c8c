"""A report in the formats asked for."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from traceanalyzer.failures import Failure
from traceanalyzer.forks import aside
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
    others = [name for name in wanted if name != "html"]
    rest = aside(lambda: {name: writers[name](report, folder) for name in others}, processes=processes if others else 1)
    try:
        page = writers["html"](report, folder) if "html" in wanted else []
    finally:
        files = rest()
    files["html"] = page
    return [path for name in wanted for path in files[name]]
