"""Whose steps those of PyTorch's profiler are: several profilers may be told of each step of one process."""

import re

import numpy as np
import pandas as pd

from traceanalyzer.model.tables import array_of, column_of

_PROFILER_STEP = re.compile(r"^ProfilerStep#(\d{1,15})$")


_ROUNDED_NS = 1_000
"""By no more do ranges that follow each other overlap for how their times are written.

Microseconds since 1970 are exact to a quarter of one, once a program has read and saved them as floating-point numbers.
"""


def profiler_numbers(ranges: pd.DataFrame) -> list[int | None]:
    """The number that PyTorch's profiler gave each; none of other names."""
    found = [_PROFILER_STEP.search(name) for name in column_of(ranges, "name").tolist()]
    return [int(match[1]) if match else None for match in found]


def of_one_profiler(marked: pd.DataFrame) -> np.ndarray:
    """Mask of the ranges of the profiler that marks most steps, and of those before its first and after its last.

    Where two profilers are told of each step, one after the other, each one's range begins before the other's ends.
    """
    starts, ends = array_of(marked, "start_ns"), array_of(marked, "end_ns")
    kept = np.ones(len(marked), dtype=bool)
    own = [number for number in profiler_numbers(marked) if number is not None]
    if len(own) == len(marked) and ((starts[1:] < ends[:-1]) & (ends[1:] > ends[:-1])).any():
        most = max(_by_profiler(own, starts.tolist(), ends.tolist()), key=len)
        begin, end = starts[most[0]], ends[most].max()
        kept = (ends <= begin) | (starts >= end)
        kept[most] = True
    return kept


def _by_profiler(own: list[int], starts: list[int], ends: list[int]) -> list[list[int]]:
    """Rows whose numbers follow each other and whose times do not overlap, of each in order of time."""
    runs: list[list[int]] = []
    for row, number in enumerate(own):
        before = [run for run in runs if own[run[-1]] == number - 1]
        next_of = [run for run in before if ends[run[-1]] - _ROUNDED_NS <= starts[row]]
        if next_of:
            max(next_of, key=lambda run: ends[run[-1]]).append(row)
        else:
            runs.append([row])
    return runs
