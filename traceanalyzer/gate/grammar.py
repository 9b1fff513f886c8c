"""The text of a gate, and its outcome."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from traceanalyzer.errors import UsageError
from traceanalyzer.files import whole
from traceanalyzer.meaning.columns import Unit, unit_of

# The text of a gate: which figure, how much of it is too much, over which ranks.
#
# METRIC[?][[KEY=VALUE,…]] OP NUMBER[UNIT] [@ SCOPE]        fails when the comparison holds
# METRIC[?][[KEY=VALUE,…]] ±NUMBER[UNIT] [significant] [@ SCOPE]
# (diff) fails when it grows or falls by more
#
# METRIC is `column` or `analysis.column`; OP one of > >= < <= == !=; SCOPE any rank, all ranks, mean, max, min.
# `?` skips the gate when the figure is not available, which otherwise fails. `significant` holds the change against the
# noise of repeats, which may leave the gate inconclusive.


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
    rf"""\s*(?:(?P<analysis>[a-z_]\w*)\.)?(?P<column>[a-z_]\w*)(?P<maybe>\?)?
    (?:\[(?P<where>[^\]]*)\])?\s*
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
        analysis: the Result; `None` takes the first that has the column.
        column: with the unit that results use: `step_ms` is `step_ns`.
        where: wanted values of key columns.
        op: comparison; `None` for a change against the base.
        number: limit, in `unit`; with its sign for a change.
        grows: whether a change fails when it is more than the limit (`+`), else when it is less (`-`).
        unit: `%`, `pp`, a unit of `UNITS`, or empty for a plain number.
        scope: one of `SCOPES`.
        is_optional: a figure that is not available does not fail.
        is_significant: a change fails only where the repeats of both runs can tell it from noise.
    """

    text: str
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

    @property
    def metric(self) -> str:
        """Figure as it is named in messages."""
        where = "[" + ",".join(f"{key}={value}" for key, value in self.where) + "]" if self.where else ""
        return f"{self.analysis}.{self.column}{where}" if self.analysis else f"{self.column}{where}"


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


# What became of a gate, and the rows behind it.


PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

UNKNOWN = "cannot be judged"
"""The figure is not there, or the report marks it as doubtful."""

INCONCLUSIVE = "inconclusive"

OF_RANKS = ("any rank", "all ranks")
"""Scopes under which every rank is judged by itself."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One gate on one run.

    Attributes:
        gate: its text: the condition that must not hold.
        run: the run's name.
        status: `passed`, `failed`, `cannot be judged` (which fails too), `skipped` (not available, and optional) or
            `inconclusive` (the repeats cannot tell, or there are none).
        message: one sentence with the figure.
        rows: the rows that failed; for a gate over ranks those that it was computed from.
        case: which row of the table, where each of them is judged by itself.
    """

    gate: str
    run: str
    status: str
    message: str
    rows: tuple[Mapping[str, Any], ...] = ()
    case: str = ""

    @property
    def name(self) -> str:
        """The gate and its case, without figures: the same in every build, whatever came out."""
        return f"must not hold: {self.gate}" + (f" [{self.case}]" if self.case else "")


def not_available(gate: Gate, run: str, why: str, case: str = "") -> Outcome:
    """The gate cannot be evaluated: it fails, unless it is optional."""
    status = SKIPPED if gate.is_optional else UNKNOWN
    return Outcome(gate.text, run, status, f"{gate.metric}{after(case)} is not available: {why}", (), case)


def judged(
    gate: Gate, run: str, status: str, text: str, rows: Iterable[Mapping[str, Any]], failing: pd.Series, case: str
) -> Outcome:  # fmt: skip
    """An outcome with the rows behind a failure: of a gate over ranks all, else those that fail."""
    if gate.scope in OF_RANKS:
        rows = [row for row, is_bad in zip(rows, failing, strict=True) if is_bad]
    message = f"{gate.metric}{after(case)}: {text}"
    return Outcome(gate.text, run, status, message, tuple(rows) if status == FAILED else (), case)


def status_of(gate: Gate, failing: pd.Series) -> str:
    """With `all ranks` it fails only where every one does."""
    return FAILED if (failing.all() if gate.scope == "all ranks" else failing.any()) else PASSED


def after(case: str) -> str:
    """A case behind the name of what it is of."""
    return f", {case}" if case else ""


def over_ranks(values: pd.Series, scope: str) -> pd.Series:
    """The values that are judged: each rank's own, or one over all ranks."""
    if scope in OF_RANKS:
        return values
    return pd.Series([getattr(values, scope)()], index=[scope])


def fails(gate: Gate, values: pd.Series) -> pd.Series:
    """For each value whether the gate's comparison holds; a change has been brought to the gate's unit before."""
    if gate.op is not None:
        compare = OPERATORS[gate.op]
        limit = gate.number * gate.factor
        return values.map(lambda value: compare(value, limit)).astype(bool)
    return (values > gate.number if gate.grows else values < gate.number).astype(bool)


def shown(gate: Gate, value: float) -> str:
    """A figure in the gate's unit."""
    return with_unit(f"{value / gate.factor:,.4g}", gate.unit or (gate.quantity or ""))


def with_unit(number: str, unit: str) -> str:
    """`5%`, `12 ms`, `3`."""
    return f"{number}{unit}" if unit == Unit.PCT else f"{number} {unit}".rstrip()


_HOLDS = {
    ">": "above", ">=": "at or above", "<": "below", "<=": "at or below", "==": "exactly", "!=": "other than",
}  # fmt: skip


def limit_text(gate: Gate, values: pd.Series, failing: pd.Series, rows: str = "ranks") -> str:
    """What is so of the figure against its limit, in words that say on which side of it it lies."""
    assert gate.op is not None
    limit = f"{_HOLDS[gate.op]} {shown(gate, gate.number * gate.factor)}"
    if gate.scope in OF_RANKS:
        return f"{how_many(failing, rows)} it is {limit}"
    return f"{gate.scope} is {shown(gate, values.iloc[0])}, {'' if failing.iloc[0] else 'not '}{limit}"


def how_many(failing: pd.Series, rows: str) -> str:
    """`on 2 of 8 ranks`."""
    count, total = int(failing.sum()), len(failing)
    if count == total:
        every = "both" if total == 2 else f"all {total}"
        return f"on {every} {rows}" if total > 1 else f"on the only one of the {rows}"
    return f"on {count or 'none'} of {total} {rows}"
