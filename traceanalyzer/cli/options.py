"""Options that several commands share, their two levels of help, and exit codes."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial, reduce, wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer.cli.output import console_of, progress
from traceanalyzer.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from traceanalyzer.discovery import Found
    from traceanalyzer.discovery.clustering import Run
    from traceanalyzer.gate import Gate, Outcome
    from traceanalyzer.loading import LoadOptions
    from traceanalyzer.scale import Summary

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


@dataclass(frozen=True, kw_only=True)
class Source:
    """Which traces are read, and facts about their run; what a command has no option for stands as here."""

    folder: Path | None = None
    trace_dir: Path | None = None
    trace_files: tuple[Path, ...] = ()
    rank_regex: str | None = None
    select: str = "latest"
    ranks: str | None = None
    steps: str = "all"
    step_range: str | None = None
    kinds: tuple[str, ...] = ()
    follow_links: bool = False
    no_cache: bool = False
    jobs: Any = None
    unprofiled_step: float | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    hosts_file: Path | None = None
    topo: Path | None = None
    nccl_logs: tuple[Path, ...] = ()

    @property
    def is_of_all(self) -> bool:
        """Whether all runs of a folder are asked for, and not the newest alone."""
        return self.select == "all"

    @cached_property
    def load(self) -> "LoadOptions":
        """What of the traces is read."""
        from traceanalyzer.kinds import KindRules
        from traceanalyzer.loading import LoadOptions, parse_ranks
        from traceanalyzer.loading.store import default_folder
        from traceanalyzer.selection import Selection

        return LoadOptions(
            ranks=parse_ranks(self.ranks),
            selection=Selection(self.step_range, self.steps),
            rules=KindRules.parse(self.kinds),
            follows_links=self.follow_links,
            cache=None if self.no_cache else default_folder(),
        )

    def find_traces(self) -> "tuple[Found, str, Path]":
        """The traces that `input_options` name, the run's name, and the default folder of its report.

        Raises:
            UsageError: they name nothing, or more than one thing.
        """
        from traceanalyzer.discovery import discover, of_files
        from traceanalyzer.loading import label_of

        files = self.trace_files
        given = [place for place in (self.folder, self.trace_dir, *files[:1]) if place is not None]
        if len(given) != 1:
            raise UsageError("name the traces once: a folder, or --trace-file FILE (repeatable)")
        place = given[0] if len(files) < 2 else files[0].parent
        if files:
            found = of_files(files, self.rank_regex)
        else:
            found = discover(place, self.rank_regex, follows_links=self.follow_links)
        return found, label_of(place), default_output(place)

    def analysed(self, found: "Found", run: "Run", console: "Console", **more: Any) -> "Summary":
        """The run's Results; `more` is what `summarise` takes besides."""
        from traceanalyzer.scale import summarise

        with progress(console, len(run.captures)) as advance:
            return summarise(found, run, self.load, jobs=self.jobs, progress=advance, **more)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is judged, written and printed; what a command has no option for stands as here."""

    gates: tuple[str, ...] = ()
    gate_files: tuple[Path, ...] = ()
    inconclusive: int = INCONCLUSIVE
    output: Path | None = None
    formats: tuple[str, ...] = ()
    force: bool = False
    as_json: bool = False
    open_page: bool = False
    quiet: bool = False
    verbose: bool = False

    @cached_property
    def console(self) -> "Console":
        """Where the command prints."""
        return console_of(quiet=self.quiet, as_json=self.as_json)

    def wanted_gates(self, *, of_comparison: bool = False) -> "list[Gate]":
        """The gates, in order, checked before anything is read.

        Raises:
            UsageError: one cannot be evaluated, whatever the traces hold.
        """
        if not self.gates and not self.gate_files:
            return []
        from traceanalyzer import gate

        wanted = [gate.parse(text) for text in self.gates]
        wanted += [one for path in self.gate_files for one in gate.parse_file(path)]
        gate.check_names(wanted, of_comparison=of_comparison)
        return wanted


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command that is handed its `Source` and `Options` as such; what it takes besides stays as it is."""
    wanted = signature(function).parameters
    shared = {name: kind for name, kind in (("source", Source), ("options", Options)) if name in wanted}

    @wraps(function)
    def called(**given: Any) -> Any:
        for name, kind in shared.items():
            own = {one.name: given.pop(one.name) for one in fields(kind) if one.name in given}
            given[name] = kind(**own)
        return function(**given)

    return called


def default_output(place: Path) -> Path:
    """`a/b/reports/z3` for traces in `a/b/profile/z3`; otherwise, or where that is closed, `reports/<name>` here."""
    from traceanalyzer.loading import label_of

    parts = place.resolve().parts
    if "profile" in parts[:-1]:
        beside = Path(*parts[: -1 - parts[::-1].index("profile")])
        if beside != Path.cwd() and os.access(beside, os.W_OK):
            return beside / "reports" / label_of(place)
    return Path("reports", label_of(place))


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


def read_thresholds(texts: Sequence[str]) -> dict[str, Any]:
    """Thresholds of analyses by name.

    Raises:
        UsageError: one has no such name, or no number.
    """
    if not texts:
        return {}
    from traceanalyzer.analyses import ANALYSES
    from traceanalyzer.analyses.engine import kinds_of_thresholds, no_such_threshold
    from traceanalyzer.validation import threshold

    # Others are what a run's files say.
    kinds = {name: kind for name, kind in kinds_of_thresholds(ANALYSES).items() if kind in (int, float)}
    read = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if name not in kinds:
            raise UsageError(no_such_threshold(name, kinds))
        try:
            read[name] = threshold(name, kinds[name](value), kinds[name])
        except ValueError as error:
            what = "a whole number" if kinds[name] is int else "a number"
            raise UsageError(f"--threshold {text}: write NAME=VALUE, the value {what}") from error
    return read
