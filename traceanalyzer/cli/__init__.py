"""The command line: `analyze-traces`, its commands, and how errors become messages and exit codes."""

import difflib
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceanalyzer import __version__
from traceanalyzer.cli.diff import baseline, diff
from traceanalyzer.cli.doctor import doctor
from traceanalyzer.cli.export import export
from traceanalyzer.cli.options import BUG, DONE, HELP_ALL, INTERRUPTED, TERMINATED, USAGE_OR_INPUT, write_options
from traceanalyzer.cli.output import DEBUG_FILE, crash, is_lost, lenient, unfailing, write_debug
from traceanalyzer.cli.query import mcp, memory, query
from traceanalyzer.cli.report import demo, report
from traceanalyzer.cli.tools import tools
from traceanalyzer.cli.what_if import what_if
from traceanalyzer.errors import PartFailedWarning, TraceAnalyzerError
from traceanalyzer.execution import finish

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_OWN = frozenset({"--help", "-h", "--help-all", "--version"})
"""Options of the program itself, answered without pandas."""

MOVED: Mapping[str, str] = {name: f"{group.name} {name}" for group in (query, tools) for name in group.commands}
"""Commands by their old names, which work for this release."""


class MainGroup(click.Group):
    """A group in which arguments that don't begin with a command belong to `report`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace a command's old name; put `report` in front of arguments of no command."""
        first = args[0] if args else ""
        if first in MOVED:
            if not ctx.resilient_parsing:
                click.echo(f"analyze-traces {first} is now analyze-traces {MOVED[first]}.", err=True)
            args = [*MOVED[first].split(), *_with_ranks(first, args[1:])]
        elif args and first not in self.commands and first not in _OWN:
            self._refuse_misspelt(*args)
            args = ["report", *args]
        return super().parse_args(ctx, args)

    def _refuse_misspelt(self, word: str, *more: str) -> None:
        """Refuse a word that is no file or folder, if it resembles a command or another argument follows."""
        if word.startswith("-") or Path(word).exists():
            return
        if near := difflib.get_close_matches(word, [*self.commands, *MOVED], 2, cutoff=0.7):
            meant = " or ".join(MOVED.get(name, name) for name in near)
            raise click.UsageError(f"no command and no folder is called {word!r}; did you mean {meant}?")
        if re.fullmatch(r"[a-z-]+", word) and more and not more[0].startswith("-"):
            commands = ", ".join(sorted(self.commands))
            raise click.UsageError(f"no command and no folder is called {word!r}; commands are {commands}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the commands, and the report's options with the program's own."""
        self.format_commands(ctx, formatter)
        own = {name for one in self.get_params(ctx) for name in one.opts}
        options = [one for one in report.get_params(ctx) if own.isdisjoint(one.opts)]
        write_options([*options, *self.get_params(ctx)], ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete commands, and the report's options and folder."""
        return [*super().shell_complete(ctx, incomplete), *report.shell_complete(click.Context(report), incomplete)]


def _with_ranks(command: str, args: list[str]) -> list[str]:
    """Write the rank of the old `inspect FOLDER RANK NAME` and `why-waiting FOLDER RANK` as an option."""
    for place in range(1, len(args)) if command in ("inspect", "why-waiting") else ():
        if args[place].isdigit() and not args[place - 1].startswith("-"):
            return [*args[:place], "--ranks", *args[place:]]
    return args


@click.group(
    cls=MainGroup, context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="FOLDER | COMMAND [ARGUMENTS]...",
)  # fmt: skip
@click.version_option(__version__, prog_name="analyze-traces")
def cli() -> None:
    """Show where each rank's time goes in a multi-GPU job.

    Given a folder of traces, analyzes the newest run in it and writes reports/<name>/summary.html, summary.csv and
    summary.json.

    \b
    Examples:
      analyze-traces demo
      analyze-traces --trace-dir profile/ddp
      analyze-traces profile/ddp --steps last --open
      analyze-traces profile/ddp --fail-on 'idle_pct > 10 @ any rank'
      analyze-traces diff profile/naive profile/ddp
      analyze-traces what-if profile/ddp --rank 1=peers

    Exit codes: 0 done; 1 a gate failed; 2 wrong usage or unusable input; 3 the report lacks parts because of a bug;
    4 (diff) no gate failed, but noise could explain the difference; 5 no gate failed, but the figure of one is missing
    or doubtful; 70 a bug, no report; 130 interrupted; 143 ended by SIGTERM or SIGHUP.
    """  # noqa: D301 - click wants the character itself


cli.params.append(HELP_ALL)
report.hidden = True
for one in (report, diff, what_if, export, doctor, memory, baseline, demo, query, mcp, tools):
    cli.add_command(one)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    given = sys.argv[1:] if arguments is None else arguments
    sys.stdout, sys.stderr = lenient(sys.stdout), unfailing(sys.stderr)
    command = MOVED.get(given[0], given[0]).split()[0] if given and given[0] else ""
    if not _OWN.intersection(given) and command in cli.commands and command != report.name:
        from traceanalyzer.scale import set_up_process

        set_up_process()  # the report does so itself, and something else meanwhile
    _answer_signals()
    code = run(given)
    # Of other commands the work lies in files, whatever became of their words.
    is_answer = command in _ANSWERS or "--json" in given
    sys.exit(USAGE_OR_INPUT if code == DONE and is_answer and is_lost(sys.stdout) else code)


_ANSWERS = ("query", "memory", "doctor", "tools", "what-if")
"""Commands whose work is what they print."""


class _TerminatedError(BaseException):
    """A signal that ends the process: drafts are removed on the way out, as after Ctrl-C."""


def _answer_signals() -> None:
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is signal.SIG_DFL:  # nohup ignores one
            signal.signal(getattr(signal, name), partial(_raise, _TerminatedError))
    sys.unraisablehook = _raised_again


def _raised_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Raise a signal again a moment later if it came in code that lets no error out, such as `__del__`."""
    if hasattr(signal, "setitimer") and issubclass(ignored.exc_type, KeyboardInterrupt | _TerminatedError):
        signal.signal(signal.SIGALRM, partial(_raise, ignored.exc_type))
        signal.setitimer(signal.ITIMER_REAL, _A_MOMENT_S)
    else:
        sys.__unraisablehook__(ignored)


_A_MOMENT_S = 0.01


def _raise(kind: type[BaseException], *_: object) -> None:
    raise kind


def run(arguments: list[str]) -> int:  # noqa: PLR0911 - one return for each way to end
    """Run one command; every error is a line on standard error and a code, never a traceback."""
    # Shown in the report and on standard error; where warnings are errors, as in tests, that comes first.
    warnings.simplefilter("ignore", PartFailedWarning, append=True)
    try:
        result: Any = cli.main(args=arguments, prog_name="analyze-traces", standalone_mode=False)
        finish()
    except click.ClickException as error:
        error.show()
        if "extra argument" in error.message and len([one for one in arguments if Path(one).is_dir()]) > 1:
            click.echo("To compare runs: analyze-traces diff BASE OTHER.", err=True)
        return USAGE_OR_INPUT
    except (TraceAnalyzerError, OSError) as error:
        what = f"{error.filename or 'output'}: {error.strerror}" if isinstance(error, OSError) else error
        click.echo(f"Error: {what}", err=True)
        return USAGE_OR_INPUT
    except _TerminatedError:
        return TERMINATED
    except (KeyboardInterrupt, click.Abort) as error:
        if isinstance(error.__cause__, EOFError):  # which click takes for the end of what somebody types
            return _bug(arguments, error.__cause__)
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence: a user never sees a traceback unasked
        if isinstance(error, MemoryError) or str(error) == "can't start new thread":  # as Python says without memory
            click.echo("Error: not enough memory; give fewer --jobs, some --ranks, or a shorter capture", err=True)
            return USAGE_OR_INPUT
        return _bug(arguments, error)
    return result if isinstance(result, int) else DONE


def _bug(arguments: list[str], error: Exception) -> int:
    """Report a bug; with `--debug` also write its file."""
    if any(word == "--verbose" or re.fullmatch(r"-[a-z]*v[a-z]*", word) for word in arguments):
        traceback.print_exception(error)
    click.echo(f"Bug in traceanalyzer: {type(error).__name__}: {error}", err=True)
    click.echo("Run again with --verbose for the details to report.", err=True)
    if place := DEBUG_FILE.get():
        try:
            write_debug(place, crash(error))
            click.echo(f"Attach this file to an issue: {place}", err=True)
        except (TraceAnalyzerError, OSError) as reason:
            click.echo(f"Error: {reason}", err=True)
    return BUG
