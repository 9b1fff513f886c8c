"""A comparison for who works in Python: short when printed, a page in a notebook, written at a word."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from os import PathLike
from pathlib import Path

from traceanalyzer import __version__
from traceanalyzer.diff import Comparison
from traceanalyzer.diff import compare as compare_sides
from traceanalyzer.diff.captures import Side
from traceanalyzer.diff.in_memory import side_of
from traceanalyzer.diff.same_ranks import with_same_ranks
from traceanalyzer.diff.sources import SourceOptions, named_apart, read_side
from traceanalyzer.errors import UsageError
from traceanalyzer.files.whole import made
from traceanalyzer.given import formats_of, place_of
from traceanalyzer.model import TraceSet
from traceanalyzer.report.comparison import DIFF_WRITERS, DiffReport, figures, verdict

Run = str | PathLike[str] | TraceSet
"""A folder of traces, a summary.json, `baseline:NAME`, or traces in memory."""


@dataclass(frozen=True, slots=True, repr=False)
class NotebookComparison(Comparison):
    """Runs beside each other; `metrics` and `tables` are pandas tables."""

    def save(self, folder: str | PathLike[str], formats: Sequence[str] = ("html", "csv", "json", "md")) -> list[Path]:
        """Write it as `analyze-traces diff` does; returns the files.

        Raises:
            UsageError: a format is unknown, or the folder cannot be written.
        """
        names = formats_of(formats, DIFF_WRITERS)
        report = DiffReport(self, version=__version__)
        with made(folder, "save takes a folder") as target:
            return [path for name in names for path in DIFF_WRITERS[name](report, target)]

    def __repr__(self) -> str:
        return "\n".join([" against ".join(reversed(self.runs)), *(f"- {one}" for one in verdict.sentences(self))])

    def _repr_html_(self) -> str:
        head = "".join(
            f"<th>{escape(run)}</th>" + ("<th>change</th>" if run != self.runs[0] else "") for run in self.runs
        )
        said = "".join(f"<li>{escape(one)}</li>" for one in verdict.sentences(self))
        rows = "".join(_row(row) for row in figures.rows(self))
        return (
            f"<p><b>{escape(self.different)}</b></p><ul>{said}</ul>"
            f"<table><thead><tr><th>figure</th><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"
        )


_TAKES = "compare takes folders of traces, summaries, baseline:NAME or traces in memory"


def compare(base: Run | Sequence[Run], *others: Run | Sequence[Run], force: bool = False) -> NotebookComparison:
    """Runs beside each other, per optimizer step; the first is the base.

    A list is several captures of one run: their spread tells noise from difference.

    Raises:
        UsageError: fewer than two runs, or they did not do the same work and `force` is not set.
        InputError: a run cannot be read.
    """
    runs = [_captures(run) for run in (base, *others)]
    sides = with_same_ranks([_side(one) for one in runs], lambda place, ranks: _side(runs[place], ranks))
    sides = named_apart(sides)
    made = compare_sides(sides, force=force)
    return NotebookComparison(**{field.name: getattr(made, field.name) for field in fields(made)})


def _captures(run: Run | Sequence[Run]) -> list[str | TraceSet]:
    """A run's captures, one or several."""
    is_list = isinstance(run, Iterable) and not isinstance(run, str | bytes | TraceSet)
    several = [*run] if is_list else [run]  # type: ignore[misc]  # it is one
    if not several:
        raise UsageError("compare: a list of captures is empty")
    for one in several:
        if not isinstance(one, TraceSet):
            place_of(one, _TAKES)
    return [one if isinstance(one, TraceSet) else str(one) for one in several]


def _side(several: Sequence[str | TraceSet], ranks: frozenset[int] | None = None) -> Side:
    options = SourceOptions() if ranks is None else SourceOptions(replace(SourceOptions().load, ranks=ranks))
    sides = [
        side_of([_of_ranks(one, ranks)]) if isinstance(one, TraceSet) else read_side(one, options) for one in several
    ]
    return Side(sides[0].label, tuple(capture for side in sides for capture in side.captures))


def _of_ranks(traces: TraceSet, ranks: frozenset[int] | None) -> TraceSet:
    return replace(traces, ranks=tuple(trace for trace in traces.ranks if ranks is None or trace.rank in ranks))


def _row(row: figures.Row) -> str:
    cells = []
    for place, value in enumerate(row.cells):
        cells.append(f"<td>{escape(value.text)}</td>")
        if place:
            significance = f" {value.significance}" if value.significance else ""
            cells.append(f"<td>{escape(f'{value.change} {value.change_unit}'.strip() + significance)}</td>")
    name = f'<td title="{escape(row.definition)}">{escape(row.label)}</td>'
    return f"<tr>{name}<td>{escape(row.unit)}</td>{''.join(cells)}</tr>"
