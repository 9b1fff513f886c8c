"""What a column of a table means: unit, how it adds up, how it is written."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum, auto
from types import MappingProxyType
from typing import Any, Self

import pandas as pd
from msgspec import Struct

from traceanalyzer.errors import UsageError
from traceanalyzer.meaning.rows import RANKS

# What a column of a table means: its unit, how it adds up, which way is better, and how reports show it.


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

_NUMBERED = (
    "rank", "step", "stream", "bin", "stage", "microbatch", "pipeline", "device", "call", "instance", "thread",
)  # fmt: skip
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


class _Kind:
    """Declares columns of one kind, which differ by what is said of each."""

    def __init__(self, unit: Unit, adds: Adds = Adds.SUM, **known: Any) -> None:
        self._known = {"unit": unit, "adds": adds, **known}

    def __call__(self, definition: str, adds: Adds | None = None, **shown: Any) -> "Column":
        """A column of the kind, which may add up otherwise."""
        return Column(definition, **self._known | ({"adds": adds} if adds else {}) | shown)


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
    def of(cls, name: str, definition: str = "") -> "Column":
        """What a column of this name is unless a table says more: its unit, how it adds up, whether it names a row."""
        unit, first = unit_of(name), name.partition("_")[0]
        if first in ("is", "has"):
            return cls.flag(definition)
        if unit is None and name in _COUNTED:
            return cls(definition, Unit.COUNT, **_COUNTED[name])
        if unit is None:
            is_of_trace = name in ("name", "range", "kernel")
            kind = Unit.ID if name.rpartition("_")[2] in _NUMBERED else Unit.TEXT
            return cls(definition, kind, written=Written.KERNEL if is_of_trace else Written.PLAIN)
        if name.endswith(_MOMENTS):
            return cls.moment(definition)
        is_rate = unit not in (Unit.NS, Unit.BYTES, Unit.FLOPS)
        adds = Adds.DERIVED if is_rate or first in _DERIVED else Adds.EXTREME if first in _EXTREMES else Adds.SUM
        return cls(definition, unit, adds, is_aside=name == "size_bytes")

    @classmethod
    def rate(cls, definition: str, unit: Unit = Unit.GB_PER_S, adds: Adds = Adds.DERIVED, **shown: Any) -> Self:
        """Something a second: GB/s unless said otherwise."""
        return cls(definition, unit, adds, **shown)

    time = _Kind(Unit.NS)
    """A length of time in nanoseconds."""
    spent = _Kind(Unit.NS, better=Better.LESS)
    """One of which less is better."""
    lost = _Kind(Unit.NS, better=Better.LESS, is_news_when_zero=True)
    """The same of time that need not be: a wide table shows it also when there is none of it."""
    moment = _Kind(Unit.NS, Adds.EXTREME, is_moment=True)
    """A point in time in nanoseconds."""
    size = _Kind(Unit.BYTES)
    flops = _Kind(Unit.FLOPS)
    count = _Kind(Unit.COUNT)
    share = _Kind(Unit.PCT, Adds.DERIVED)
    """Percent of something."""
    number = _Kind(Unit.NUMBER, Adds.DERIVED)
    """A number without a unit: a ratio, a level."""
    ident = _Kind(Unit.ID, Adds.NONE)
    """A number that is a name: a rank, a step, a position."""
    flag = _Kind(Unit.FLAG, Adds.NONE)
    text = _Kind(Unit.TEXT, Adds.NONE)


_COUNTED: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "calls": {"adds": Adds.SUM, "is_aside": True},
        **{name: {"adds": Adds.SUM} for name in ("operations", "launches")},
        **{name: {"adds": Adds.SUM, "is_compared": False} for name in ("ranks", "events", "gpu_ops")},
        "steps": {"adds": Adds.NONE},
    }
)
"""Names of what is counted, and how."""

_DERIVED = ("mean", "median", "std")

_EXTREMES = ("min", "max", "least", "most", "longest", "shortest", "peak", "highest", "lowest")
"""First words of names, by how their values add up."""


_MEANT: Mapping[str, Column] = MappingProxyType(
    {
        **dict.fromkeys(("window_ns", "compute_ns", "exposed_comm_ns"), Column.spent("")),
        **dict.fromkeys(("idle_ns", "wait_ns", "exposed_wait_ns"), Column.lost("")),
        **dict.fromkeys(("place", "episode", "waits_for", "peer"), Column.ident("")),
        **dict.fromkeys(("stretches", "kernels"), Column.count("")),
        "gpu_ns": Column.time("", leads=True),
        "comm_ns": Column.spent("", is_secondary=True),
        "device_bytes": Column.size("", adds=Adds.NONE),
        "idle_pct": Column.share("", better=Better.LESS),
        "group_size": Column.number("", is_aside=True),
        "depth": Column.number(""),
        "basis": Column.text("", is_secondary=True),
        "dtype": Column.text("", written=Written.DTYPE, is_aside=True),
        "collective": Column.text("", written=Written.COLLECTIVE),
        "group_description": Column.text("", is_secondary=True, replaced_by="group_label"),
    }
)
"""Names that mean one thing in all tables, with what that is."""


def declared(**columns: Column | str) -> dict[str, Column]:
    """A table's columns in order; of one with nothing but its definition the name says the rest."""
    return {name: _of_table(name, own) if isinstance(own, str) else own for name, own in columns.items()}


