"""A comparison of runs in every form in which it can be written."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from html import escape
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console
from rich.markup import escape as markup_escape
from rich.table import Table

from traceanalyzer import __version__
from traceanalyzer.analyses.base import plain_rows
from traceanalyzer.diff import Comparison, facts
from traceanalyzer.diff import compare as compare_sides
from traceanalyzer.diff.sources import SourceOptions, read_sides
from traceanalyzer.errors import UsageError
from traceanalyzer.files.whole import made
from traceanalyzer.gate import Outcome
from traceanalyzer.model import TraceSet
from traceanalyzer.model.tables import pandas_set_up
from traceanalyzer.report import assets
from traceanalyzer.report.comparison import rows, sentences
from traceanalyzer.report.comparison.rows import FiguresRow, JoinedView, joined_view, plain_name
from traceanalyzer.report.contents import LAYOUT
from traceanalyzer.report.table_view import table_of, unwrapped, with_unit
from traceanalyzer.report.writers import Writer, gates, write_text
from traceanalyzer.report.writers.tables import write_frame
from traceanalyzer.report.writers.text import cell, line
from traceanalyzer.snapshots.comparison import MemoryChange
from traceanalyzer.validation import formats_of, place_of

FORMAT_VERSION = 1
"""Of the comparison's `summary.json`; rises when a reader of it must change."""


@dataclass(frozen=True, slots=True)
class DiffReport:
    """All that a writer sees.

    Attributes:
        comparison: the runs beside each other.
        outcomes: what became of the gates.
        command: the command line that makes this report again.
        snapshots: by other run what its memory snapshots tell against the base's.
    """

    comparison: Comparison
    outcomes: Sequence[Outcome] = ()
    command: str | None = None
    snapshots: Mapping[str, MemoryChange] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """`ddp against naive`: the other runs against the base."""
        return f"{', '.join(side.label for side in self.comparison.others)} against {self.comparison.base.label}"

    @property
    def memory(self) -> rows.Memory:
        """What of each rank's peak of memory changed, by run and source."""
        return rows.memory_of(self.comparison, self.snapshots)

    @property
    def notes(self) -> list[str]:
        """What to know of the comparison, and what readers of each run's captures said."""
        said = [
            f"{side.label}: {note}"
            for side in self.comparison.sides
            for capture in side.captures
            for note in capture.notes
        ]
        return [*self.comparison.fairness.notes, *said]


# A comparison as CSV and JSON.


def write_csv(report: DiffReport, folder: Path) -> list[Path]:
    """`summary.csv` (a row for each figure and run), `memory.csv`, and for each other run and table `tables/…csv`."""
    comparison = report.comparison
    summary = folder / "summary.csv"
    write_frame(comparison.metrics.assign(**_watermark(report)), summary)
    tables = folder / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    paths = [summary, *rows.write_memory(report.memory, folder)]
    for run, own in comparison.tables.items():
        for table in own:
            paths.append(tables / f"{table.analysis}__{plain_name(run)}.csv")
            write_frame(table.frame.assign(**_watermark(report)), paths[-1])
    return paths


def write_json(report: DiffReport, folder: Path) -> list[Path]:
    """`summary.json`: facts, figures, joined tables, gates."""
    text = json.dumps(as_json(report), indent=1, allow_nan=False, ensure_ascii=False)
    return [write_text(folder / "summary.json", text)]


def as_json(report: DiffReport) -> dict[str, Any]:
    """The content of `summary.json`; absent values are null."""
    comparison = report.comparison
    judged, memory = comparison.fairness, report.memory
    return {
        "format": "traceanalyzer-diff",
        "format_version": FORMAT_VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "command": report.command,
        "different": comparison.different,
        "base": comparison.base.label,
        "runs": comparison.runs,
        "ranking": comparison.ranking,
        "per": judged.scale.name,
        "is_fair": judged.is_fair,
        "is_forced": comparison.is_forced,
        "refusals": list(judged.refusals),
        "notes": report.notes,
        "verdict": sentences.verdict_sentences(comparison),
        "facts": plain_rows(facts.as_frame(judged.facts, comparison.runs)),
        "metrics": plain_rows(comparison.metrics),
        "tables": {
            run: {table.analysis: plain_rows(table.frame) for table in own} for run, own in comparison.tables.items()
        },
        "memory": {"verdict": rows.memory_sentences(memory), "rows": plain_rows(rows.memory_frame(memory))},
        "gates": [
            {"gate": one.gate, "run": one.run, "status": one.status, "message": one.message, "rows": _plain(one.rows)}
            for one in report.outcomes
        ],
    }


