"""Options that several commands share, their two levels of help, exit codes and what every command prints."""

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from traceanalyzer.discovery import Found
    from traceanalyzer.gate import Gate, Outcome
    from traceanalyzer.loading import LoadOptions

DONE, GATE_FAILED, USAGE_OR_INPUT, PARTIAL, INCONCLUSIVE, CANNOT_JUDGE, BUG, INTERRUPTED, TERMINATED = (
    *(0, 1, 2, 3, 4, 5),
    *(70, 130, 143),
)
"""Exit codes, explained in `cli.cli`."""


# Commands and options: `--help` lists the common ones, `--help-all` all of them.


class _Place(click.Path):
    """A path; an empty one, as an unset variable leaves it, is not the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty (an unset variable?)", param, ctx)
        return super().convert(value, param, ctx)


PLACE = _Place(path_type=Path)
"""The type of options and arguments that name a file or folder."""

_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("FOLDER", "FILE", "PLACE"), PLACE), "N": click.IntRange(min=1),
    **dict.fromkeys(("RANK", "STEP"), click.IntRange(min=0)),
}  # fmt: skip


class Rare(click.Option):
    """An option that only `--help-all` lists."""


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option(shown: str, what: str, *, is_rare: bool = False, **more: Any) -> Decorator:
    """An option as help shows it: `-o --output FOLDER`, `--gates gate_files FILE*` (repeatable), `--open` (a flag).

    A word in lower case is the parameter's name; the word for the value decides the type.
    """
    names = [word for word in shown.split() if word.startswith("-") or word.islower()]
    if len(names) < len(shown.split()):
        value = shown.rsplit(maxsplit=1)[-1]
        more = {"metavar": value.rstrip("*"), "multiple": value.endswith("*"), **more}
        more.setdefault("type", _TYPES.get(more["metavar"]))
    else:
        more["is_flag"] = True
    kind = Rare if is_rare else click.Option
    return click.option(*names, cls=kind, help=what, show_default=more.get("default") is not None, **more)


rare = partial(option, is_rare=True)


def _list_all(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        context.meta[_ALL] = True
        click.echo(context.get_help())
        context.exit()


_ALL = "traceanalyzer.help_all"

HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_list_all,
    help="Show all options and exit.",
)  # fmt: skip

RENAMED: Mapping[str, str] = {
    "--host": "--cpu", "--kind": "--kernel-kind", "--out": "--output", "--rank": "--ranks", "--step": "--steps",
}  # fmt: skip
"""Options by their old names, which work for this release."""


def write_options(options: Iterable[click.Parameter], context: click.Context, formatter: click.HelpFormatter) -> None:
    """The common options, and with `--help-all` the others in a section of their own."""
    common, others = list[tuple[str, str]](), list[tuple[str, str]]()
    for one in options:
        if isinstance(one, click.Option) and (record := one.get_help_record(context)):
            (others if isinstance(one, Rare) else common).append(record)
    with formatter.section("Options"):
        formatter.write_dl(common)
    if others and _ALL in context.meta:
        with formatter.section("More options"):
            formatter.write_dl(others)


class Command(click.Command):
    """A command with two levels of help, whose options also answer to their old names."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The options, with `--help-all` where `--help` leaves some out."""
        found = super().get_params(ctx)
        return [*found, HELP_ALL] if any(isinstance(one, Rare) for one in found) else found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace options that were renamed."""
        known = {name for one in self.get_params(ctx) for name in one.opts}
        return super().parse_args(ctx, [_renamed(word, known) for word in args])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write both levels."""
        write_options(self.get_params(ctx), ctx, formatter)


command = partial(click.command, cls=Command)


class Group(click.Group):
    """A group of such commands."""

    command_class = Command


def _renamed(word: str, known: set[str]) -> str:
    old, sign, value = word.partition("=")
    new = RENAMED.get(old)
    if new is None or old in known or new not in known:
        return word
    click.echo(f"{old} is now {new}.", err=True)
    return f"{new}{sign}{value}"


def options_of(*decorators: Decorator) -> Decorator:
    """Several options as one decorator, in the order in which help shows them."""
    return lambda function: reduce(lambda made, decorate: decorate(made), reversed(decorators), function)


UNPROFILED_STEP = rare(
    "--unprofiled-step MS",
    "Mean step without the profiler in ms, from which its overhead follows (default: as run.json or a framework's log "
    "beside the traces has it).",
    type=float,
)
"""The step of the same job without a profiler."""

FOLDER = click.argument("folder", required=False, type=PLACE)

FORCE = rare("--force", "Replace files in the output folder that no report wrote.")

JOBS = option("--jobs N", "Processes (default: one per core).")

LINKS = rare("--follow-links", "Also read files outside the folder that links in it point to.")

JSON = option("--json as_json", "Print JSON.")

OPEN = option("--open open_page", "Open the report in the browser.")

