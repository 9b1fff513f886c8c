"""What a user can cause, shown as one line; and what could not be computed because of a bug of ours."""

import traceback
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace


class TraceAnalyzerError(Exception):
    """Something that the user can fix; the message names the file, what is wrong and what to do."""


class InputError(TraceAnalyzerError):
    """The input is missing, unreadable or holds nothing that can be analysed."""


class UsageError(TraceAnalyzerError):
    """An option's value makes no sense, or does not fit this input."""


def first_line(error: BaseException) -> str:
    """What a library's error says, in one line that is not too long; its type where it says nothing."""
    return next(iter(str(error).splitlines()), "")[:200] or type(error).__name__


def needs_extra(what: str, extra: str) -> UsageError:
    """An optional package is not installed; it says how to get it, as long as only a clone can be installed."""
    return UsageError(f"{what}: pip install '.[{extra}]' in the clone of traceanalyzer")


class NotATraceError(InputError):
    """A file is not a trace that any reader knows; callers list it as skipped and go on."""


# What could not be computed because of a bug of ours: named in the report, while the rest of it is made.


class PartFailedWarning(UserWarning):
    """A part of a report could not be computed; the message is the traceback."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One part that could not be computed.

    Attributes:
        name: of the analysis, rule or part of the page.
        what: what it is, for people: `Analysis stragglers`.
        why: the error.
        traceback: where it happened.
        rank: whose events it happened on; `None` when on no single rank's.
        left_out: names of what depends on it and is left out with it.
    """

    name: str
    what: str
    why: str
    traceback: str
    rank: int | None = None
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, what: str, error: BaseException, rank: int | None = None) -> "Failure":
        """The failure that raised `error`."""
        kind, first = type(error).__name__, first_line(error)
        why = kind if first == kind else f"{kind}: {first}"
        return cls(name, what, why, "".join(traceback.format_exception(error)), rank)

    def with_left_out(self, names: Iterable[str]) -> "Failure":
        """The same, with what is left out for it."""
        return replace(self, left_out=tuple(sorted({*self.left_out, *names} - {self.name})))

    @property
    def sentence(self) -> str:
        """What the report says of it."""
        where = "" if self.rank is None else f" (rank {self.rank})"
        others = f" What needs it is left out too: {', '.join(self.left_out)}." if self.left_out else ""
        return (
            f"{self.what} could not be computed{where}: {self.why}. This is a bug of traceanalyzer, and not the "
            f"job's.{others}"
        )


def warn(failures: Iterable[Failure]) -> None:
    """Show each failure's traceback as a `PartFailedWarning`."""
    for failure in failures:
        warnings.warn(f"{failure.sentence}\n{failure.traceback}", PartFailedWarning, stacklevel=2)


def sentences(failures: Iterable[Failure]) -> list[str]:
    """One sentence for each part that failed: the first of its ranks speaks for the others."""
    by_name: dict[str, list[Failure]] = {}
    for failure in failures:
        by_name.setdefault(failure.what, []).append(failure)
    made = []
    for own in by_name.values():
        more = f" The same on {len(own) - 1} other rank{'s' if len(own) > 2 else ''}." if len(own) > 1 else ""
        made.append(own[0].sentence + more)
    return made