def _of_table(name: str, definition: str) -> Column:
    return replace(_MEANT[name], definition=definition) if name in _MEANT else Column.of(name, definition)


# Lists of ranks and of steps in text: as traces and tables have them, and as people write them.


_LIST = re.compile(r"\s*\d{1,18}\s*(?:,\s*\d{1,18}\s*)*")


def numbers(text: object) -> tuple[int, ...]:
    """Those of a list such as `0,4,8`, in its order; none where it is cut short (`0, 1, ..., 1023`), or no list."""
    is_list = isinstance(text, str) and _LIST.fullmatch(text)
    return tuple(int(part) for part in str(text).split(",")) if is_list else ()


def chosen(text: str, option: str = "") -> frozenset[int]:
    """`0,2-3` as a set; `option` is what somebody gave it to.

    Raises:
        UsageError: the text is something else.
    """
    found: set[int] = set()
    given = f"{option} {text!r}".strip()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match:
            raise UsageError(f"{given}: write numbers and ranges such as 0,2-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise UsageError(f"{given}: {first}-{last} is reversed; write {last}-{first}")
        if last >= RANKS:
            raise UsageError(f"{given}: numbers go up to {RANKS - 1:,}")
        found.update(range(first, last + 1))
    return frozenset(found)


# How a figure is written for people: unit, three significant digits, `n/a` for what is not known.


ABSENT = "n/a"

_STEPS: Mapping[str, tuple[tuple[float, str], ...]] = MappingProxyType(
    {
        Unit.NS: ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")),
        Unit.BYTES: ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
        Unit.PCT: ((1.0, "%"),),
        Unit.GB_PER_S: ((1.0, "GB/s"),),
        Unit.FLOPS: ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"), (1.0, "FLOP")),
        Unit.TFLOPS_PER_S: ((1.0, "TFLOP/s"),),
    }
)
"""Scales of each unit, largest first; decimal. Other units have none."""


class Scale(Struct, frozen=True):
    """One unit for a whole column: shown value = stored value / `divisor`."""

    divisor: float = 1.0
    symbol: str = ""

    def text(self, value: Any) -> str:
        """The value without its unit, or `n/a`."""
        if not is_known(value):
            return ABSENT
        return per_cent(value) if self.symbol == Unit.PCT else digits(value / self.divisor)


def scale(unit: Unit, sizes: Iterable[float]) -> Scale:
    """One scale for a column's absolute values: the largest, as it is shown, is at least 1 in it, half of them 0.1."""
    if unit not in _STEPS:
        return Scale()
    steps, known = _STEPS[unit], sorted(size for size in sizes if size)
    wanted = min(known[-1], 10 * known[len(known) // 2]) if known else 0
    shown = float(f"{wanted:.3g}")  # 999.7 µs are 1.00 ms
    return Scale(*next((step for step in steps if shown >= step[0]), steps[-1]))


def text(value: Any, unit: Unit) -> str:
    """One value with its own unit: `66.8 ms`, `23.9%`, `n/a`."""
    if not is_known(value):
        return ABSENT
    own = scale(unit, [abs(value)])
    between = "" if own.symbol in ("", Unit.PCT) else "\u202f"
    return f"{own.text(value)}{between}{own.symbol}"


def in_a_line(value: Any, unit: Unit) -> str:
    """The same with a plain blank, for sentences and files."""
    return text(value, unit).replace("\u202f", " ")


def time_text(time_ns: float | None) -> str:
    """A time for sentences, in the unit that makes it at least 1: `830 ns`, `450 µs`, `45.9 ms`, `12.9 s`; `n/a`."""
    return in_a_line(time_ns, Unit.NS)


def size_text(size_bytes: float | None) -> str:
    """A size for sentences, decimal: `512 B`, `8.39 MB`, `2.35 GB`; `n/a`."""
    return in_a_line(size_bytes, Unit.BYTES)


def time_span(least_ns: float, most_ns: float) -> str:
    """`53.1 to 62.5 ms`, `900 µs to 1.20 ms`, or one of them where they read alike."""
    low, high = time_text(least_ns), time_text(most_ns)
    unit = high.rpartition(" ")[2]
    return high if low == high else f"{low.removesuffix(f' {unit}')} to {high}"


def digits(value: float) -> str:
    """Three significant digits; whole numbers and what is at least 100 in full, with separators."""
    if not is_known(value):
        return ABSENT
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return f"{int(value):,}".replace("-", "−")
    if abs(value) >= 100:
        return f"{value:,.0f}".replace("-", "−")
    rounded = float(f"{value:.3g}")  # 9.996 is 10.0, which has one decimal and not two
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}".replace("-", "−")


def per_cent(value: float) -> str:
    """Percent without the sign: three significant digits, but no more than two decimals, which nobody measures.

    Only what is nothing is `0`: what rounds to it is `0.00`.
    """
    if not is_known(value) or abs(value) >= 1 or float(value).is_integer():
        return digits(value)
    return f"{value:.2f}".replace("-", "−")


def signed(value: float, unit: Unit | None = None) -> str:
    """A difference, with a + where it is more: of the unit, else percent or points of it without a sign of these."""
    shown = per_cent(value) if unit is None else text(value, unit)
    return f"+{shown}" if value > 0 else shown


def is_known(value: Any) -> bool:
    """Whether there is a value: not None, NA or NaN."""
    if isinstance(value, float):
        return not math.isnan(value)
    return value is not None and (isinstance(value, int | str) or not pd.isna(value))