def _watermark(report: DiffReport) -> dict[str, str]:
    return {"warning": "NOT COMPARABLE, forced"} if report.comparison.is_forced else {}


def _plain(values: Any) -> Any:
    """Rows of an outcome without infinities, which JSON cannot hold."""
    return json.loads(json.dumps(list(values), default=float).replace("Infinity", "null").replace("NaN", "null"))


# A comparison as one HTML page that needs no network.


def html_write(report: DiffReport, folder: Path) -> list[Path]:
    """`summary.html`."""
    return [write_text(folder / "summary.html", page(report))]


def memory_page(memory: rows.Memory, base: str, command: str | None) -> str:
    """The page of runs of which only memory snapshots are known."""
    runs = ", ".join(dict.fromkeys(run for run, *_ in memory))
    context = {"title": f"{runs} against {base}: memory", "memory": rows.memory_views(memory), "command": command}
    return assets.render("memory_diff.html", context, entry="plain.js", styles=("diff.css",))


def page(report: DiffReport) -> str:
    """The page's text."""
    comparison = report.comparison
    cards, parts = rows.cards(comparison)
    context: dict[str, Any] = {
        "report": report,
        "comparison": comparison,
        "of_all": sentences.of_all(comparison),
        "of_runs": sentences.of_runs(comparison),
        "doubt": sentences.doubt(comparison),
        "per": rows.per(comparison),
        "notes": report.notes,
        "changes": {run: _change(comparison, run) for run in comparison.tables},
        "figures": rows.figures(comparison),
        "is_of_single_captures": rows.is_of_single_captures(comparison),
        "views": {run: _views(comparison, run) for run in comparison.tables},
        "memory": rows.memory_views(report.memory),
        "cards": cards,
        "parts": parts,
        "DIFFERS": facts.DIFFERS,
    }
    return assets.render("diff.html", context, entry="comparison.js", styles=("diff.css",))


def _change(comparison: Comparison, run: str) -> dict[str, Any] | None:
    """A waterfall, and what it is of."""
    change = rows.step_change(comparison, run)
    if change is None:
        return None
    return {"bars": rows.waterfall(comparison, change, run), "basis": change.basis}


def _views(comparison: Comparison, run: str) -> list[JoinedView]:
    """The page's tables in which something differs."""
    found = (comparison.table(run, name) for name in rows.TABLES)
    return [joined_view(table, run, LAYOUT.joined_rows) for table in found if table is not None and table.differing]


# A comparison as Markdown, short enough for a comment on a pull request.


def markdown_write(report: DiffReport, folder: Path) -> list[Path]:
    """`summary.md`."""
    return [write_text(folder / "summary.md", as_markdown(report))]


def as_markdown(report: DiffReport) -> str:
    """Warnings, verdict, gates, figures, and what is new, removed or changed as far as a comment has room for it."""
    comparison = report.comparison
    views = [(run, joined_view(own)) for run, tables in comparison.tables.items() for own in tables if own.differing]
    context = {
        "report": report,
        "comparison": comparison,
        "said": [*sentences.verdict_sentences(comparison), *rows.memory_sentences(report.memory)],
        "gates": gates.as_markdown(report.outcomes) if report.outcomes else "",
        "heads": _heads(comparison.runs),
        "cell": cell,
        "line": line,
        "texts": _texts,
        "figures": rows.figures(comparison),
        "rows": LAYOUT.markdown_rows,
    }
    for count in range(len(views), -1, -1):
        text = assets.render_markdown("diff.md", {**context, "views": views[:count], "is_whole": count == len(views)})
        if len(text) <= LAYOUT.markdown_characters:
            break
    return text


def _heads(runs: Sequence[str]) -> list[str]:
    """Columns of figures side by side: the base, then each run and its change."""
    return [runs[0], *(name for run in runs[1:] for name in (run, "change"))]


def _texts(row: FiguresRow) -> list[str]:
    """A row below them."""
    base, *others = row.cells
    return [base.text, *(part for one in others for part in (one.text, one.change))]


DIFF_WRITERS: Mapping[str, Writer] = MappingProxyType(
    {"html": html_write, "csv": write_csv, "json": write_json, "md": markdown_write}
)
"""By the name that `diff --format` takes."""


# A comparison for who works in Python: short when printed, a page in a notebook, written at a word.


Run = str | PathLike[str] | TraceSet
"""A folder of traces, a summary.json, `baseline:NAME`, or traces in memory."""


