"""In which of the recorded steps a rank is late, in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from traceanalyzer.meaning.listed import numbered
from traceanalyzer.meaning.number_lists import numbers

_MOST_LISTED = 8


@dataclass(frozen=True, slots=True)
class Recorded:
    """The job's steps.

    Attributes:
        complete: the numbers of those that are complete on all ranks: gains are of these.
        last: the number of the last one.
    """

    complete: tuple[int, ...]
    last: int | None

    @property
    def steps(self) -> int | None:
        """How many steps are complete on all ranks; `None` without any."""
        return len(self.complete) or None


def when(row: Mapping[str, Any], recorded: Recorded) -> str:
    """In which steps, unless in all alike; which few of them hold most of it, and which are in no mean step.

    Of one that is in no complete step at all, whether that is the capture's last.
    """
    steps, most = numbers(row["numbers"]), numbers(row["most_numbers"])
    held = f"(nine tenths of it in {numbered('step', most)}) " if most else ""
    if row["is_in_every_step"] or not steps:
        return f"in every step {held}" if held else ""
    if len(steps) > _MOST_LISTED:
        return f"in {len(steps)} of {row['steps']} steps {held or f'(first in step {steps[0]}) '}"
    if steps == (recorded.last,):
        return f"in {numbered('step', steps)}, the capture's last, {held}"
    return f"in {numbered('step', steps)} {_left_out(steps, row, recorded)}{held}"


def _left_out(steps: tuple[int, ...], row: Mapping[str, Any], recorded: Recorded) -> str:
    """Which of its steps are in no mean step, where others are and what mending it gains is said."""
    open_steps = [step for step in steps if step not in recorded.complete]
    if not open_steps or len(open_steps) == len(steps) or row.get("gain_ns") is None:
        return ""
    are = "is" if len(open_steps) == 1 else "are"
    return f"({numbered('step', open_steps)} {are} not complete on all ranks, and in no mean) "