RANKS = option("--ranks LIST", "Only these ranks, such as 0,2-3.")

STEPS = "all, complete, last (complete step), numbers such as 2 or 2,4, or a range such as 2:4"
"""What `--steps` takes."""


def steps_option(what: str, default: str | None = None) -> Decorator:
    """Which steps."""
    return option("--steps WHICH", f"{what}: {STEPS}.", default=default)


def format_option(formats: Sequence[str], default: str) -> Decorator:
    """Which formats."""
    what = f"Formats to write: {', '.join(formats)}; repeatable (default: {default})."
    return option("--format formats NAME*", what, type=click.Choice(formats))


def select_option(of_all: str) -> Decorator:
    """Which runs of a folder; `of_all` says what becomes of all."""
    what = f"Which run, if the folder holds several: latest, or all, which {of_all}."
    return rare("--select WHICH", what, type=click.Choice(["latest", "all"]), default="latest")


part_options = options_of(
    RANKS,
    JOBS,
    rare("--step-range NAME", "Name or pattern of the ranges that mark steps (default: ProfilerStep#*, else a guess)."),
    rare("--kernel-kind kinds KIND=REGEX*",
         "Treat kernels that match as compute, comm or copy, such as comm=my_all_reduce; repeatable."),
    rare("--enable-multiprocessing", "Accepted; it is always on (see --jobs).", expose_value=False),
    LINKS,
    rare("--no-cache", "Read all traces anew and keep nothing for the next run."),
)  # fmt: skip
"""What of the traces is analyzed."""

gate_options = options_of(
    option("--fail-on gates GATE*",
           "Exit with 1 if this holds, such as 'idle_pct > 10 @ any rank'; repeatable (docs/compare.md)."),
    rare("--gates gate_files FILE*", "Read gates from a file, one per line; repeatable."),
)  # fmt: skip
"""Conditions under which the exit code is not 0."""


def input_options(*, is_main: bool = False) -> Decorator:
    """Where the traces are, and what of them is analyzed; the main command documents `--trace-dir`."""
    return options_of(
        option("--trace-dir FOLDER", "Folder with the traces of a run, the same as FOLDER.", hidden=not is_main),
        steps_option("Which steps to analyze", "all"),
        part_options,
        rare("--trace-file trace_files FILE*", "One trace of the run, instead of a folder; repeat for each rank."),
        rare("--rank-regex REGEX",
             "Find the rank in the path of files that do not record it, such as 'gpu(\\d+)'."),
        select_option("writes each to run_<n>_<timestamp>/"),
    )  # fmt: skip


talk_options = options_of(
    option("--quiet -q", "Print only errors and gates that did not pass."),
    rare("--verbose -v", "Print every file written, and the traceback of a bug."),
)
"""How much is printed."""

surroundings_options = options_of(
    rare("--topo FILE",
         "Output of `nvidia-smi topo -m` of the run's machine (default: beside the traces, or in run.json)."),
    rare("--nccl-log nccl_logs FILE*",
         "The run's NCCL_DEBUG=INFO log, or a folder of logs; repeatable (default: beside the traces)."),
)  # fmt: skip
"""Where the run's topology and NCCL logs are."""


def _entries(_context: Any, _option: Any, text: str | None) -> dict[str, object]:
    from traceanalyzer.job.model_state import entries

    return entries(text) if text else {}


model_option = rare(
    "--model NAME=VALUE,…",
    "Facts about the model, to estimate its memory: params=7e9,layers=32,d_model=4096,seq=4096,batch=1,dp=8 "
    "(default: from run.json; docs/memory.md).",
    callback=_entries,
)


# What the options ask for.


def load_options(options: Mapping[str, Any]) -> "LoadOptions":
    """What of the traces is read."""
    from traceanalyzer.kinds import KindRules
    from traceanalyzer.loading import LoadOptions, parse_ranks
    from traceanalyzer.loading.store import default_folder
    from traceanalyzer.selection import Selection

    return LoadOptions(
        ranks=parse_ranks(options["ranks"]),
        selection=Selection(options["step_range"], options["steps"]),
        rules=KindRules.parse(options["kinds"]),
        follows_links=options["follow_links"],
        cache=None if options["no_cache"] else default_folder(),
    )


def find_traces(folder: Path | None, options: Mapping[str, Any]) -> "tuple[Found, str, Path]":
    """The traces that `input_options` name, the run's name, and the default folder of its report.

    Raises:
        UsageError: they name nothing, or more than one thing.
    """
    from traceanalyzer.discovery import discover, of_files
    from traceanalyzer.loading import label_of

    files, regex = options["trace_files"], options["rank_regex"]
    given = [place for place in (folder, options["trace_dir"], *files[:1]) if place is not None]
    if len(given) != 1:
        raise UsageError("name the traces once: a folder, or --trace-file FILE (repeatable)")
    place = given[0] if len(files) < 2 else files[0].parent
    found = of_files(files, regex) if files else discover(place, regex, follows_links=options["follow_links"])
    return found, label_of(place), default_output(place)


