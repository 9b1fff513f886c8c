"""`analyze-traces query`: one question about a run, answered in words or as JSON; `memory`; and `mcp`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.agents.questions import QUESTIONS
from traceanalyzer.cli.options import (
    FORCE,
    JOBS,
    JSON,
    LINKS,
    PLACE,
    RANKS,
    USAGE_OR_INPUT,
    Command,
    Group,
    command,
    console_of,
    model_option,
    option,
    options_of,
    steps_option,
)
from traceanalyzer.errors import InputError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from traceanalyzer.agents.verbs import Answer


@click.group(cls=Group)
def query() -> None:
    """Answer one question about a run.

    \b
    Examples:
      analyze-traces query summary profile/ddp
      analyze-traces query table profile/ddp kernels --ranks 0 --where 'name~nccl' --sort total_ns --top 5
      analyze-traces query why-waiting profile/ddp --ranks 1 --steps 2 --json
    """  # noqa: D301 - click wants the character itself


_TOP = option("--top N", "At most this many rows.")

_STEPS = steps_option("Only these steps")

_WHERE = option("--where CONDITION*", "Only rows such as rank=0, 'wait_ns>1e6' or name~nccl; repeatable.")

_SORT = option("--sort COLUMN", "Sort by this column, largest first.")

_QUESTIONS: Mapping[str, tuple[str, Sequence[Any]]] = {
    "summary": ("folder", (RANKS,)),
    "findings": ("folder", (_TOP,)),
    "tables": ("folder", ()),
    "table": ("folder name", (RANKS, _STEPS, _WHERE, _SORT, _TOP)),
    "steps": ("folder", (RANKS, _STEPS, _TOP)),
    "why-waiting": ("folder", (RANKS, _STEPS, _TOP)),
    "inspect": ("folder operation", (RANKS, _STEPS, option("--top N", "At most this many rows.", default=20))),
    "compare": ("base other", (_TOP,)),
}
"""Arguments and selectors of each question; those that are not given have the question's own defaults."""

_READING = options_of(
    option("--cursor N", "Continue from this row, as the previous answer says.", type=int),
    JSON, JOBS, LINKS,
)  # fmt: skip


def _question(name: str, arguments: str, selectors: Sequence[Any]) -> Command:
    def asked(**given: Any) -> None:
        _answer(name, **given)

    decorators = (*map(click.argument, arguments.split()), *selectors, _READING)
    made: Command = command(name, help=QUESTIONS[name])(options_of(*decorators)(asked))
    return made


for one in _QUESTIONS:
    query.add_command(_question(one, *_QUESTIONS[one]))


@command()
@click.argument("folder", type=PLACE)
@RANKS
@_TOP
@_READING
@model_option
@option("--output -o FOLDER", "Write memory.html and memory.json of memory snapshots there.")
@FORCE
def memory(folder: Path, output: Path | None, model: dict[str, object], force: bool, **given: Any) -> int | None:
    """Show device memory by rank: peaks, who holds them, what grows.

    FOLDER holds PyTorch memory snapshots, or traces recorded with profile_memory=True.

    \b
    Example:
      analyze-traces memory profile/run --output reports/memory
    """  # noqa: D301 - click wants the character itself
    if output is None:
        _answer("memory", folder=str(folder), **given)
        return None
    from traceanalyzer.cli.snapshots import report_alone, snapshots_in

    snapshots = snapshots_in(folder, follows_links=given["follow_links"])
    if not snapshots:
        raise InputError(f"{folder}: no memory snapshots; without --output the memory of traces is shown")
    options = {**given, "output": output, "model": model, "force": force, "gates": []}
    return report_alone(snapshots, folder, options, console_of(options))[1]


def _answer(question: str, /, *, as_json: bool, jobs: int | None, follow_links: bool, **given: Any) -> None:
    """Print the answer; traces that cannot be read are an error with its code, unlike for an assistant."""
    from traceanalyzer.agents.verbs import COULD_NOT_LOOK, VERBS, Workspace

    workspace = Workspace((Path.cwd(),), jobs, follow_links, is_open=True)
    answer = VERBS[question](workspace, **{key: value for key, value in given.items() if value is not None})
    if as_json:
        click.echo(answer.text())
    else:
        _show(answer, (given.get("sort") or _SHOWN_FIRST.get(question, "")).split())
    if answer.status == COULD_NOT_LOOK:
        click.get_current_context().exit(USAGE_OR_INPUT)


# An answer on the terminal.


_SHOWN_FIRST: Mapping[str, str] = {
    "summary": "rank step_mean_ns compute_pct exposed_comm_pct idle_pct overlap_pct exposed_copy_pct window_ns",
    "steps": "rank step window_ns compute_ns exposed_comm_ns idle_ns is_complete",
    "why-waiting": "rank step collective wait_ns transfer_ns waits_for",
    "compare": "metric run value change change_pct change_pct_points",
}
"""Columns that answer the question, where a terminal has no room for all."""

_HEADLINES = ("headline", "title")
"""Columns whose text stands for the row."""

