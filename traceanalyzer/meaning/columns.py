"""What a column of a table means: its unit, how it adds up, which way is better, and how reports show it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum, auto
from types import MappingProxyType
from typing import Self, TypedDict, Unpack


class Unit(StrEnum):
    """What a value is in. Names of columns end in it where it has an ending, so that a file needs no legend."""

    NS = "ns"
    BYTES = "bytes"
    FLOPS = "FLOP"
    PCT = "%"
    GB_PER_S = "GB/s"
    TFLOPS_PER_S = "TFLOP/s"
    COUNT = "count"
    NUMBER = "number"
    """A number without a unit: a ratio, a level, or what its row says."""
    ID = "id"
    """A number that is a name: a rank, a step, a position."""
    FLAG = "yes or no"
    TEXT = "text"


ENDINGS: Mapping[str, Unit] = MappingProxyType(
    {
        "ns": Unit.NS,
        "bytes": Unit.BYTES,
        "pct": Unit.PCT,
        "gbps": Unit.GB_PER_S,
        "gb_per_s": Unit.GB_PER_S,
        "gbytes_per_s": Unit.GB_PER_S,
        "tflops_per_s": Unit.TFLOPS_PER_S,
        "flops": Unit.FLOPS,
    }
)
"""By the ending of a column's name, its unit; a name without any of these has none of these units."""


_MOMENTS = ("start_ns", "end_ns")

_NUMBERED = ("rank", "step", "stream", "bin", "stage", "microbatch", "pipeline", "device")
"""Last words of names whose numbers are names."""


def unit_of(name: str) -> Unit | None:
    """The unit that a column's name ends in; `None` for a name without an ending."""
    return ENDINGS.get(_ending(name))


def stem(name: str) -> str:
    """A column's name without the unit that it ends in."""
    return name.removesuffix(f"_{_ending(name)}")


def _ending(name: str) -> str:
    return max((end for end in ENDINGS if name == end or name.endswith(f"_{end}")), key=len, default="")


class Adds(StrEnum):
    """What becomes of a column when rows, steps or ranks are put together."""

    SUM = "sum"
    """It adds up: times, bytes, counts."""
    EXTREME = "extreme"
    """The least or largest of them is kept: peaks, longest, first."""
    DERIVED = "derived"
    """It is computed anew from what adds up: shares, rates, means, medians."""
    NONE = "none"
    """It names a row or says something of it."""


class Better(IntEnum):
    """Which way is better."""

    LESS = -1
    NEITHER = 0
    MORE = 1


class Written(StrEnum):
    """How people write a text that files and code hold by name."""

    PLAIN = auto()
    KERNEL = auto()
    """A kernel's, operator's or range's name: shortened."""
    COLLECTIVE = auto()
    KIND = auto()
    OURS = auto()
    """Names of ours, not of the trace: underscores are blanks."""
    FIGURE = auto()
    """A column's name."""
    DTYPE = auto()
    VERSIONS = auto()


class Shown(TypedDict, total=False):
    """What more may be said of a column: fields of `Column` by name."""

    label: str
    better: Better
    written: Written
    is_secondary: bool
    is_aside: bool
    is_aside_when_one: bool
    alias: str
    replaced_by: str
    is_news_when_zero: bool
    is_compared: bool
    leads: bool
    is_of_all_runs: bool
    absent: str