@dataclass(frozen=True, slots=True, repr=False)
class NotebookComparison(Comparison):
    """Runs beside each other; `metrics` and `tables` are pandas tables."""

    @pandas_set_up()
    def save(self, folder: str | PathLike[str], formats: Sequence[str] = ("html", "csv", "json", "md")) -> list[Path]:
        """Write it as `analyze-traces diff` does; returns the files.

        Raises:
            UsageError: a format is unknown, or the folder cannot be written.
        """
        names = formats_of(formats, DIFF_WRITERS)
        report = DiffReport(self)
        with made(folder, "save takes a folder") as target:
            return [path for name in names for path in DIFF_WRITERS[name](report, target)]

    def __repr__(self) -> str:
        return "\n".join(
            [" against ".join(reversed(self.runs)), *(f"- {one}" for one in sentences.verdict_sentences(self))]
        )

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in _heads(self.runs))
        items = "".join(f"<li>{escape(one)}</li>" for one in sentences.verdict_sentences(self))
        body = "".join(_row(row) for row in rows.figures(self))
        return (
            f"<p><b>{escape(self.different)}</b></p><ul>{items}</ul>"
            f"<table><thead><tr><th>figure, mean over ranks</th><th></th>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>"
        )


_TAKES = "compare takes folders of traces, summaries, baseline:NAME or traces in memory"


@pandas_set_up()
def compare(base: Run | Sequence[Run], *others: Run | Sequence[Run], force: bool = False) -> NotebookComparison:
    """Runs beside each other, per optimizer step; the first is the base.

    A list is several captures of one run: their spread tells noise from difference.

    Raises:
        UsageError: fewer than two runs, or they did not do the same work and `force` is not set.
        InputError: a run cannot be read.
    """
    runs = [_captures(run) for run in (base, *others)]
    made = compare_sides(read_sides(runs, SourceOptions()), force=force)
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


def _row(row: FiguresRow) -> str:
    cells = "".join(f"<td>{escape(text)}</td>" for text in _texts(row))
    return f'<tr><td title="{escape(row.definition)}">{escape(row.label)}</td><td>{escape(row.unit)}</td>{cells}</tr>'


# The short comparison that the command line prints.


_SHOWN: tuple[str, ...] = (
    "step_ns", "compute_ns", "exposed_transfer_ns", "exposed_wait_ns", "exposed_unmatched_ns", "exposed_comm_ns",
    "exposed_copy_ns", "idle_ns", "compute_pct", "exposed_comm_pct", "idle_pct", "overlap_pct", "comm_calls",
    "comm_bytes", "tokens_per_s",
)  # fmt: skip


def show(report: DiffReport, console: Console) -> None:
    """Print the verdict with its points, the main figures side by side, what differs besides, and notes."""
    comparison, say = report.comparison, unwrapped(console)
    say(f"[italic]{markup_escape(report.title)}[/]")
    for reason in comparison.fairness.refusals:
        say(f"[bold red]NOT COMPARABLE, forced:[/] {markup_escape(reason)}")
    for sentence in sentences.of_all(comparison):
        say(f"[bold]{markup_escape(sentence)}[/]")
    runs = sentences.of_runs(comparison)
    width = max((len(name) for run in runs for name, _ in run.points), default=0)
    for run in runs:
        say(f"[bold]{markup_escape(run.verdict)}[/]")
        for name, text in run.points:
            say(f"  [dim]{name:<{width}}[/]  {markup_escape(text)}")
    for sentence in rows.memory_sentences(report.memory):
        say(markup_escape(sentence))
    table = _terminal_table(report)
    if table.row_count:
        console.print(table)
    for text in filter(None, (comparison.different, sentences.doubt(comparison))):
        say(f"[yellow]![/] {markup_escape(text)}")
    for note in report.notes:
        say(f"[yellow]Note:[/] {markup_escape(note)}")


_DECIDING: tuple[str, ...] = ("step_ns", "compute_pct", "exposed_comm_pct", "idle_pct", "overlap_pct")


def _terminal_table(report: DiffReport) -> Table:
    """A row for each figure; of many runs a row for each run."""
    comparison = report.comparison
    runs, found = comparison.runs, {row.metric: row for row in rows.figures(comparison)}
    title = f"Figures {rows.per(comparison)}, mean over ranks"
    if len(runs) <= LAYOUT.runs_beside:
        shown = [row for name, row in found.items() if name in _SHOWN]
        return table_of(
            ["", *_heads(runs)], ([with_unit(row.label, row.unit), *_texts(row)] for row in shown), title=title
        )
    shown = [found[name] for name in _DECIDING if name in found]
    cells = [[f"{cell.text}  {cell.change}".rstrip() for cell in row.cells] for row in shown]
    return table_of(
        ["", *(with_unit(row.label, row.unit) for row in shown)],
        zip(runs, *cells, strict=True),
        title=f"{title}, changes against {comparison.base.label}",
    )
