"""Options that several commands share, and exit codes."""

import math
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


# The command's exit codes.


DONE = 0

GATE_FAILED = 1
"""A condition of `--fail-on` holds."""

USAGE_OR_INPUT = 2

PARTIAL = 3
"""A report was written, but a bug of ours kept parts of it from being computed: its notes name them."""

INCONCLUSIVE = 4
"""No gate failed, but the repeats cannot tell one from noise; `--inconclusive` chooses another code."""

CANNOT_JUDGE = 5
"""No condition holds, but the figure of one is missing, or the report marks it as doubtful."""

BUG = 70
"""Nothing was written, because of a bug of ours."""

INTERRUPTED = 130

TERMINATED = 143
"""Ended by SIGTERM or SIGHUP, as a scheduler does: nothing half-written is left."""


# Options that several commands share.


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def options_of(*decorators: Decorator) -> Decorator:
    """Several options as one decorator, in the order in which help shows them."""
    return lambda function: reduce(lambda made, decorate: decorate(made), reversed(decorators), function)


class _Place(click.Path):
    """A path; an empty one, as an unset variable leaves it, is not the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty (an unset variable?)", param, ctx)
        return super().convert(value, param, ctx)


UNPROFILED_STEP = click.option(
    "--unprofiled-step", type=float, metavar="MS",
    help="Mean step without the profiler in ms, from which its overhead follows (default: as run.json or a framework's "
    "log beside the traces has it).",
)  # fmt: skip
"""The step of the same job without a profiler."""

PLACE = _Place(path_type=Path)
"""The type of options and arguments that name a file or folder."""

FORCE = click.option("--force", is_flag=True, help="Replace files in the output folder that no report wrote.")

STEPS = "all, complete (steps), last (complete step), numbers such as 2 or 2,4, or FIRST:LAST such as 2:4"
"""What `--steps` takes."""


def wanted_gates(options: Mapping[str, Any], *, of_comparison: bool = False) -> "list[Gate]":
    """The gates of the options, in order: nothing is read before they are known to make sense.

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
    """The exit code of gates."""
    from traceanalyzer import gate

    codes = {gate.FAILED: GATE_FAILED, gate.UNKNOWN: CANNOT_JUDGE, gate.INCONCLUSIVE: inconclusive}
    return codes.get(gate.gravest(outcomes), DONE)


def find_traces(folder: Path | None, options: Mapping[str, Any]) -> "tuple[Found, str, Path]":
    """What the options of `input_options` name, what to call it, and where its report lies unless the user says.

    Raises:
        UsageError: they name nothing, or more than one thing.
    """
    from traceanalyzer.discovery import discover, of_files
    from traceanalyzer.loading import label_of

    files, regex = options["trace_files"], options["rank_regex"]
    given = [place for place in (folder, options["trace_dir"], *files[:1]) if place is not None]
    if len(given) != 1:
        raise UsageError("name the traces once: --trace-dir FOLDER, or --trace-file FILE (repeatable)")
    if files:
        alone = files[0] if len(files) == 1 else files[0].parent
        return of_files(files, regex), label_of(alone), default_output(alone)
    found = discover(given[0], regex, follows_links=options["follow_links"])
    return found, label_of(given[0]), default_output(given[0])


def default_output(place: Path) -> Path:
    """`a/b/reports/z3` for traces in `a/b/profile/z3`; else, or where that is closed, `reports/<name>` here."""
    from traceanalyzer.loading import label_of

    parts = place.resolve().parts
    if "profile" in parts[:-1]:
        beside = Path(*parts[: -1 - parts[::-1].index("profile")])
        if beside != Path.cwd() and os.access(beside, os.W_OK):
            return beside / "reports" / label_of(place)
    return Path("reports", label_of(place))


def command_line() -> str:
    """The command as it was given, to make the same again."""
    return shlex.join(["analyze-traces", *sys.argv[1:]])


def print_notes(notes: Iterable[str], console: "Console") -> None:
    """Print what is to be known, as the report's summary prints its notes."""
    from rich.markup import escape

    for note in notes:
        console.print(f"[yellow]Note:[/] {escape(note)}", highlight=False, soft_wrap=True)


def print_written(
    files: "Sequence[Path]", target: Path, notes: Iterable[str], options: Mapping[str, Any], console: "Console"
) -> Path:
    """Print notes and what was written; returns the page, or the folder where there is none."""
    show = partial(console.print, highlight=False, soft_wrap=True, markup=False)
    print_notes(notes, console)
    if options["verbose"]:
        show(*(f"wrote {path}" for path in files), sep="\n")
    page = next((path for path in files if path.suffix == ".html"), target)
    show(f"{'Files in' if page == target else 'Report'}: {page}")
    return page


def load_options(options: Mapping[str, Any]) -> "LoadOptions":
    """What of the traces is read, by the options of `input_options`."""
    from traceanalyzer.kinds import KindRules
    from traceanalyzer.loading import LoadOptions, parse_ranks
    from traceanalyzer.selection import Selection

    return LoadOptions(
        ranks=parse_ranks(options["ranks"]),
        selection=Selection(options["step_range"], options["steps"]),
        rules=KindRules.parse(options["kinds"]),
        follows_links=options["follow_links"],
        cache=cache_folder(options),
    )


