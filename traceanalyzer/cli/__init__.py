"""The command line: `analyze-traces`, its commands, and how errors become messages and exit codes.

Exit codes: 0 done; 1 a gate failed; 2 usage or input; 3 a report without the parts that a bug kept from it; 4 no gate
failed, but repeats cannot tell one from noise; 5 no gate failed, but a figure is missing or doubtful; 70 a bug of this
program; 130 interrupted; 143 ended by a signal. A reader of the output that leaves before its end (`| head`) changes
none of them; an answer that cannot be printed, as on a full disk, is 2.
"""

import difflib
import re
import signal
import sys
import traceback
import warnings
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from traceanalyzer import __version__
from traceanalyzer.cli import ask, debug
from traceanalyzer.cli.baseline import baseline
from traceanalyzer.cli.demo import demo
from traceanalyzer.cli.diff import diff
from traceanalyzer.cli.doctor import doctor
from traceanalyzer.cli.export import export
from traceanalyzer.cli.one_run import refuse_others
from traceanalyzer.cli.options import BUG, DONE, INTERRUPTED, TERMINATED, USAGE_OR_INPUT
from traceanalyzer.cli.output import is_lost, lenient, unfailing
from traceanalyzer.cli.report import report
from traceanalyzer.cli.tools import cache, crosscheck, reproduce, tree_diff
from traceanalyzer.cli.what_if import what_if
from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.failures import PartFailedWarning
from traceanalyzer.forks import finish

_QUICK = frozenset({"--help", "-h", "--version"})
"""Answered without pandas."""


