"""What only one run does in a step, or much more of: copies, waits of its CPU, matrix products."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.diff import surroundings
from traceanalyzer.diff.captures import ALIKE, Capture
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import Unit, per_cent, text

COPIES = "copies a step"

WAITS = "blocking CPU calls per step"

PRODUCTS = "matrix products a step"

SHARES = "ranks' shares of the model FLOPs"

NAMES = (COPIES, WAITS, PRODUCTS, SHARES)

_WAYS: dict[str, tuple[str, str]] = {
    "HtoD": ("source_memory", "from {} memory to the GPU"),
    "DtoH": ("target_memory", "from the GPU to {} memory"),
}
"""Directions of copies: the column that names the host's memory, and words. Copies between GPUs are communication."""

_LEAST_COST = 0.01
"""Of a step: copies that take less in every run are not reported."""

_MOST_LISTED = 3

_MOST_PRODUCTS = 2
"""Products of which runs of one model may do more or less; if more of them differ, it is another model or batch."""

_LEAST_EQUAL = 3

_WAITING = re.compile(r"^(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)?Synchronize\b")


@dataclass(frozen=True, slots=True)
class _Amount:
    """How much of something each rank does in a step, as a number and for people, and what it costs the dearest one."""

    by_rank: Mapping[int, float]
    unit: Unit
    cost_ns: float = 0.0

    @property
    def most(self) -> float:
        return max(self.by_rank.values(), default=0.0)

    def summary(self, name: str) -> str:
        """`12 waits`, `40 products on rank 1`, `products 6 on rank 0, 16 on rank 1`, or a range."""
        by_rank = {rank: value for rank, value in self.by_rank.items() if value}
        values = by_rank.values()
        if len(by_rank) == len(self.by_rank) and max(values) - min(values) <= ALIKE * max(values):
            return f"{text(sum(values) / len(by_rank), self.unit)} {name}"
        if len(by_rank) == 1:
            ((rank, value),) = by_rank.items()
            return f"{text(value, self.unit)} {name} on rank {rank}"
        if len(by_rank) <= _MOST_LISTED:
            ranks = (f"{text(value, self.unit)} on rank {rank}" for rank, value in sorted(by_rank.items()))
            return f"{name} {', '.join(ranks)}"
        return f"{text(min(self.by_rank.values()), self.unit)} to {text(self.most, self.unit)} {name}"


_Amounts = Mapping[str, _Amount]