def cache_folder(options: Mapping[str, Any]) -> Path | None:
    """Where large traces that were read are kept; `None` where they are not."""
    from traceanalyzer.files.cached import default_folder

    return None if options["no_cache"] else default_folder()


FOLLOW_LINKS = "Read what links in the folder name outside it; else they are skipped."

JOBS = click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes (default: one a core).")

LINKS = click.option("--follow-links", is_flag=True, help=FOLLOW_LINKS)

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

OPEN = click.option("--open", "open_page", is_flag=True, help="Open the report in the browser.")


def output_option(default: Path | None = None, what: str = "Where to write.") -> Decorator:
    """The folder to write into."""
    return click.option(
        "--output", "-o", type=PLACE, default=default, show_default=default is not None, metavar="FOLDER", help=what
    )


def select_option(of_all: str) -> Decorator:
    """Which runs of a folder are meant; `of_all` says what becomes of all."""
    return click.option(
        "--select", type=click.Choice(["latest", "all"]), default="latest", show_default=True,
        help=f"Which of several runs in a folder; all {of_all}.",
    )  # fmt: skip


def steps_option(what: str, default: str) -> Decorator:
    """Part of the capture."""
    return click.option("--steps", default=default, show_default=True, metavar="WHICH", help=what)


part_options = options_of(
    click.option("--ranks", metavar="LIST", help="Only these ranks, such as 0,2-3."),
    click.option(
        "--step-range", metavar="NAME",
        help="Name or pattern of the ranges that mark steps (default: ProfilerStep#*, else a guess).",
    ),
    click.option(
        "--kind", "kinds", multiple=True, metavar="KIND=REGEX",
        help="Kernels that match are compute, comm or copy, such as comm=my_all_reduce; repeatable.",
    ),
    JOBS,
    click.option(
        "--enable-multiprocessing", is_flag=True, expose_value=False,
        help="Read with several processes, as is done anyway: --jobs says how many.",
    ),
    LINKS,
    click.option("--no-cache", is_flag=True, help="Read large traces anew, and keep nothing of them (`cache info`)."),
)  # fmt: skip
"""What of the traces is looked at."""

gate_options = options_of(
    click.option(
        "--fail-on", "gates", multiple=True, metavar="GATE",
        help="Exit with 1 when this holds, such as 'idle_pct > 10 @ any rank'; repeatable (grammar: docs/gates.md).",
    ),
    click.option(
        "--gates", "gate_files", type=PLACE, multiple=True, metavar="FILE",
        help="The same from a file, one a line; repeatable.",
    ),
)  # fmt: skip
"""Conditions under which the exit code is not 0."""

input_options = options_of(
    click.option(
        "--trace-dir", type=PLACE, metavar="FOLDER",
        help="Folder that holds the traces of the run (searched below it too).",
    ),
    click.option(
        "--trace-file", "trace_files", type=PLACE, multiple=True, metavar="FILE",
        help="One trace of the run, instead of a folder; repeat for each rank.",
    ),
    click.option(
        "--rank-regex", metavar="REGEX",
        help="Where files do not say their rank: finds it in their paths, such as 'gpu(\\d+)'.",
    ),
    select_option("writes run_<n>_<timestamp>/ for each"),
    steps_option(f"Part of the capture to look at: {STEPS}.", "all"),
    part_options,
)  # fmt: skip
"""Where the traces are, and what of them is looked at."""

talk_options = options_of(
    click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors, and gates that did not pass."),
    click.option("--verbose", "-v", is_flag=True, help="Print what is done, and tracebacks of bugs."),
)
"""How much is printed."""


# `--threshold NAME=VALUE`: limits of analyses and of rules, by parameter name.


threshold_option = click.option(
    "--threshold", "limits", multiple=True, metavar="NAME=VALUE",
    help="Set a limit of a rule (docs/findings.md) or an analysis, such as silent_pct=5; repeatable.",
)  # fmt: skip


def read_thresholds(texts: Iterable[str]) -> dict[str, Any]:
    """Thresholds of analyses by name.

    Raises:
        UsageError: one has no such name, or no number.
    """
    if not (given := tuple(texts)):
        return {}
    from traceanalyzer.functions import thresholds_of_analyses, thresholds_with_numbers

    known, read = thresholds_with_numbers(), {}
    for text in given:
        name, _, value = (part.strip() for part in text.partition("="))
        read[name] = _number(text, value, known.get(name, float))
    return thresholds_of_analyses(read, known)


def _number(text: str, value: str, kind: type) -> float:
    """A whole number where that is one."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (kind is int and not number.is_integer()):
        what = "a whole number" if kind is int else "a number"
        raise UsageError(f"--threshold {text}: write NAME=VALUE, the value {what}")
    return int(number) if kind is int else number


# How far a command is with its files.


@contextmanager
def progress(console: "Console", files: int) -> Iterator[Callable[[int, int], None]]:
    """A function to call as files are done; a bar only on a terminal, for several files."""
    if not console.is_terminal or files == 1:
        yield lambda _done, _all: None
        return
    from rich.progress import Progress

    # Drawn as files are done, without a thread of its own: a process with threads cannot be forked.
    with Progress(console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("Reading traces", total=files)
        yield lambda done, _all: bar.update(task, completed=done, refresh=True)
