"""What a difference of step times is made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd

from traceanalyzer.analyses.statistics import PERCENT
from traceanalyzer.diff import Comparison, Side, metrics
from traceanalyzer.diff.captures import Capture
from traceanalyzer.findings.savings import CUTS
from traceanalyzer.kinds import EXPERTS, ROOTED
from traceanalyzer.meaning.columns import Unit, per_cent, signed, text
from traceanalyzer.meaning.names import collective_words, short_name
from traceanalyzer.meaning.vocabulary import (
    COMM,
    COMM_PARTS,
    COMPUTE,
    COPY,
    DATA,
    HOST,
    IDLE,
    IDLE_PARTS,
    ON_PATH,
    OPAQUE,
    PARTS,
    SYNC,
    TRANSFER,
    UNMATCHED,
    WAIT,
    Part,
    in_a_sentence,
)  # fmt: skip

# The concluding sentence of a comparison: which path bound the step before, and which binds it now.


_MOSTLY = 0.7
"""Of a category's time on the path: a rank with this much of it is named."""

_NAMED = 0.3
"""Of the same: so is an operator."""

_UNNAMED = (DATA.key, HOST.key)
"""Categories of which the path names the operator that was launched at last, not what took the host so long."""

_PROFILED = "The profiler slows the CPU: time it without one."

WORDS: Mapping[str, str] = MappingProxyType({one.key: one.label for one in ON_PATH})
"""Categories of a critical path."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What binds a capture's step: in words, and by what that is told.

    Attributes:
        words: most of the critical path without the profiler.
        share: `78% of the critical path`.
        is_of_cpu: it is time of CPUs.
    """

    words: str
    share: str
    is_of_cpu: bool = False


def path_sentence(base: Capture, other: Capture) -> str | None:
    """Of two captures; `None` where either has no critical path."""
    before, now = bound_of(base), bound_of(other)
    if before is None or now is None:
        return None
    if before.words == now.words:
        return f"The same binds both: {now.words} ({before.share} in {base.label}, {now.share} in {other.label})."
    said = f"{base.label} was bound by {before.words} ({before.share}); {other.label} is by {now.words} ({now.share})."
    return f"{said} {_PROFILED}" if now.is_of_cpu else said


def bound_of(capture: Capture) -> Bound | None:
    """The category that takes most of the critical path without the profiler.

    With its rank and operator where one has most of it on the recorded path.
    """
    path, recorded = capture.table("bottleneck"), capture.table("critical_path")
    if path is None or recorded is None or not path["path_ns"].sum():
        return None
    category = str(path["category"][path["path_ns"].idxmax()])
    own = recorded[recorded["category"] == category]
    total = float(own["path_ns"].sum())
    words = WORDS[category]
    by_rank = own.groupby("rank")["path_ns"].sum()
    if total and by_rank.max() >= _MOSTLY * total and _is_apart(capture, int(by_rank.idxmax())):
        words = f"rank {int(by_rank.idxmax())}'s {words}"
    by_name = own.groupby("name")["path_ns"].sum()
    if category not in _UNNAMED and len(by_name) and by_name.max() >= _NAMED * total:
        words = f"{words}, most of it {short_name(str(by_name.idxmax()))}"
    share = f"{per_cent(round(float(path['path_pct'].max())))}% of the critical path"
    return Bound(words, share, is_of_cpu=category in (HOST.key, SYNC.key))


def _is_apart(capture: Capture, rank: int) -> bool:
    """Whether the path is this rank's for a reason: the others wait for it, or there are none.

    Of ranks that need about as long the path lies on one.
    """
    breakdown, table = capture.table("breakdown"), capture.table("stragglers")
    if breakdown is not None and breakdown["rank"].nunique() < 2:
        return False
    return table is None or bool((table["cost_pct"][table["rank"] == rank] >= CUTS[1][0]).any())


def has_open_waits(capture: Capture) -> bool:
    """Whether over 3 % of a step is communication of which a replay does not know for whom it waits."""
    table = capture.table("bottleneck")
    if table is None or table.empty or "unmatched_ns" not in table:
        return False
    row = table.iloc[0]
    return bool(row["unmatched_ns"] > PERCENT / 100 * row["step_ns"])