_FOR_PROGRAMS = (
    *("id", "start_ns", "end_ns", "evidence", "also", "caveat", "what_if"),
    *("why", "fix", "recommendation", "saves"),
)
"""Shown by `--json` alone, or on lines of their own."""

_WIDEST = 60


def _show(answer: "Answer", first: Sequence[str]) -> None:
    """Sentences, rows, notes; `first` are the columns to prefer."""
    from rich.markup import escape

    console = console_of({})
    why = [f"{answer.status.replace('_', ' ')}: {answer.why}"] if answer.why else []
    lines = [*answer.said, *why]
    is_of_sentences = bool(answer.rows) and any(name in answer.rows[0] for name in _HEADLINES)
    lines += [line for row in answer.rows for line in _lines(row)] if is_of_sentences else []
    for line in lines:
        console.print(escape(line), highlight=False)
    if answer.rows and not is_of_sentences:
        console.print(_table(answer, console.width, first))
    more = [] if answer.cursor is None else [f"{answer.total_rows} rows; for the next ones: --cursor {answer.cursor}"]
    for note in (*more, *(f"Note: {note}" for note in answer.notes)):
        console.print(escape(note), highlight=False, style="dim")


def _lines(row: Mapping[str, Any]) -> Iterator[str]:
    """A finding with its evidence and fix; a table's name and title."""
    headline = next(str(row[name]) for name in _HEADLINES if name in row)
    if "rows" in row:
        yield f"{row['id']}: {headline} ({row['rows']:,} row{'' if row['rows'] == 1 else 's'})"
        return
    cells = {name: _cell(name, value) for name, value in row.items() if name not in (*_FOR_PROGRAMS, *_HEADLINES)}
    facts = [f"{name.partition('_')[0]} {cell}" if name != "severity" else cell for name, cell in cells.items() if cell]
    yield f"• {headline} ({'; '.join(facts)})" if facts else f"• {headline}"
    yield from (f"  – {line}" for line in (row.get("why"), *(row.get("also") or ())) if line)
    yield from (f"  → {line}" for line in (row.get("fix"), row.get("recommendation")) if line)


def _table(answer: "Answer", width: int, first: Sequence[str]) -> "Table":
    """As many columns as fit, in their order; below it the names of all."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from traceanalyzer.analyses import column_named
    from traceanalyzer.meaning.columns import Unit
    from traceanalyzer.report.words import label

    every = dict.fromkeys(name for row in answer.rows for name in row)
    names = [name for name in every if name not in _FOR_PROGRAMS and not column_named(name).is_moment]
    # In a row about one figure the figure says the unit.
    units = {name: [row.get("metric", name) if name in _OF_A_FIGURE else name for row in answer.rows] for name in names}
    cells = {
        name: [_cell(unit, row.get(name)) for unit, row in zip(units[name], answer.rows, strict=True)] for name in names
    }
    heads = {name: label(name, column_named(name)) for name in names if any(cells[name])}

    def place(name: str) -> tuple[int, bool, bool]:
        """Columns asked for first, then those that identify a row, then those that a page shows at once."""
        column = column_named(name)
        asked_for = first.index(name) if name in first else len(first)
        return asked_for, column.unit is not Unit.ID, column.is_secondary or column.is_aside

    shown, room = set[str](), width + 1  # nothing follows the last column but the table's edge
    for name in sorted(heads, key=place):
        needed = min(_WIDEST, max(map(len, (heads[name], *cells[name])))) + 3
        if needed <= room or not shown:
            shown.add(name)
            room -= needed
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption_justify="left")
    kept = [name for name in heads if name in shown]
    for name in kept:
        is_text = all(isinstance(row.get(name), str | bool | None) for row in answer.rows)
        table.add_column(
            escape(heads[name]), overflow="ellipsis", max_width=_WIDEST, no_wrap=True,
            justify="left" if is_text else "right",
        )  # fmt: skip
    for row in zip(*(cells[name] for name in kept), strict=True):
        if sum(map(bool, row)) > 1 or len(kept) == 1:  # the rest of such a row is in columns without room
            table.add_row(*map(escape, row))
    if [*heads.values()] != [*every]:
        table.caption = f"All columns, as --json names them: {', '.join(name for name in every if name != 'id')}"
    return table


_OF_A_FIGURE = ("value", "rank_min", "rank_max", "std", "change")


def _cell(name: str, value: Any) -> str:
    from traceanalyzer.analyses import column_named
    from traceanalyzer.meaning import columns
    from traceanalyzer.report.words import words

    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float | int):
        return columns.text(value, column_named(name).unit)
    return words(str(value), column_named(name))


@command()
@option("--root roots FOLDER*", "Folder that may be read; repeatable (default: the current one).")
@JOBS
def mcp(roots: tuple[Path, ...], jobs: int | None) -> None:
    """Serve the questions to AI assistants over MCP.

    Uses standard input and output, reads traces below the roots only and writes nothing. Needs the extra: pip install
    '.[agents]' in the clone.
    """
    from traceanalyzer.agents.server import server
    from traceanalyzer.agents.verbs import Workspace

    for root in roots:
        if not root.is_dir():
            raise UsageError(f"--root {root}: no such folder")
    server(Workspace(roots or (Path.cwd(),), jobs)).run()
