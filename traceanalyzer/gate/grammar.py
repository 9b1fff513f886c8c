"""The text of a gate as a condition."""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from traceanalyzer.errors import UsageError
from traceanalyzer.files import whole
from traceanalyzer.meaning.columns import Unit, unit_of

# METRIC[?][[KEY=VALUE,…]] OP NUMBER[UNIT] [@ SCOPE]        fails when the comparison holds
# METRIC[?][[KEY=VALUE,…]] ±NUMBER[UNIT] [significant] [@ SCOPE]
# (diff) fails when it grows or falls by more
#
# METRIC is `column` or `analysis.column`; OP one of > >= < <= == !=; SCOPE any rank, all ranks, mean, max, min.
# `?` skips the gate when the figure is not available, which otherwise fails. `significant` holds the change against the
# noise of repeats, which may leave the gate inconclusive.


OF_RANKS = ("any rank", "all ranks")
"""Scopes under which every rank is judged by itself; under the others one value over all ranks."""

OPERATORS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt}
)

UNITS: Mapping[Unit, Mapping[str, float]] = MappingProxyType(
    {
        Unit.NS: {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
        Unit.BYTES: {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
        Unit.PCT: {"%": 1},
    }
)
"""By the unit that a column's name ends in."""

_WRITTEN_AS = {"_us": ("_ns", "us"), "_ms": ("_ns", "ms"), "_s": ("_ns", "s"),
               "_kb": ("_bytes", "kB"), "_mb": ("_bytes", "MB"), "_gb": ("_bytes", "GB"),
               "_kib": ("_bytes", "KiB"), "_mib": ("_bytes", "MiB"), "_gib": ("_bytes", "GiB")}  # fmt: skip

_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_GATE = re.compile(
    rf"""\s*(?P<metric>(?:(?P<analysis>[a-z_]\w*)\.)?(?P<column>[a-z_]\w*)(?P<maybe>\?)?
    (?:\[(?P<where>[^\]]*)\])?)\s*
    (?:(?P<op>>=|<=|==|!=|>|<)\s*(?P<number>-?{_NUMBER})|(?P<change>[+-]{_NUMBER}))
    \s*(?P<unit>%|(?!significant)[A-Za-zµ]+)?\s*(?P<significant>significant)?
    \s*(?:@\s*(?P<scope>any\ rank|all\ ranks|mean|max|min))?\s*""",
    re.VERBOSE | re.IGNORECASE,
)

_EXAMPLES = (
    "such as 'exposed_comm_pct > 5', 'idle_pct > 10 @ any rank', or for diff 'step_ms +3%', 'overlap_pct -2pp', "
    "'step_ms +3% significant'"
)


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition.

    Attributes:
        text: as the user wrote it.
        metric: its figure, as the user wrote it.
        analysis: the Result; `None` takes the first that has the column.
        column: with the unit that results use: `step_ms` is `step_ns`.
        where: wanted values of key columns.
        op: comparison; `None` for a change against the base.
        number: limit, in `unit`; with its sign for a change.
        grows: whether a change fails when it is more than the limit (`+`), else when it is less (`-`).
        unit: `%`, `pp`, a unit of `UNITS`, or empty for a plain number.
        scope: `mean`, `max`, `min`, or one of `OF_RANKS`.
        is_optional: a figure that is not available does not fail.
        is_significant: a change fails only where the repeats of both runs can tell it from noise.
    """

    text: str
    metric: str
    analysis: str | None
    column: str
    where: tuple[tuple[str, str], ...]
    op: str | None
    number: float
    grows: bool
    unit: str
    scope: str
    is_optional: bool
    is_significant: bool = False

    @property
    def quantity(self) -> Unit | None:
        """Nanoseconds, bytes, percent, or `None` for a plain number."""
        unit = unit_of(self.column)
        return unit if unit in UNITS else None

    @property
    def factor(self) -> float:
        """What one of `unit` is in the column's unit."""
        return UNITS[self.quantity].get(self.unit, 1.0) if self.quantity else 1.0

    def fails(self, values: pd.Series) -> pd.Series:
        """For each value whether the condition holds; a change has been brought to the gate's unit before."""
        if self.op is None:
            return (values > self.number if self.grows else values < self.number).astype(bool)
        compare, limit = OPERATORS[self.op], self.number * self.factor
        return values.map(lambda value: compare(value, limit)).astype(bool)

    def shown(self, value: float) -> str:
        """A figure in the gate's unit."""
        return with_unit(f"{value / self.factor:,.4g}", self.unit or (self.quantity or ""))


def with_unit(number: str, unit: str) -> str:
    """`5%`, `12 ms`, `3`."""
    return f"{number}{unit}" if unit == Unit.PCT else f"{number} {unit}".rstrip()


def parse(text: str) -> Gate:
    """Read one gate.

    Raises:
        UsageError: it does not follow the grammar, or its unit does not fit the column.
    """
    match = _GATE.fullmatch(text)
    if not match:
        raise UsageError(f"--fail-on {text!r}: write METRIC OP NUMBER or METRIC ±NUMBER, {_EXAMPLES}")
    column, written_unit = _in_results_unit(match["column"])
    gate = Gate(
        text=text.strip(),
        metric=match["metric"].replace("?", "").replace(" ", ""),
        analysis=match["analysis"],
        column=column,
        where=_where(match["where"], text),
        op=match["op"],
        number=float(match["number"] or match["change"]),
        grows=(match["change"] or "").startswith("+"),
        unit=match["unit"] or written_unit,
        scope=(match["scope"] or "mean").lower(),
        is_optional=bool(match["maybe"]),
        is_significant=bool(match["significant"]),
    )
    if not isfinite(gate.number):
        raise UsageError(f"--fail-on {text!r}: no figure is beyond {gate.number}: it would never fail")
    if gate.is_significant and gate.op is not None:
        raise UsageError(f"--fail-on {text!r}: significant is of a change, such as 'step_ms +3% significant'")
    _check_unit(gate)
    return gate


def parse_file(path: Path) -> list[Gate]:
    """Gates of a file: one a line; empty lines are left out, and what follows a `#` that begins a word.

    Raises:
        UsageError: it cannot be read, holds no gate, or a line does not follow the grammar.
    """
    try:
        lines = whole.content(path).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--gates {path}: cannot be read ({error})") from error
    texts = [text for line in lines if (text := re.sub(r"(^|\s)#.*", "", line).strip())]
    if not texts:
        raise UsageError(f"--gates {path}: it holds no gate; write one a line, {_EXAMPLES}")
    return [parse(text) for text in texts]


def _in_results_unit(column: str) -> tuple[str, str]:
    """`step_ms` as `step_ns` and ms: results hold nanoseconds and bytes."""
    for ending, (own, unit) in _WRITTEN_AS.items():
        if column.endswith(ending) and not column.endswith("_per_s"):
            return column.removesuffix(ending) + own, unit
    return column, ""


def _where(text: str | None, gate: str) -> tuple[tuple[str, str], ...]:
    pairs = [part.partition("=") for part in (text or "").split(",") if part.strip()]
    if any(not separator for _, separator, _ in pairs):
        raise UsageError(f"--fail-on {gate!r}: write KEY=VALUE in brackets, such as nccl.calls[collective=all_reduce]")
    return tuple((key.strip(), value.strip()) for key, _, value in pairs)


def _check_unit(gate: Gate) -> None:
    allowed = [*(UNITS[gate.quantity] if gate.quantity else ())]
    if gate.op is None and gate.quantity is Unit.PCT:
        # "+2%" of a percentage could mean either; points cannot.
        if gate.unit != "pp":
            raise UsageError(
                f"--fail-on {gate.text!r}: {gate.column} is a percentage; its change is in points: write pp"
            )
        return
    if gate.op is None:
        allowed.append("%")
        if not gate.unit and gate.quantity is not None:
            raise UsageError(f"--fail-on {gate.text!r}: a change needs its unit: {', '.join(allowed)}")
    if gate.unit and gate.unit not in allowed:
        fitting = f"its units are {', '.join(allowed)}" if allowed else "it has no unit"
        raise UsageError(f"--fail-on {gate.text!r}: {gate.unit!r} does not fit {gate.column}; {fitting}")
