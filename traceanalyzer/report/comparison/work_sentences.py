"""Which phase and which matrix products take longer, and whether communication beside them is why."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from traceanalyzer.diff import TableDiff, joins
from traceanalyzer.kinds import element_types
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.quantities import digits, signed, text

LEAST_PCT = 5.0
"""A product whose mean moves by less is not said to be slower or faster."""

LEAST_SHARE = 0.01
"""Of the step: what moves it by less is left to the tables."""

LEAST_ALONE = 0.05
"""The same of a product that only one run has."""

MOST_PRODUCTS = 3

_SLOWED = 0.5
"""Of a product's change: what the calls beside communication must explain for that to be said the cause."""

_NAMED = ("forward", "backward", "optimizer")


def phases(table: TableDiff | None, unit: str) -> Iterator[str]:
    """`By phase: forward 8.1 → 8.3 ms, backward …`: time of the window that belongs to each, means over ranks."""
    if table is None:
        return
    rows = table.frame.set_index("phase")
    told = [
        f"{name} {text(row['base_total_ns'], Unit.NS)} → {text(row['other_total_ns'], Unit.NS)}"
        for name, row in rows.iterrows()
        if row["status"] in (joins.CHANGED, joins.SAME) and name in _NAMED
    ]
    if len(told) > 1:
        yield f"By phase, {unit}: {', '.join(sorted(told, key=_place))} (waits and idle time within them included)."


def products(table: TableDiff | None, by_rank: TableDiff | None, step_ns: float | None) -> Iterator[str]:
    """The matrix products that move the step most, by their mean or their number, with contention told apart."""
    if table is None or table.frame.empty:
        return
    each = None if by_rank is None else by_rank.frame
    yield from _of_one_run(table.frame, each, LEAST_ALONE * (step_ns or 0))
    rows = table.frame[table.frame["status"] == joins.CHANGED]
    rows = rows[(rows["base_calls"] > 0) & (rows["other_calls"] > 0)]
    means = [rows[f"{side}_gpu_ns"] / rows[f"{side}_calls"] for side in ("base", "other")]
    slower = (means[1] - means[0]) * rows["other_calls"]
    more = (rows["other_calls"] - rows["base_calls"]) * means[0]
    least = LEAST_SHARE * (step_ns or 0)
    is_slower = ((means[1] / means[0] - 1).abs() >= LEAST_PCT / 100) & (slower.abs() >= least)
    is_told = is_slower | (more.abs() >= LEAST_ALONE * (step_ns or 0))
    change = slower + more
    order = change[is_told.fillna(value=False)].abs().sort_values(ascending=False, kind="stable").index
    for row in rows.loc[order[:MOST_PRODUCTS]].to_dict("records"):
        yield _product(row)
    if len(order) > MOST_PRODUCTS:
        rest = float(change[order[MOST_PRODUCTS:]].sum())
        yield f"{len(order) - MOST_PRODUCTS} other matrix products: {signed(rest, Unit.NS)} together."


def _of_one_run(frame: pd.DataFrame, by_rank: pd.DataFrame | None, least_ns: float) -> Iterator[str]:
    """Products that only one run has, and that take much of a step; where one rank alone has them, that rank's."""
    for status, side in ((joins.NEW, "other"), (joins.REMOVED, "base")):
        own = frame[(frame["status"] == status) & (frame[f"{side}_gpu_ns"] >= least_ns)]
        for row in own.head(MOST_PRODUCTS - 1).to_dict("records"):
            alone = _on_one_rank(by_rank, row, side)
            held, of_ranks = (row, "; means over ranks") if alone is None else (alone, "")
            time, mean = text(held[f"{side}_gpu_ns"], Unit.NS), text(_mean(held, side, "gpu_ns", "calls"), Unit.NS)
            on = "" if alone is None else f" on rank {int(alone['rank'])}"
            yield f"{_what(row)} is {status}: {_number(held, side)} calls{on}, {time} ({mean} a call{of_ranks})."


def _on_one_rank(by_rank: pd.DataFrame | None, row: dict[str, Any], side: str) -> dict[str, Any] | None:
    """The row of the only rank that runs a product; `None` where several do."""
    if by_rank is None or "rank" not in by_rank:
        return None
    is_it = (by_rank["product"] == row["product"]) & (by_rank["phase"] == row["phase"])
    own = by_rank[is_it & (by_rank[f"{side}_calls"] > 0)]
    own = own[own["dtype"] == row["dtype"]] if isinstance(row["dtype"], str) else own
    return own.to_dict("records")[0] if len(own) == 1 else None


def _what(row: dict[str, Any]) -> str:
    dtype = f" {element_types(str(row['dtype']))}" if isinstance(row["dtype"], str) else ""
    return f"{row['product']}{dtype}, {row['phase']},"


def _product(row: dict[str, Any]) -> str:
    base, other = (_mean(row, side, "gpu_ns", "calls") for side in ("base", "other"))
    calls = {digits(float(row[f"{side}_calls"])) for side in ("base", "other")}
    number = " → ".join(sorted(calls)) if len(calls) == 1 else f"{_number(row, 'base')} → {_number(row, 'other')}"
    head = f"{_what(row)[:-1]}: {text(base, Unit.NS)} → {text(other, Unit.NS)} a call, {number} calls"
    return head + _contention(row, float(other or 0) - float(base or 0)) + "."


def _contention(row: dict[str, Any], change_ns: float) -> str:
    """What the calls alone do, where communication runs beside others of them."""
    beside = [float(row[f"{side}_calls_beside_comm"] or 0) for side in ("base", "other")]
    alone = [_alone(row, side) for side in ("base", "other")]
    counted = f"{digits(beside[0])} → {digits(beside[1])} of them beside communication"
    if not any(beside):
        return ", none beside communication"
    if None in alone:
        return f", {counted}"
    own = float(alone[1] or 0) - float(alone[0] or 0)
    times = f"alone {text(alone[0], Unit.NS)} → {text(alone[1], Unit.NS)}"
    if abs(own) <= (1 - _SLOWED) * abs(change_ns):
        verb = "slows" if change_ns > 0 else "slowed"
        return f", {counted}: {times}, so it is communication that {verb} it"
    return f", {counted}: {times}, so it is not for communication"


def _alone(row: dict[str, Any], side: str) -> float | None:
    calls = float(row[f"{side}_calls"]) - float(row[f"{side}_calls_beside_comm"])
    return (float(row[f"{side}_gpu_ns"]) - float(row[f"{side}_gpu_beside_comm_ns"])) / calls if calls > 0 else None


def _mean(row: dict[str, Any], side: str, time: str, count: str) -> float | None:
    total, calls = row[f"{side}_{time}"], row[f"{side}_{count}"]
    return None if pd.isna(total) or not calls else float(total) / float(calls)


def _number(row: dict[str, Any], side: str) -> str:
    return digits(float(row[f"{side}_calls"]))


def _place(told: str) -> int:
    return _NAMED.index(told.split(" ", 1)[0])
