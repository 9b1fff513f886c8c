"""What most of each run's step is: by rank, for one that waits and one that is waited for are bound by other things."""

import pandas as pd

from traceanalyzer.diff import Comparison
from traceanalyzer.diff.captures import Capture
from traceanalyzer.meaning.quantities import digits
from traceanalyzer.meaning.vocabulary import (
    COMM,
    COMM_PARTS,
    COMPUTE,
    COPY,
    IDLE,
    IDLE_PARTS,
    OPAQUE,
    Part,
    in_a_sentence,
)

MOST_SORTS = 3
"""Sorts of ranks that are told of one run, those with most ranks first."""

_MOST_RANKS = 4


def sentence(comparison: Comparison) -> str | None:
    """`Most of a step is idle (host) (68 %) on rank 0, compute (64 %) on rank 1 in ddp; …`; `None` if none tells."""
    known = {side.label: text for side in comparison.sides if (text := of_capture(side.first))}
    if len(known) > 1 and len(set(known.values())) == 1 and len(known) == len(comparison.sides):
        return f"Most of a step is {next(iter(known.values()))} in every run."
    return f"Most of a step is {'; '.join(f'{text} in {run}' for run, text in known.items())}." if known else None


def of_capture(capture: Capture) -> str | None:
    """The largest part of each rank's window, ranks with the same one together."""
    shares = _shares(capture)
    if shares is None or shares.empty:
        return None
    largest, pct = shares.idxmax(axis=1), shares.max(axis=1)
    sorts = sorted(largest.groupby(largest), key=lambda sort: (-len(sort[1]), str(sort[0])))
    if len(sorts) == 1:
        return f"{in_a_sentence(str(sorts[0][0]))} ({_range(pct)})"
    told = [
        f"{in_a_sentence(str(name))} ({_range(pct[own.index])}) on {_ranks(own.index)}"
        for name, own in sorts[:MOST_SORTS]
    ]
    rest = sum(len(own) for _, own in sorts[MOST_SORTS:])
    return ", ".join(told) + (f", others on {rest} more" if rest else "")


def _shares(capture: Capture) -> pd.DataFrame | None:
    """Per cent of each rank's window by part, under the parts' labels."""
    parts = parts_by_rank(capture)
    if parts is None:
        return None
    window = _by_rank(capture.tables["breakdown"])["window_ns"].astype("float64")
    return 100 * parts.div(window.where(window > 0), axis=0).dropna(how="all")


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


def _range(pct: pd.Series) -> str:
    low, high = digits(round(float(pct.min()))), digits(round(float(pct.max())))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _ranks(ranks: pd.Index) -> str:
    named = ", ".join(map(str, sorted(ranks)[:_MOST_RANKS]))
    more = f" and {len(ranks) - _MOST_RANKS} more" if len(ranks) > _MOST_RANKS else ""
    return f"rank {named}" if len(ranks) == 1 else f"ranks {named}{more}"
