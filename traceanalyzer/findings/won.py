"""What is won, as a part of a title: `at most 3.2 ms shorter`. Titles keep such parts till their gains are known."""

import re
from dataclasses import dataclass, replace
from typing import Self

from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.findings.unprofiled import otherwise
from traceanalyzer.meaning.gains import gain_range_said, gain_said
from traceanalyzer.meaning.quantities import time_text

DELAYED = " (how much is not known: start delays without a recorded cause lie in it)"

_SURE = 0.01
"""An error below this part of a gain is not worth saying."""


@dataclass(frozen=True, slots=True)
class Won:
    """By how much a step, or the capture, is shorter: words behind `is` or `would be`.

    Attributes:
        gain_ns: of the recorded one.
        is_bound: it is the most that can be won (`gain_said`).
        unprofiled_ns: the gain without the profiler, where that is to be said if it is another one.
        step_ns: what is shorter, before.
        error_ns: how far the gain may be off, where that is to be said; of a bound it is not.
        most_ns: the gain where start delays that no recorded dependency explains go, too; `None` where they are few.
    """

    gain_ns: int
    is_bound: bool
    unprofiled_ns: int | None = None
    step_ns: int = 0
    error_ns: int = 0
    most_ns: int | None = None

    @classmethod
    def of(cls, gain: Gain, *, is_bound: bool | None = None) -> Self:
        """What a replay gains, and without the profiler; a bound by itself unless it is said."""
        bound = gain.is_bound if is_bound is None else is_bound
        most_ns = gain.most_gain_ns if gain.is_delayed else None
        return cls(gain.gain_ns, bound, gain.unprofiled_gain_ns, gain.before_ns, most_ns=most_ns)

    @classmethod
    def recorded(cls, gain: Gain, *, is_bound: bool | None = None) -> Self:
        """The same of the recorded step alone."""
        return replace(cls.of(gain, is_bound=is_bound), unprofiled_ns=None)

    @property
    def without(self) -> str:
        """What is said of a step without the profiler, where that gains something else."""
        return otherwise(self.gain_ns, self.unprofiled_ns, self.step_ns)

    def __str__(self) -> str:
        if self.most_ns is not None:
            return f"{gain_range_said(self.gain_ns, self.most_ns)} shorter{self.without}{DELAYED}"
        if not self.gain_ns:
            return f"no shorter{self.without}"
        is_off = not self.is_bound and self.error_ns and self.error_ns >= _SURE * self.gain_ns
        error = f" (± {time_text(self.error_ns)})" if is_off else ""
        return f"{gain_said(time_text(self.gain_ns), is_bound=self.is_bound)}{error} shorter{self.without}"


class Title(str):
    """Sentences of parts: what is won is said anew where it turns out to be a bound."""

    __slots__ = ("parts",)

    parts: tuple[str | Won, ...]

    def __new__(cls, *parts: str | Won) -> Self:
        """Parts that are titles themselves are taken apart."""
        made = super().__new__(cls, "".join(map(str, parts)))
        made.parts = tuple(own for part in parts for own in (part.parts if isinstance(part, Title) else (part,)))
        return made

    def as_bound(self) -> "Title":
        """The same with gains that are the most that can be won."""
        return Title(*(replace(part, is_bound=True) if isinstance(part, Won) else part for part in self.parts))

    def without_gains(self) -> str:
        """The sentences that say no gain."""
        marked = "".join(_WON if isinstance(part, Won) else part for part in self.parts)
        return " ".join(each for each in _ENDS.split(marked) if _WON not in each)


_WON = "\0"

_ENDS = re.compile(r"(?<=[.!?]) (?=[A-Z])")
"""Between sentences."""


def without_gains(title: str) -> str:
    """The title without the sentences of its gains; of one without gains itself."""
    return title.without_gains() if isinstance(title, Title) else title


def as_bound(title: str) -> str:
    """The title with its gains as bounds; of one without gains itself."""
    return title.as_bound() if isinstance(title, Title) else title