@dataclass(frozen=True, slots=True)
class Column:
    """One column: what its values are, in one line, and what may be done with them.

    Attributes:
        definition: one line.
        unit: what values are in.
        adds: what becomes of it when rows are put together.
        label: words for it, without its unit, where they are not those of its name.
        better: which way is better.
        written: how people write its texts.
        is_secondary: a wide table shows it at a click, for a reader rarely looks for it.
        is_aside: a narrow screen shows it at a click where the table has times: it stands before them.
        is_aside_when_one: the same, but only while all rows have one value.
        is_news_when_zero: a wide table shows it also when all of it is zero: that nothing waits is news.
        is_moment: a point in time, not a length.
        is_compared: a comparison of runs joins it.
        leads: the time by which rows are ordered and judged when runs are compared.
        is_of_all_runs: a number that is a name and means the same in every run.
        alias: another name that a gate may use for it.
        replaced_by: a column beside which a page leaves it to the files.
        absent: what a page says where a value is absent because it has a meaning, such as a row of all ranks.
    """

    definition: str
    unit: Unit = Unit.TEXT
    adds: Adds = Adds.NONE
    label: str = ""
    better: Better = Better.NEITHER
    written: Written = Written.PLAIN
    is_secondary: bool = False
    is_aside: bool = False
    is_aside_when_one: bool = False
    is_news_when_zero: bool = False
    is_moment: bool = False
    is_compared: bool = True
    leads: bool = False
    is_of_all_runs: bool = False
    alias: str = ""
    replaced_by: str = ""
    absent: str = ""

    @property
    def is_sum(self) -> bool:
        """Whether it adds up over rows, steps and ranks."""
        return self.adds is Adds.SUM

    @classmethod
    def named(cls, name: str) -> Self:
        """What a name alone says, for rows that no table declares (a finding's evidence): the unit it ends in."""
        unit = unit_of(name)
        if unit is None:
            return cls("", Unit.ID if name.rpartition("_")[2] in _NUMBERED else Unit.TEXT)
        return cls("", unit, Adds.DERIVED, is_moment=name.endswith(_MOMENTS))

    @classmethod
    def time(cls, definition: str, adds: Adds = Adds.SUM, **shown: Unpack[Shown]) -> Self:
        """A length of time in nanoseconds."""
        return cls(definition, Unit.NS, adds, **shown)

    @classmethod
    def moment(cls, definition: str, **shown: Unpack[Shown]) -> Self:
        """A point in time in nanoseconds."""
        return cls(definition, Unit.NS, Adds.EXTREME, is_moment=True, **shown)

    @classmethod
    def size(cls, definition: str, adds: Adds = Adds.SUM, **shown: Unpack[Shown]) -> Self:
        """Bytes."""
        return cls(definition, Unit.BYTES, adds, **shown)

    @classmethod
    def flops(cls, definition: str, adds: Adds = Adds.SUM, **shown: Unpack[Shown]) -> Self:
        """Floating-point operations."""
        return cls(definition, Unit.FLOPS, adds, **shown)

    @classmethod
    def count(cls, definition: str, adds: Adds = Adds.SUM, **shown: Unpack[Shown]) -> Self:
        """How many."""
        return cls(definition, Unit.COUNT, adds, **shown)

    @classmethod
    def share(cls, definition: str, adds: Adds = Adds.DERIVED, **shown: Unpack[Shown]) -> Self:
        """Per cent of something."""
        return cls(definition, Unit.PCT, adds, **shown)

    @classmethod
    def rate(
        cls, definition: str, unit: Unit = Unit.GB_PER_S, adds: Adds = Adds.DERIVED, **shown: Unpack[Shown]
    ) -> Self:
        """Something a second: GB/s unless said otherwise."""
        return cls(definition, unit, adds, **shown)

    @classmethod
    def number(cls, definition: str, adds: Adds = Adds.DERIVED, **shown: Unpack[Shown]) -> Self:
        """A number without a unit: a ratio, a level."""
        return cls(definition, Unit.NUMBER, adds, **shown)

    @classmethod
    def ident(cls, definition: str, **shown: Unpack[Shown]) -> Self:
        """A number that is a name: a rank, a step, a position."""
        return cls(definition, Unit.ID, Adds.NONE, **shown)

    @classmethod
    def flag(cls, definition: str, **shown: Unpack[Shown]) -> Self:
        """Yes or no."""
        return cls(definition, Unit.FLAG, Adds.NONE, **shown)

    @classmethod
    def text(cls, definition: str, **shown: Unpack[Shown]) -> Self:
        """A name or a sentence."""
        return cls(definition, Unit.TEXT, Adds.NONE, **shown)
