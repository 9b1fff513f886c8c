"""Options that several commands share, and exit codes."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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


class _Place(click.Path):
    """A path; an empty one, as an unset variable leaves it, is not the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty (an unset variable?)", param, ctx)
        return super().convert(value, param, ctx)


PLACE = _Place(path_type=Path)
"""The type of options and arguments that name a file or folder."""

FORCE = click.option("--force", is_flag=True, help="Replace files in the output folder that no report wrote.")

STEPS = "all, complete (steps), last (complete step), numbers such as 2 or 2,4, or FIRST:LAST such as 2:4"
"""What `--steps` takes."""


def input_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where the traces are, and what of them is looked at."""
    for decorate in reversed(_INPUT):
        function = decorate(function)
    return function


def talk_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How much is printed."""
    for decorate in reversed(_TALK):
        function = decorate(function)
    return function


def part_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What of the traces is looked at, where the traces themselves are arguments."""
    for decorate in reversed(_PART):
        function = decorate(function)
    return function


def gate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Conditions under which the exit code is not 0."""
    for decorate in reversed(_GATES):
        function = decorate(function)
    return function


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


def find_traces(
    folder: Path | None, trace_dir: Path | None, trace_files: tuple[Path, ...], rank_regex: str | None = None,
    *, follows_links: bool = False,
) -> "tuple[Found, str]":  # fmt: skip
    """What the options of `input_options` name, and what to call it.

    Raises:
        UsageError: they name nothing, or more than one thing.
    """
    from traceanalyzer.discovery import discover, of_files
    from traceanalyzer.loading import label_of

    given = [place for place in (folder, trace_dir, *trace_files[:1]) if place is not None]
    if len(given) != 1:
        raise UsageError("name the traces once: --trace-dir FOLDER, or --trace-file FILE (repeatable)")
    if trace_files:
        alone = trace_files[0] if len(trace_files) == 1 else trace_files[0].parent
        return of_files(trace_files, rank_regex), label_of(alone)
    return discover(given[0], rank_regex, follows_links=follows_links), label_of(given[0])


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

_PART: tuple[Decorator, ...] = (
    click.option("--ranks", metavar="LIST", help="Only these ranks, such as 0,2-3."),
    click.option(
        "--step-range", metavar="NAME",
        help="Name or pattern of the ranges that mark steps (default: ProfilerStep#*, else a guess).",
    ),
    click.option(
        "--kind", "kinds", multiple=True, metavar="KIND=REGEX",
        help="Kernels that match are compute, comm or copy, such as comm=my_all_reduce; repeatable.",
    ),
    click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes (default: one a core)."),
    click.option("--follow-links", is_flag=True, help=FOLLOW_LINKS),
    click.option("--no-cache", is_flag=True, help="Read large traces anew, and keep nothing of them (`cache info`)."),
)  # fmt: skip

_GATES: tuple[Decorator, ...] = (
    click.option(
        "--fail-on", "gates", multiple=True, metavar="GATE",
        help="Exit with 1 when this holds, such as 'idle_pct > 10 @ any rank'; repeatable (grammar: docs/gates.md).",
    ),
    click.option(
        "--gates", "gate_files", type=PLACE, multiple=True, metavar="FILE",
        help="The same from a file, one a line; repeatable.",
    ),
)  # fmt: skip

_INPUT: tuple[Decorator, ...] = (
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
    click.option(
        "--select", type=click.Choice(["latest", "all"]), default="latest", show_default=True,
        help="Which of several runs in the folder; all writes run_<n>_<timestamp>/ for each.",
    ),
    click.option(
        "--steps", default="all", show_default=True, metavar="WHICH",
        help=f"Part of the capture to look at: {STEPS}.",
    ),
    *_PART,
)  # fmt: skip

_TALK: tuple[Decorator, ...] = (
    click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors, and gates that did not pass."),
    click.option("--verbose", "-v", is_flag=True, help="Print what is done, and tracebacks of bugs."),
)
"""Options that decide how much is printed."""


# `--threshold NAME=VALUE`: limits of analyses and of rules, by parameter name.


threshold_option = click.option(
    "--threshold", "limits", multiple=True, metavar="NAME=VALUE",
    help="Set a limit of a rule (docs/findings.md) or an analysis, such as silent_pct=5; repeatable.",
)  # fmt: skip


def read_thresholds(texts: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Thresholds of analyses, and those of rules.

    Raises:
        UsageError: one has no such name, or no number.
    """
    if not (given := tuple(texts)):
        return {}, {}
    from traceanalyzer.functions import thresholds_apart, thresholds_with_numbers

    known, read = thresholds_with_numbers(), {}
    for text in given:
        name, _, value = (part.strip() for part in text.partition("="))
        read[name] = _number(text, value, known.get(name, float))
    return thresholds_apart(read, known)


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
