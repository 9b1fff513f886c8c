"""`analyze-traces query`: one question about a run, answered in words or as JSON; `memory`; and `mcp`."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.agents import QUESTIONS, Question
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
    Options,
    Source,
    command,
    model_option,
    option,
    options_of,
    steps_option,
)
from traceanalyzer.cli.output import console_of
from traceanalyzer.errors import InputError, UsageError

if TYPE_CHECKING:
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

_SELECTORS: Mapping[str, Any] = {
    "ranks": RANKS,
    "steps": steps_option("Only these steps"),
    "where": option("--where CONDITION*", "Only rows such as rank=0, 'wait_ns>1e6' or name~nccl; repeatable."),
    "sort": option("--sort COLUMN", "Sort by this column, largest first."),
    "top": _TOP,
}

_READING = options_of(
    option("--cursor N", "Continue from this row, as the previous answer says.", type=int),
    JSON, JOBS, LINKS,
)  # fmt: skip


def _question(name: str, question: Question) -> Command:
    def asked(**given: Any) -> None:
        _answer(name, **given)

    selectors = [_SELECTORS[one] for one in question.selectors.split()]
    decorators = (*map(click.argument, question.arguments.split()), *selectors, _READING)
    made: Command = command(name, help=question.what)(options_of(*decorators)(asked))
    return made


for one, asked_for in QUESTIONS.items():
    if one not in ("what-if", "memory"):  # which are commands of their own
        query.add_command(_question(one, asked_for))


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
    from traceanalyzer.cli.output import snapshots_in
    from traceanalyzer.cli.snapshots import report_alone

    source = Source(folder=folder, ranks=given["ranks"], follow_links=given["follow_links"], model=model)
    options = Options(as_json=given["as_json"], output=output, force=force)
    snapshots = snapshots_in(folder, follows_links=source.follow_links)
    if not snapshots:
        raise InputError(f"{folder}: no memory snapshots; without --output the memory of traces is shown")
    return report_alone(snapshots, source, options, [])


def _answer(question: str, /, *, as_json: bool, jobs: int | None, follow_links: bool, **given: Any) -> None:
    """Print the answer; traces that cannot be read are an error with its code, unlike for an assistant."""
    from traceanalyzer.agents.verbs import COULD_NOT_LOOK, VERBS, Asked, Workspace

    workspace = Workspace((Path.cwd(),), jobs, follow_links, is_open=True)
    answer = VERBS[question](workspace, Asked(**{key: value for key, value in given.items() if value is not None}))
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

_FOR_PROGRAMS = ("id", "values", "definition")
"""Shown by `--json` alone."""

_OF_A_FIGURE = ("value", "rank_min", "rank_max", "std", "change")
"""Columns of a row about one figure, whose unit the figure says."""


def _show(answer: "Answer", first: Sequence[str]) -> None:
    """Sentences, rows, notes; `first` are the columns to prefer."""
    import pandas as pd

    from traceanalyzer.analyses import column_named
    from traceanalyzer.report.table_view import console_table, unwrapped, view_of

    console = console_of()
    show = partial(unwrapped(console), markup=False)
    why = [f"{answer.status.replace('_', ' ')}: {answer.why}"] if answer.why else []
    is_of_sentences = bool(answer.rows) and any(name in answer.rows[0] for name in _HEADLINES)
    for line in (*answer.said, *why, *(line for row in answer.rows if is_of_sentences for line in _lines(row))):
        show(line)
    if answer.rows and not is_of_sentences:
        frame = pd.DataFrame([_with_units(row) for row in answer.rows])
        frame = frame[[name for name in frame if name not in _FOR_PROGRAMS and not column_named(name).is_moment]]
        console.print(console_table(view_of(frame.convert_dtypes(), "", {}), console.width, first))
    more = [] if answer.cursor is None else [f"{answer.total_rows} rows; for the next ones: --cursor {answer.cursor}"]
    for note in (*more, *(f"Note: {note}" for note in answer.notes)):
        show(note, style="dim")


def _lines(row: Mapping[str, Any]) -> Iterator[str]:
    """A finding with its evidence, fix and saving; a table's name and title."""
    from traceanalyzer.meaning.columns import digits

    headline = next(str(row[name]) for name in _HEADLINES if name in row)
    if "rows" in row:
        yield f"{row['id']}: {headline} ({row['rows']:,} row{'' if row['rows'] == 1 else 's'})"
        return
    yield f"• {headline} ({row['severity']})"
    saves, level = row.get("saves") or {}, (row.get("confidence") or {}).get("level")
    ms = {name: digits(number) for name, number in saves.items()}
    told = f"{ms['ms']} of {ms['before_ms']} ms ({ms['low_ms']} to {ms['high_ms']}), confidence {level}" if ms else None
    fields = {**row, "saves": told}
    names = ("why", "fix", "saves", "caveat", "what_if", "table")
    yield from (f"  {name:<8} {fields[name]}" for name in names if fields.get(name))


def _with_units(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row; figures of its metric as texts."""
    from traceanalyzer.analyses import column_named
    from traceanalyzer.meaning.columns import text

    if "metric" not in row:
        return dict(row)
    unit = column_named(row["metric"]).unit
    return {name: text(value, unit) if name in _OF_A_FIGURE else value for name, value in row.items()}


@command()
@option("--root roots FOLDER*", "Folder that may be read; repeatable (default: the current one).")
@JOBS
def mcp(roots: tuple[Path, ...], jobs: int | None) -> None:
    """Serve the questions to AI assistants over MCP.

    Uses standard input and output, reads traces below the roots only and writes nothing. Needs the extra: pip install
    '.[agents]' in the clone.
    """
    from traceanalyzer.agents.verbs import Workspace, server

    for root in roots:
        if not root.is_dir():
            raise UsageError(f"--root {root}: no such folder")
    server(Workspace(roots or (Path.cwd(),), jobs)).run()
