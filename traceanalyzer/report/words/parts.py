"""The parts that each rank's time is split into, as the bars, tiles and verdict show them."""

from collections.abc import Sequence

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses import Results
from traceanalyzer.analyses.overview import over_ranks, steps_over_ranks, time_parts
from traceanalyzer.analyses.overview.over_ranks import OverRanks
from traceanalyzer.analyses.overview.steps_over_ranks import StepsOverRanks
from traceanalyzer.analyses.overview.time_parts import StepTimeParts, TimeParts
from traceanalyzer.analyses.time.headline import steps_of
from traceanalyzer.findings.basis import count_of_steps
from traceanalyzer.meaning.vocabulary import INSEPARABLE, UNMATCHED, UNSPLIT, WAIT, Part
from traceanalyzer.meaning.wholes import whole


class Split(Struct, frozen=True):
    """Each rank's time by part.

    Attributes:
        basis: what it is of: `steps 2 to 3`, or `whole capture`.
        steps: number of those steps; `None` for a whole capture.
        parts: in the order of the bars.
        table: of `time_parts`: `rank`, `window_ns`, and of each part its time in a mean step (or the capture) and its
            share; the parts add up, also where what is unknown makes those that are known too small.
    """

    basis: str
    steps: int | None
    parts: tuple[Part, ...]
    table: pd.DataFrame

    @property
    def whole(self) -> str:
        """Words for what the times are of."""
        return whole(self.steps)

    @property
    def has_wait(self) -> bool:
        """Whether exposed communication is told apart into transfer and wait."""
        return any(part is WAIT for part in self.parts)


def split(results: Results) -> Split | None:
    """The parts of `time_parts` that add up to the windows, called as the bars call them; `None` without any rank."""
    table = time_parts_of(results).table
    if table.empty:
        return None
    rest = unsplit_part(unsplit_calls(results, headline_steps(results)))
    return Split(
        str(table["basis"].iloc[0]), count_of_steps(table),
        tuple(rest if part is UNMATCHED else part for part in time_parts.leaves(table)), table,
    )  # fmt: skip


def split_steps(results: Results) -> tuple[pd.DataFrame, tuple[Part, ...]]:
    """The rows of `step_time_parts`, with the parts that add up to each step; empty where there are no steps."""
    table = step_time_parts_of(results).table
    if table.empty:
        return table, ()
    rest = unsplit_part(unsplit_calls(results))
    return table, tuple(rest if part is UNMATCHED else part for part in time_parts.leaves(table))


def time_parts_of(results: Results) -> TimeParts:
    """`time_parts`; where an analysis failed that divides a part further, what the others give."""
    made = results["time_parts"]
    if len(made) or not len(results["headline"]):
        return made
    exposed_comm, idle, step_needs = results["exposed_comm"], results["idle"], results["step_needs"]
    return time_parts.across({}, results["headline"], results["steps"], exposed_comm, idle, step_needs)


def over_ranks_of(results: Results) -> OverRanks:
    """`over_ranks`, likewise."""
    made = results["over_ranks"]
    if len(made) or not len(results["headline"]):
        return made
    return over_ranks.across({}, time_parts_of(results), results["headline"], results["mfu"])


def step_time_parts_of(results: Results) -> StepTimeParts:
    """`step_time_parts`, likewise."""
    made = results["step_time_parts"]
    if len(made) or not len(results["steps"]):
        return made
    return time_parts.of_steps({}, results["steps"], results["exposed_comm"], results["idle"])


def steps_over_ranks_of(results: Results) -> StepsOverRanks:
    """`steps_over_ranks`, likewise."""
    made = results["steps_over_ranks"]
    return made if len(made) else steps_over_ranks.across({}, step_time_parts_of(results))


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