def default_output(place: Path) -> Path:
    """`a/b/reports/z3` for traces in `a/b/profile/z3`; otherwise, or where that is closed, `reports/<name>` here."""
    from traceanalyzer.loading import label_of

    parts = place.resolve().parts
    if "profile" in parts[:-1]:
        beside = Path(*parts[: -1 - parts[::-1].index("profile")])
        if beside != Path.cwd() and os.access(beside, os.W_OK):
            return beside / "reports" / label_of(place)
    return Path("reports", label_of(place))


def wanted_gates(options: Mapping[str, Any], *, of_comparison: bool = False) -> "list[Gate]":
    """The gates of the options, in order, checked before anything is read.

    Raises:
        UsageError: one cannot be evaluated, whatever the traces hold.
    """
    if not options["gates"] and not options["gate_files"]:
        return []
    from traceanalyzer import gate

    wanted = [gate.parse(text) for text in options["gates"]]
    wanted += [one for path in options["gate_files"] for one in gate.parse_file(path)]
    gate.check_names(wanted, of_comparison=of_comparison)
    return wanted


def gate_code(outcomes: "Sequence[Outcome]", inconclusive: int = INCONCLUSIVE) -> int:
    """The exit code of gates; in GitHub Actions each that did not pass becomes an annotation, too."""
    if not outcomes:
        return DONE
    from traceanalyzer import gate

    codes = {gate.FAILED: GATE_FAILED, gate.UNKNOWN: CANNOT_JUDGE, gate.INCONCLUSIVE: inconclusive}
    for one in outcomes if os.environ.get("GITHUB_ACTIONS") == "true" else ():
        if one.status in codes:
            level = "error" if codes[one.status] else "warning"
            text = f"{one.run}: {one.gate}: {one.status}. {one.message}"
            for character in "%\r\n":  # as GitHub reads them
                text = text.replace(character, f"%{ord(character):02X}")
            click.echo(f"::{level} title=Performance gate::{text}", err=True)
    return codes.get(gate.gravest(outcomes), DONE)


def read_thresholds(texts: Iterable[str]) -> dict[str, Any]:
    """Thresholds of analyses by name.

    Raises:
        UsageError: one has no such name, or no number.
    """
    if not (given := tuple(texts)):
        return {}
    from traceanalyzer.functions import thresholds_of_analyses, thresholds_with_numbers

    known, read = thresholds_with_numbers(), dict[str, float]()
    for text in given:
        name, _, value = (part.strip() for part in text.partition("="))
        kind = known.get(name, float)
        try:
            read[name] = kind(value)
        except ValueError as error:
            what = "a whole number" if kind is int else "a number"
            raise UsageError(f"--threshold {text}: write NAME=VALUE, the value {what}") from error
    return thresholds_of_analyses(read, known)


# What commands print.


def command_line() -> str:
    """The command as it was given, to run it again."""
    return shlex.join(["analyze-traces", *sys.argv[1:]])


def console_of(options: Mapping[str, Any]) -> "Console":
    """Where a command prints: standard error where standard output is for JSON."""
    from rich.console import Console

    return Console(quiet=options.get("quiet", False), stderr=options.get("as_json", False))


def say(console: "Console", *texts: str) -> None:
    """Print lines as they are."""
    for text in texts:
        console.print(text, highlight=False, soft_wrap=True, markup=False)


def print_notes(notes: Iterable[str], console: "Console") -> None:
    """Print notes as the report's summary does."""
    from rich.markup import escape

    for note in notes:
        console.print(f"[yellow]Note:[/] {escape(note)}", highlight=False, soft_wrap=True)


def print_written(
    files: "Sequence[Path]", target: Path, notes: Iterable[str], options: Mapping[str, Any], console: "Console"
) -> Path:
    """Print notes and what was written; returns the page, or the folder if there is none."""
    print_notes(notes, console)
    if options["verbose"]:
        say(console, *(f"wrote {path}" for path in files))
    page = next((path for path in files if path.suffix == ".html"), target)
    say(console, f"{'Files in' if page == target else 'Report'}: {page}")
    if options["as_json"]:
        click.echo((target / "summary.json").read_text(encoding="utf-8"))
    return page


@contextmanager
def progress(console: "Console", files: int) -> Iterator[Callable[[int, int], None]]:
    """A function to call as files are done; draws a bar only on a terminal, for several files."""
    if not console.is_terminal or files == 1:
        yield lambda _done, _all: None
        return
    from rich.progress import Progress

    # Drawn as files are done, without a thread of its own: a process with threads cannot be forked.
    with Progress(console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("Reading traces", total=files)
        yield lambda done, _all: bar.update(task, completed=done, refresh=True)
