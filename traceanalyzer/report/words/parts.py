"""The parts that each rank's time is split into, as the bars, tiles and verdict show them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from traceanalyzer.analyses import Result, Results
from traceanalyzer.analyses.time.breakdown import PARTS
from traceanalyzer.analyses.time.headline import steps_of
from traceanalyzer.meaning.vocabulary import (
    COMM,
    COMM_PARTS,
    COMPUTE,
    COPY,
    IDLE,
    IDLE_PARTS,
    INSEPARABLE,
    OPAQUE,
    UNMATCHED,
    UNSPLIT,
    WAIT,
    Part,
)


@dataclass(frozen=True, slots=True)
class Split:
    """Each rank's time by part.

    Attributes:
        basis: what it is of: `steps 2 to 3`, or `whole capture`.
        steps: number of those steps; `None` for a whole capture.
        parts: in the order of the bars.
        table: `rank`, `window_ns` and a column for each part, summed over the basis; the parts add up.
    """

    basis: str
    steps: int | None
    parts: tuple[Part, ...]
    table: pd.DataFrame

    @property
    def per(self) -> int:
        """By what to divide for a mean step; 1 for a whole capture."""
        return self.steps or 1

    @property
    def opaque_pct(self) -> float:
        """Share of all ranks' time in which nothing but CUDA graphs of unknown content runs."""
        return float(100.0 * self.table["opaque_ns"].sum() / max(1, self.table["window_ns"].sum()))

    @property
    def has_wait(self) -> bool:
        """Whether exposed communication is told apart into transfer and wait."""
        return any(part is WAIT for part in self.parts)


def split(results: Results) -> Split | None:
    """The headline's breakdown with communication and idle in their own parts where Results have them.

    `None` without any rank. Parts that do not add up to what they divide are left out.
    """
    headline = results["headline"].to_frame()
    if headline.empty:
        return None
    chosen = headline_steps(results)
    # The parts that add up: of a window with unknown time those that are known are too small, and the words say so.
    table = results["headline"].table[["rank", "window_ns", *PARTS]].reset_index(drop=True)
    comm_parts = (*COMM_PARTS[:-1], unsplit_part(unsplit_calls(results, chosen)))
    table, comm = _divided(table, results.get("exposed_comm"), COMM, comm_parts, chosen)
    table, idle = _divided(table, results.get("idle"), IDLE, IDLE_PARTS, chosen)
    steps = headline["steps"].iloc[0]
    return Split(
        str(headline["basis"].iloc[0]), None if pd.isna(steps) else int(steps),
        (COMPUTE, *comm, COPY, OPAQUE, *idle), table.reset_index(drop=True),
    )  # fmt: skip


def split_steps(results: Results) -> tuple[pd.DataFrame, tuple[Part, ...]]:
    """Each step of each rank by part, as the bars split a mean step: `rank`, `step`, `is_complete`, `window_ns`, parts.

    Steps without a window are left out; the table is empty where there are none.
    """
    steps = results["steps"].table if "steps" in results else pd.DataFrame(columns=["step"])
    held = steps[steps["step"].notna()] if len(steps) else steps
    held = held[held["window_ns"].notna()] if len(held) else held
    if held.empty:
        return held, ()
    table = held[["rank", "step", "is_complete", "window_ns", *PARTS]].reset_index(drop=True)
    comm_parts = (*COMM_PARTS[:-1], unsplit_part(unsplit_calls(results)))
    keys = ["rank", "step"]
    table, comm = _divided(table, results.get("exposed_comm"), COMM, comm_parts, keys=keys)
    table, idle = _divided(table, results.get("idle"), IDLE, IDLE_PARTS, keys=keys)
    return table, (COMPUTE, *comm, COPY, OPAQUE, *idle)


def unsplit_calls(results: Results, steps: Sequence[int] = ()) -> pd.DataFrame:
    """The calls of these steps, or all, whose transfer and wait are not told apart: rows of `call_waits`."""
    if "call_waits" not in results:
        return pd.DataFrame(columns=["rank", "step", "collective", "is_matched", "why_not_split"])
    frame = results["call_waits"].to_frame()
    frame = frame[frame["transfer_ns"].isna()]
    return frame[frame["step"].isin(steps)] if len(steps) else frame


def unsplit_part(calls: pd.DataFrame) -> Part:
    """What exposed communication that is neither transfer nor wait is called, by the calls that it can be of."""
    is_matched = calls["is_matched"].astype(bool)
    if is_matched.empty or not is_matched.any():
        return UNMATCHED
    return INSEPARABLE if is_matched.all() else UNSPLIT


def headline_steps(results: Results) -> list[int]:
    """Numbers of the steps that the headline is of; none when it is of the whole capture."""
    return steps_of(results["headline"], results["steps"])


def _divided(
    table: pd.DataFrame,
    detail: Result | None,
    whole: Part,
    parts: tuple[Part, ...],
    steps: Sequence[int] = (),
    keys: Sequence[str] = ("rank",),
) -> tuple[pd.DataFrame, tuple[Part, ...]]:
    """The table with `whole`'s parts as columns when they are there and add up, else as it is.

    By rank, summed over `steps` (none: of the whole capture); or by rank and step.
    """
    if detail is None or not len(detail):
        return table, (whole,)
    frame = detail.to_frame()
    columns = [part.column for part in parts if part.column in frame]
    wanted = frame["step"].notna() if "step" in keys else frame["step"].isin(steps) if steps else frame["step"].isna()
    sums = frame[wanted].groupby(list(keys))[columns].sum(min_count=1)
    joined = table.join(sums, on=list(keys))
    total = joined[columns].sum(axis=1)
    if joined[columns].isna().all(axis=1).any() or (total != joined[whole.column]).any():
        return table, (whole,)
    return joined.fillna(dict.fromkeys(columns, 0)), tuple(part for part in parts if part.column in columns)
