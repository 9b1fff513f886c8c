"""What could not be computed because of a bug of ours: named in the report, while the rest of it is made.

A failure is never silent: the report notes it, the exit code says that the report is partial, and `warn` shows the
traceback wherever Python's warnings are shown or are errors, as in tests.
"""

import traceback
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace

_LONGEST = 200
"""Characters of an error's own text that a sentence carries."""


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
        first = (str(error).splitlines() or [""])[0][:_LONGEST]
        why = f"{type(error).__name__}: {first}" if first else type(error).__name__
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
