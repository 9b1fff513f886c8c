"""What numbers a rank's steps have, and after which of them recording paused."""

import re
from itertools import pairwise

import numpy as np
import pandas as pd

from traceanalyzer.model.tables import array_of
from traceanalyzer.selection.profilers import profiler_numbers
from traceanalyzer.selection.step_ranges import is_iteration

_LAST_NUMBER = re.compile(r"(?<!\d)(\d{1,15})\D*$")  # more digits are no number of a step

_PAUSE = 0.5
"""Of a step's length: where numbers do not rise, so long nothing is recorded between it and the next in a pause."""


def numbers_of(names: pd.Series) -> np.ndarray:
    """The number that ends each name; ordinals where a name has none, two share one, or it counts something else."""
    if any(map(is_iteration, names)):
        return np.arange(len(names))
    texts = [match[1] for name in names if (match := _LAST_NUMBER.search(name))]
    return np.array([*map(int, texts)] if len(set(texts)) == len(names) else range(len(names)), dtype=np.int64)


def ends_recording(found: pd.DataFrame) -> np.ndarray:
    """Steps of PyTorch's profiler after which it paused: the next one in the file is not the program's next step.

    It numbers the steps that it does not record, too. Numbers that do not rise are of another profiler, or of a run
    that was resumed: there the time between the two tells.
    """
    starts, ends = array_of(found, "start_ns"), array_of(found, "end_ns")
    is_apart = starts[1:] - ends[:-1] > _PAUSE * (ends - starts)[:-1]
    pairs = [
        one is not None and other is not None and other != one + 1 and (other > one or bool(apart))
        for (one, other), apart in zip(pairwise(profiler_numbers(found)), is_apart, strict=True)
    ]
    return np.array([*pairs, False][: len(found)], dtype=bool)


def notes_of(found: pd.DataFrame) -> tuple[str, ...]:
    """Says so where the numbers of PyTorch's profiler repeat or fall."""
    own = profiler_numbers(found)
    fall = [(one, other) for one, other in pairwise(own) if one is not None and other is not None and other <= one]
    if not fall:
        return ()
    told = "counted from 0" if len(set(own)) < len(own) else "taken"
    said = (
        f"Step {fall[0][0]} is followed by step {fall[0][1]}, as where several profilers record one process, or a run "
        f"is resumed: they are {told} in order of time."
    )
    return (said,)
