"""`analyze-traces summary`, `findings`, `table` …: one question, answered in words or as JSON; and `mcp`."""

from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.agents.questions import QUESTIONS
from traceanalyzer.cli.options import JOBS, LINKS, PLACE, USAGE_OR_INPUT, options_of
from traceanalyzer.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from traceanalyzer.agents.verbs import Answer


class Question(click.Command):
    """A command whose arguments are the parameters of a question, read when it is first looked at."""

    def __init__(self, name: str) -> None:
        super().__init__(name, callback=self._asked, help=QUESTIONS[name])
        self._is_known = False

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Arguments and options, from the question's own signature."""
        self._learn()
        return super().get_params(ctx)

    def _learn(self) -> None:
        if self._is_known:
            return
        from traceanalyzer.agents.verbs import parameters

        assert self.name is not None
        self.params = [*map(_parameter, parameters(self.name)), _JSON, *_SHARED]
        self._is_known = True

    def _asked(self, as_json: bool, jobs: int | None, follow_links: bool, **given: Any) -> None:
        from traceanalyzer.agents.verbs import COULD_NOT_LOOK, VERBS, Workspace

        assert self.name is not None
        # What cannot be read is an answer to an assistant; here it is an error, with its code.
        answer = VERBS[self.name](Workspace((Path.cwd(),), jobs, follow_links, is_open=True), **given)
        if as_json:
            click.echo(answer.text())
        else:
            sort = given.get("sort")
            _show(answer, (sort,) if sort else _SHOWN_FIRST.get(self.name, ()))
        if answer.status == COULD_NOT_LOOK:
            click.get_current_context().exit(USAGE_OR_INPUT)


_SHOWN_FIRST: Mapping[str, tuple[str, ...]] = {
    "summary": (
        *("rank", "step_mean_ns", "compute_pct", "exposed_comm_pct", "idle_pct", "overlap_pct"),
        *("exposed_copy_pct", "window_ns"),
    ),
    "steps": ("rank", "step", "window_ns", "compute_ns", "exposed_comm_ns", "idle_ns", "is_complete"),
    "why-waiting": ("rank", "step", "collective", "wait_ns", "transfer_ns", "waits_for"),
    "compare": ("metric", "run", "value", "change", "change_pct", "change_pct_points"),
}
"""Columns that answer the question, where a terminal has no room for all."""

_JSON = click.Option(["--json", "as_json"], is_flag=True, help="The answer as JSON, with what every column means.")

_SHARED: list[click.Parameter] = click.command(options_of(JOBS, LINKS)(lambda: None)).params


def _parameter(one: Parameter) -> click.Parameter:
    """What has no default is an argument, the rest are options."""
    of_int = one.annotation in (int, int | None)
    kind = click.INT if of_int else click.STRING
    if one.default is Parameter.empty:
        return click.Argument([one.name], type=kind)
    is_list = one.default == ()
    default = None if is_list else one.default
    metavar, told = _OPTIONS[one.name]
    return click.Option([f"--{one.name}"], type=kind, multiple=is_list, default=default, metavar=metavar, help=told)


_OPTIONS: Mapping[str, tuple[str, str]] = {
    "top": ("N", "No more rows than these."),
    "cursor": ("N", "Go on from this row, which the answer before names."),
    "rank": ("RANK", "Of this rank alone."),
    "step": ("STEP", "Of this step alone."),
    "where": ("CONDITION", "Rows for which it holds, such as rank=0, 'wait_ns>1e6' or name~nccl; repeatable."),
    "sort": ("COLUMN", "By this column, largest first."),
}
"""What help says of a question's options."""


def _show(answer: "Answer", first: Sequence[str] = ()) -> None:
    """Sentences, rows, notes; `first` are the columns to show before others."""
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    for sentence in (*answer.said, *([f"{answer.status.replace('_', ' ')}: {answer.why}"] if answer.why else [])):
        console.print(escape(sentence), highlight=False)
    if answer.rows and "title" in answer.rows[0]:
        for row in answer.rows:
            for line in _lines(row):
                console.print(escape(line), highlight=False)
    elif answer.rows:
        console.print(_table(answer, console.width, first))
    for note in _ends(answer):
        console.print(escape(note), highlight=False, style="dim")


def _lines(row: Mapping[str, Any]) -> Iterator[str]:
    """A row that is a sentence; of a finding with its other signs and what to do; a table's name before its title."""
    if "rows" in row:
        yield f"{row['id']}: {row['title']} ({row['rows']:,} row{'' if row['rows'] == 1 else 's'})"
        return
    yield f"• {_in_words(row)}"
    for sign in row.get("also") or ():
        yield f"  – {sign}"
    if row.get("recommendation"):
        yield f"  → {row['recommendation']}"