def of(captures: Sequence[Capture]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """For each of these kinds in which runs differ its name and what each run does of what they do not do alike.

    Nothing of a kind that a capture does not tell, and nothing of CPUs where profilers differ: they name calls in
    other ways.
    """
    readers: dict[str, Callable[[Capture], _Amounts | None]] = {COPIES: _copies}
    if len({surroundings.profiler(capture) for capture in captures}) == 1:
        readers[WAITS] = _waits
    for name, read in readers.items():
        amounts = [read(capture) for capture in captures]
        known = [own for own in amounts if own is not None]
        if len(known) == len(captures) and (differing := _differing(known)):
            yield name, tuple(_listed(own, differing) for own in known)
    if is_same_but_for_products(captures):
        sorts = [_products(capture) or {} for capture in captures]
        yield PRODUCTS, tuple(_listed(own, _unequal(sorts)) for own in sorts)
        return
    shares = [_flop_shares(capture) for capture in captures]
    if None not in shares and _are_shared_otherwise([own for own in shares if own is not None]):
        yield SHARES, tuple(", ".join(f"{per_cent(round(pct))}%" for pct in own) for own in shares if own is not None)


def is_same_but_for_products(captures: Sequence[Capture]) -> bool:
    """Whether every run does the same matrix products as often, but for a few of which one does more or less."""
    known = [own for capture in captures if (own := _products(capture))]
    if len(known) < len(captures):
        return False
    differing = _unequal(known)
    equal = set.union(*(set(own) for own in known)) - set(differing)
    return 0 < len(differing) <= _MOST_PRODUCTS and len(equal) >= _LEAST_EQUAL


def _listed(own: _Amounts, names: Sequence[str]) -> str:
    summaries = [own[name].summary(name) for name in names[:_MOST_LISTED] if name in own and own[name].most]
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED and summaries else ""
    return ", ".join(summaries) + more or "none"


def _differing(amounts: Sequence[_Amounts]) -> list[str]:
    """Names of which the runs do not do as much, the dearest first."""
    names = _unequal(amounts)
    cost = {name: max(own[name].cost_ns for own in amounts if name in own) for name in names}
    return sorted((name for name in names if cost[name] > 0), key=lambda name: (-cost[name], name))


def _unequal(amounts: Sequence[_Amounts]) -> list[str]:
    names = dict.fromkeys(name for own in amounts for name in own)
    return [name for name in names if not _is_equal([own[name].by_rank if name in own else {} for own in amounts])]


def _is_equal(by_rank: Sequence[Mapping[int, float]]) -> bool:
    """Whether every rank does as much in every run; where ranks differ, the least and the most of them."""
    ends = [(min(own.values()), max(own.values())) if own else (0.0, 0.0) for own in by_rank]
    return all(max(values) - min(values) <= ALIKE * max(values) for values in zip(*ends, strict=True))


def _copies(capture: Capture) -> _Amounts | None:
    """Bytes of uploads, downloads and exchanges by memory; their cost is the time that they take."""
    frame, step_ns = capture.table("copies"), _step_ns(capture)
    if frame is None or not step_ns or not capture.is_exact:
        return None
    made = {}
    for direction, (column, words) in _WAYS.items():
        own = frame[frame["direction"] == direction]
        for memory, part in own.groupby(column, dropna=False):
            cost = float(part.groupby("rank")["total_ns"].sum().max()) / capture.per
            kind = memory if isinstance(memory, str) else "unknown"
            if cost >= _LEAST_COST * step_ns:
                made[words.format(kind)] = _amount(capture, part, "size_bytes", Unit.BYTES, cost)
    return made


def _waits(capture: Capture) -> _Amounts | None:
    """Synchronising calls; any difference of their number is told."""
    frame = capture.table("cuda_api")
    if frame is None or not capture.is_exact or not capture.steps:
        return None
    own = frame[frame["name"].astype("str").str.contains(_WAITING)]
    return {
        str(name): _amount(capture, part, "calls", Unit.COUNT, float(part["calls"].sum()))
        for name, part in own.groupby("name", observed=True)
    }


def _products(capture: Capture) -> _Amounts | None:
    frame = capture.table("matrix_products")
    if frame is None or not capture.is_exact:
        return None
    names = frame["product"].astype("str") + [f" {element_types(str(dtype))}" for dtype in frame["dtype"]]
    return {str(name): _amount(capture, part, "calls", Unit.COUNT, 1.0) for name, part in frame.groupby(names)}


def _flop_shares(capture: Capture) -> list[float] | None:
    """Percent of the compared steps' model FLOPs on each rank."""
    frame = capture.table("mfu")
    own = frame[frame["step"].isin(capture.steps)] if frame is not None else None
    if own is None or own.empty or own["model_flops"].isna().any() or own["covered_pct"].isna().all():
        return None  # what run.json says of the whole job tells no rank's share
    sums = own.groupby("rank")["model_flops"].sum().astype("float64")
    return (100 * sums / sums.sum()).tolist() if sums.sum() else None


def _are_shared_otherwise(shares: Sequence[list[float]]) -> bool:
    """Whether a rank's share differs by more than `ALIKE`, of runs with as many ranks."""
    if len({len(own) for own in shares}) != 1:
        return False
    return any(max(values) - min(values) > 100 * ALIKE for values in zip(*shares, strict=True))


def _amount(capture: Capture, rows: pd.DataFrame, column: str, unit: Unit, cost_ns: float = 0.0) -> _Amount:
    """Each rank's sum a step; a rank without a row does none."""
    ranks = capture.tables["breakdown"]["rank"]
    sums = rows.groupby("rank")[column].sum()
    return _Amount({int(rank): float(sums.get(rank, 0)) / capture.per for rank in ranks}, unit, cost_ns)


def _step_ns(capture: Capture) -> float | None:
    frame = capture.table("breakdown")
    return float(frame["window_ns"].mean()) / capture.per if frame is not None else None