class ReportFirstGroup(click.Group):
    """A group in which arguments that don't begin with a command belong to `report`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `report` in front unless the arguments begin with a command or one of the group's own options."""
        if args and args[0] not in self.commands and args[0] not in _QUICK:
            self._refuse_misspelt(*args)
            args = ["report", *args]
        return super().parse_args(ctx, args)

    def _refuse_misspelt(self, word: str, *more: str) -> None:
        """A word that is no folder or file, but nearly a command or before another argument, is no folder's name."""
        if word.startswith("-") or Path(word).exists():
            return
        near = difflib.get_close_matches(word, self.commands, 2, cutoff=0.7)
        if near:
            raise click.UsageError(f"no command and no folder is called {word!r}; did you mean {' or '.join(near)}?")
        if re.fullmatch(r"[a-z-]+", word) and more and not more[0].startswith("-"):
            commands = ", ".join(sorted(self.commands))
            raise click.UsageError(f"no command and no folder is called {word!r}; commands are {commands}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the report command's options too: it is what most people came for."""
        with formatter.section("Options of the report"):
            records = [record for option in report.params if (record := option.get_help_record(ctx))]
            formatter.write_dl(records)
        super().format_options(ctx, formatter)


@click.group(cls=ReportFirstGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="analyze-traces")
def cli() -> None:
    """Say where each rank's time went in a multi-GPU job.

    `analyze-traces --trace-dir profile/ddp` reads the newest run in the folder and writes
    reports/ddp/summary.html, summary.csv and summary.json.

    \b
    Examples:
      analyze-traces demo
      analyze-traces profile/ddp
      analyze-traces --trace-dir profile/ddp --steps last --open
      analyze-traces --trace-file rank0.json.gz --trace-file rank1.json.gz --output out
      analyze-traces profile/ddp --fail-on 'exposed_comm_pct > 5' --fail-on 'idle_pct > 10 @ any rank'
      analyze-traces diff profile/naive profile/ddp
      analyze-traces what-if profile/ddp --rank 1=peers
      analyze-traces doctor --topo topo.txt --nccl-log logs/ --flight-recorder dumps/

    Exit codes: 0 done; 1 a gate failed; 2 usage or input; 3 partial: a bug in this program kept parts from the report,
    which names them; 4 (diff) no gate failed, but repeats cannot tell one from noise; 5 no gate failed, but a
    figure of one is missing or doubtful; 70 a bug, and no report; 130 interrupted; 143 ended by SIGTERM or SIGHUP.
    """  # noqa: D301 - click wants the character itself


cli.add_command(report)
cli.add_command(demo)
cli.add_command(crosscheck)
cli.add_command(diff)
cli.add_command(baseline)
cli.add_command(tree_diff)
cli.add_command(export)
cli.add_command(reproduce)
cli.add_command(what_if)
cli.add_command(doctor)
cli.add_command(cache)
for question in ask.COMMANDS:
    cli.add_command(question)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    given = sys.argv[1:] if arguments is None else arguments
    sys.stdout, sys.stderr = lenient(sys.stdout), unfailing(sys.stderr)
    if not _QUICK.intersection(given) and given and given[0] in cli.commands and given[0] != report.name:
        from traceanalyzer.scale import set_up_process

        set_up_process()  # the report does so itself, and something else meanwhile
    _answer_signals()
    code = run(given)
    sys.exit(USAGE_OR_INPUT if code == DONE and _is_answer_lost(given) else code)


_ANSWERS = frozenset({*(question.name for question in ask.COMMANDS), "crosscheck", "doctor", "tree-diff", "what-if"})
"""Commands whose work is what they print: of others it lies in files, whatever became of their words."""


def _is_answer_lost(arguments: list[str]) -> bool:
    """Whether what a command was run for could not be printed: who reads the file behind `>` learns it by the code."""
    return is_lost(sys.stdout) and bool(arguments) and arguments[0] in _ANSWERS


class _TerminatedError(BaseException):
    """A signal that ends the process: drafts are removed on the way out, as after Ctrl-C."""


def _answer_signals() -> None:
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is signal.SIG_DFL:  # nohup ignores one
            signal.signal(getattr(signal, name), _terminate)
    sys.unraisablehook = _raised_again


def _terminate(*_: object) -> None:
    raise _TerminatedError


def _raised_again(ignored: "sys.UnraisableHookArgs") -> None:
    """A signal that comes in what lets no error out, such as `__del__`, comes again a moment later."""
    if hasattr(signal, "setitimer") and issubclass(ignored.exc_type, KeyboardInterrupt | _TerminatedError):
        signal.signal(signal.SIGALRM, partial(_raise, ignored.exc_type))
        signal.setitimer(signal.ITIMER_REAL, _A_MOMENT_S)
    else:
        sys.__unraisablehook__(ignored)


_A_MOMENT_S = 0.01


def _raise(kind: type[BaseException], *_: object) -> None:
    raise kind


def run(arguments: list[str]) -> int:  # noqa: PLR0911 - a way of ending, a code
    """Run one command; every error is a line on standard error and a code, never a traceback."""
    # Said in the report and on standard error; where warnings are errors, as in tests, that comes first.
    warnings.simplefilter("ignore", PartFailedWarning, append=True)
    try:
        result: Any = cli.main(args=arguments, prog_name="analyze-traces", standalone_mode=False)
        finish()
    except click.ClickException as error:
        error.show()
        return USAGE_OR_INPUT
    except (TraceAnalyzerError, OSError) as error:
        what = f"{error.filename or 'output'}: {error.strerror}" if isinstance(error, OSError) else error
        click.echo(f"Error: {what}", err=True)
        return USAGE_OR_INPUT
    except _TerminatedError:
        return TERMINATED
    except MemoryError:
        return _without_memory()
    except (KeyboardInterrupt, click.Abort) as error:
        if isinstance(error.__cause__, EOFError):  # which click takes for the end of what somebody types
            return _bug(arguments, error.__cause__)
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence: a user never sees a traceback unasked
        return _without_memory() if str(error) == _NO_THREAD else _bug(arguments, error)
    return result if isinstance(result, int) else DONE


def _bug(arguments: list[str], error: Exception) -> int:
    if _is_verbose(arguments):
        traceback.print_exception(error)
    click.echo(f"Bug in traceanalyzer: {type(error).__name__}: {error}", err=True)
    click.echo("Run again with --verbose for the details to report.", err=True)
    _write_crash(arguments, error)
    return BUG


_NO_THREAD = "can't start new thread"
"""What Python says where there is no memory left for one."""


def _without_memory() -> int:
    click.echo("Error: not enough memory; give fewer --jobs, some --ranks, or a shorter capture", err=True)
    return USAGE_OR_INPUT


def _write_crash(arguments: list[str], error: Exception) -> None:
    """Write the file that `--debug` names, if it does."""
    joined = [value for word in arguments if (value := word.removeprefix("--debug=")) != word]
    apart = [value for word, value in pairwise(arguments) if word == "--debug"]
    for place in (*joined, *apart):
        try:
            refuse_others(Path(place), debug.MARK, force="--force" in arguments)
            debug.write_crash(Path(place), error)
            click.echo(f"What can be attached to an issue: {place}", err=True)
        except (TraceAnalyzerError, OSError) as told:
            click.echo(f"Error: {told}", err=True)


def _is_verbose(arguments: list[str]) -> bool:
    """Whether `--verbose` or `-v`, alone or among other letters (`-qv`), is given."""
    return any(word == "--verbose" or re.fullmatch(r"-[a-z]*v[a-z]*", word) for word in arguments)
