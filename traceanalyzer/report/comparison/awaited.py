"""What a difference of step times is made of on the rank for which others wait: their waits are only its shadow."""

from dataclasses import dataclass

import pandas as pd

from traceanalyzer.diff import Comparison, Side
from traceanalyzer.kinds import EXPERTS, ROOTED
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.quantities import signed, text
from traceanalyzer.meaning.vocabulary import INSEPARABLE, UNMATCHED, UNSPLIT, WAIT, in_a_sentence
from traceanalyzer.report.comparison.bound import parts_by_rank

UNEVEN = 0.05
"""Of the window: where ranks' exposed waits differ by less, nobody in particular is waited for."""

NEITHER = (*ROOTED, *EXPERTS, "all_to_all", "peer_copy")
"""Communication whose ranks do not wait alike: its time is told as transfer plus wait."""

LEAST_AGAINST = 0.05
"""Of the change: a part that goes the other way by less is not worth a word."""


@dataclass(frozen=True, slots=True)
class _Rank:
    """The rank with the least exposed wait of a run, and its parts in ns a step."""

    number: int
    parts: pd.Series


def sentence(comparison: Comparison, run: str, change: float, unit: str) -> str | None:
    """`Most of the difference is idle (host), +3 ms …`; `None` where a run tells no waits, or its ranks wait alike."""
    other = next(side for side in comparison.sides if side.label == run)
    pair = _ranks(comparison, comparison.base, other)
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
    return dict.fromkeys((UNSPLIT.label, UNMATCHED.label, INSEPARABLE.label), words) if len(longest) else {}


def _ranks(comparison: Comparison, base: Side, other: Side) -> tuple[_Rank, _Rank] | None:
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