def _in_words(row: Mapping[str, Any]) -> str:
    """A row that is a sentence: `… (medium; gain 5.63 ms; table sync_calls)`."""
    rest = {name: _cell(name, value) for name, value in row.items() if name not in (*_FOR_PROGRAMS, "title")}
    told = [f"{name.partition('_')[0]} {cell}" if name != "severity" else cell for name, cell in rest.items() if cell]
    return f"{row['title']} ({'; '.join(told)})" if told else str(row["title"])


def _table(answer: "Answer", width: int, first: Sequence[str]) -> "Table":
    """As many columns as fit, in their order; below it what files call all of them. What no row has takes no room."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from traceanalyzer.analyses import column_named
    from traceanalyzer.report.words import label

    every = dict.fromkeys(name for row in answer.rows for name in row)
    names = [name for name in every if name not in _FOR_PROGRAMS and not column_named(name).is_moment]
    cells = {name: [_cell(_measured(name, row), row.get(name)) for row in answer.rows] for name in names}
    cells = {name: column for name, column in cells.items() if any(column)}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption_justify="left")
    heads = {name: label(name, column_named(name)) for name in cells}
    shown = _fitting({name: [heads[name], *cells[name]] for name in cells}, width, first)
    for name in shown:
        is_text = all(isinstance(row.get(name), str | bool | None) for row in answer.rows)
        table.add_column(
            escape(heads[name]), overflow="ellipsis", max_width=_WIDEST, no_wrap=True,
            justify="left" if is_text else "right",
        )  # fmt: skip
    for row in zip(*(cells[name] for name in shown), strict=True):
        if sum(map(bool, row)) > 1 or len(shown) == 1:  # the rest of such a row is in columns without room
            table.add_row(*map(escape, row))
    if list(heads.values()) != list(every):
        table.caption = f"All columns, as --json names them: {', '.join(name for name in every if name != 'id')}"
    return table


def _fitting(cells: Mapping[str, list[str]], width: int, first: Sequence[str]) -> list[str]:
    """Columns, heads included, that have room together, `first` before the others; in the order of the table."""
    kept = set[str]()
    room = width + 1  # the last column has nothing behind it but the table's edge
    for name in sorted(cells, key=lambda name: _place(name, first)):
        needed = min(_WIDEST, max(map(len, cells[name]))) + 3
        if needed <= room or not kept:
            kept.add(name)
            room -= needed
    return [name for name in cells if name in kept]


def _place(name: str, first: Sequence[str]) -> tuple[int, bool, bool]:
    """Those asked for, then what tells rows apart, then what a page shows at once."""
    from traceanalyzer.analyses import column_named
    from traceanalyzer.meaning.columns import Unit

    column = column_named(name)
    asked_for = first.index(name) if name in first else len(first)
    return asked_for, column.unit is not Unit.ID, column.is_secondary or column.is_aside


def _measured(name: str, row: Mapping[str, Any]) -> str:
    """The column that tells a cell's unit: of a row for each figure, the figure."""
    return str(row["metric"]) if name in _OF_THE_METRIC and "metric" in row else name


_OF_THE_METRIC = ("value", "rank_min", "rank_max", "std", "change")

_FOR_PROGRAMS = ("id", "start_ns", "end_ns", "evidence", "also", "caveat", "recommendation")
"""Shown by `--json` alone."""

_WIDEST = 60


def _ends(answer: "Answer") -> Iterator[str]:
    if answer.cursor is not None:
        yield f"{answer.total_rows} rows in all: --cursor {answer.cursor} for those that follow"
    for note in answer.notes:
        yield f"Note: {note}"


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


@click.command()
@click.option("--root", "roots", type=PLACE, multiple=True, metavar="FOLDER",
              help="Folder that may be read; repeatable (default: the current one).")  # fmt: skip
@JOBS
def mcp(roots: tuple[Path, ...], jobs: int | None) -> None:
    """Serve the questions to assistants over MCP (standard input and output).

    Reads traces below the roots only and writes nothing. Needs the extra: pip install '.[agents]' in the clone.
    """
    from traceanalyzer.agents.server import server
    from traceanalyzer.agents.verbs import Workspace

    for root in roots:
        if not root.is_dir():
            raise UsageError(f"--root {root}: no such folder")
    server(Workspace(roots or (Path.cwd(),), jobs)).run()


_ELSEWHERE = "what-if"
"""A command of its own, with an option for each part of a job."""

COMMANDS = (*(Question(name) for name in QUESTIONS if name != _ELSEWHERE), mcp)