def parts_by_rank(capture: Capture) -> pd.DataFrame | None:
    """Each rank's window by part in ns, under the parts' labels; wait and causes of idle time where they are told."""
    breakdown = capture.table("breakdown")
    if breakdown is None or not capture.is_exact:
        return None
    parts = _columns(_by_rank(breakdown), (COMPUTE, COPY, OPAQUE))
    for table, split, whole in (("exposed_comm", COMM_PARTS, COMM), ("idle", IDLE_PARTS, IDLE)):
        frame = capture.table(table)
        own = None if frame is None else _columns(_by_rank(frame), split)
        is_told = own is not None and len(own.columns) == len(split) and own.notna().to_numpy().all()
        parts = parts.join(own if is_told and own is not None else _columns(_by_rank(breakdown), (whole,)))
    return parts.astype("float64").fillna(0.0)


def _by_rank(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each rank: of tables that have steps too, that of the whole window."""
    return (frame[frame["step"].isna()] if "step" in frame else frame).set_index("rank")


def _columns(frame: pd.DataFrame, parts: tuple[Part, ...]) -> pd.DataFrame:
    held = {part.column: part.label for part in parts if part.column in frame}
    return frame[list(held)].rename(columns=held)


# What a difference of step times is made of on the rank for which others wait: their waits are only its shadow.


UNEVEN = 0.05
"""Of the window: where ranks' exposed waits differ by less, nobody in particular is waited for."""

NEITHER = (*ROOTED, *EXPERTS, "all_to_all", "peer_copy")
"""Communication whose ranks do not wait alike: its time is shown as transfer plus wait."""

LEAST_AGAINST = 0.05
"""Of the change: a part that goes the other way by less is not worth a word."""


@dataclass(frozen=True, slots=True)
class _Rank:
    """The rank with the least exposed wait of a run, and its parts in ns a step."""

    number: int
    parts: pd.Series


def awaited_sentence(comparison: Comparison, run: str, change: float, unit: str) -> str | None:
    """`Most of the difference is idle (host), +3 ms …`; `None` where a run tells no waits, or its ranks wait alike."""
    pair = _awaited_ranks(comparison, comparison.base, side_of(comparison, run))
    if pair is None:
        return None
    before, after = (rank.parts for rank in pair)
    names = list(dict.fromkeys([*before.index, *after.index]))
    before, after = before.reindex(names, fill_value=0.0), after.reindex(names, fill_value=0.0)
    sign = 1 if change >= 0 else -1
    changes = (sign * (after - before)).sort_values(ascending=False, kind="stable")
    main, against = str(changes.index[0]), str(changes.index[-1])
    where, words = _where(pair, before[main], after[main]), names_of_unsplit(comparison, run)
    longest, shorter = (words.get(name, in_a_sentence(name)) for name in (main, against))
    made = f"Most of the difference is {longest}, {signed(sign * changes[main], Unit.NS)} {unit} {where}"
    if -changes[against] > LEAST_AGAINST * abs(change):
        made += f"; against it {shorter}, {signed(sign * changes[against], Unit.NS)}"
    return f"{made}."


def names_of_unsplit(comparison: Comparison, run: str) -> dict[str, str]:
    """`exposed broadcast, moving or waiting` in place of the label of what is neither, where such calls are there."""
    table = comparison.table(run, "nccl")
    if table is None:
        return {}
    own = table.frame[table.frame["collective"].isin(NEITHER)]
    time_ns = own[["base_total_ns", "other_total_ns"]].astype("float64").max(axis=1)
    longest = own.loc[time_ns.sort_values(ascending=False).index, "collective"].astype("str").unique()
    words = f"exposed {', '.join(collective_words(name) for name in longest)}, moving or waiting"
    return {UNMATCHED.label: words} if len(longest) else {}


def _awaited_ranks(comparison: Comparison, base: Side, other: Side) -> tuple[_Rank, _Rank] | None:
    """The rank that is waited for in each run; where nobody is in one of them, the same as in the other."""
    tables = []
    for side in (base, other):
        parts = parts_by_rank(side.first)
        if parts is None or WAIT.label not in parts or len(parts) < 2:
            return None
        tables.append(parts / comparison.fairness.scale.divisor(side.first))
    named = [_awaited(table) for table in tables]
    if named == [None, None]:
        return None
    first = named[0] if named[0] is not None else named[1]
    second = named[1] if named[1] is not None else named[0]
    if first not in tables[0].index or second not in tables[1].index:
        return None
    return _Rank(int(first), tables[0].loc[first]), _Rank(int(second), tables[1].loc[second])  # type: ignore[arg-type]


def _awaited(parts: pd.DataFrame) -> int | None:
    waits, window = parts[WAIT.label], parts.sum(axis=1).max()
    return int(waits.idxmin()) if waits.max() - waits.min() > UNEVEN * window else None


def _where(pair: tuple[_Rank, _Rank], before_ns: float, after_ns: float) -> str:
    one, two = pair
    times = text(before_ns, Unit.NS), text(after_ns, Unit.NS)
    if one.number == two.number:
        return f"on rank {one.number}, for which others wait ({times[0]} → {times[1]})"
    return f"({times[0]} on rank {one.number} → {times[1]} on rank {two.number}: each run's rank for which others wait)"


# From the base's step time to another run's: what each part adds or takes away.


SPLIT = tuple(part.column for part in COMM_PARTS)

_LOOKS = {part.column: part for part in (*PARTS, *COMM_PARTS)}


@dataclass(frozen=True, slots=True)
class WaterfallPart:
    """One part of a step in two runs, mean over ranks."""

    metric: str
    label: str
    kind: str
    base_ns: float
    other_ns: float

    @property
    def change_ns(self) -> float:
        """Other − base."""
        return self.other_ns - self.base_ns


def side_of(comparison: Comparison, run: str) -> Side:
    """The run of that label."""
    return next(side for side in comparison.sides if side.label == run)


def values_of(comparison: Comparison, metric: str, run: str) -> list[Any]:
    """A figure's value in the base and in the run; `None` where it is not known."""
    return [metrics.value(comparison.metrics, metric, one) for one in (comparison.base.label, run)]


def parts(comparison: Comparison, run: str) -> list[WaterfallPart]:
    """The parts of the base's and the run's step; their changes add up to the step's change.

    Exposed communication is told apart into transfer and wait only where both runs tell: not where of one nothing
    could be, as of a rank that is here alone. Empty when a run does not tell its parts.
    """
    names = [metric.name for metric in metrics.METRICS if metric.part]
    found = {}
    for name in names:
        base, other = values_of(comparison, name, run)
        if base is not None and other is not None:
            found[name] = WaterfallPart(name, _LOOKS[name].label, _LOOKS[name].kind, float(base), float(other))
    steps = values_of(comparison, "step_ns", run)
    wholes = (SPLIT,) if _one_splits_none(found) else ((COMM.column,), SPLIT)
    for left_out in wholes:
        chosen = [part for name, part in found.items() if name not in left_out]
        sums = (sum(part.base_ns for part in chosen), sum(part.other_ns for part in chosen))
        # Means over ranks of whole nanoseconds: less than one nanosecond of rounding.
        if None not in steps and all(abs(one - two) < 1 for one, two in zip(sums, steps, strict=True)):
            return [part for part in chosen if part.base_ns or part.other_ns]
    return []


def _one_splits_none(found: Mapping[str, WaterfallPart]) -> bool:
    """Whether all exposed communication of one run is neither transfer nor wait, and the other's is."""
    split = [found[one.column] for one in (TRANSFER, WAIT) if one.column in found]
    whole = found.get(COMM.column)
    if whole is None or not split:
        return False
    tells = [sum(getattr(part, side) for part in split) > 0 for side in _SIDES]
    has = [getattr(whole, side) > 0 for side in _SIDES]
    return all(has) and tells[0] != tells[1]


_SIDES = ("base_ns", "other_ns")
