"""How a changed pipeline begins its first recorded step: as it would have ended the step before it."""

from collections.abc import Sequence

import numpy as np

from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.job import Job
from traceanalyzer.analyses.replay.piece import SOURCE
from traceanalyzer.analyses.replay.windows import Windows
from traceanalyzer.model.tables import array_of

_LEAST = 0.01
"""Of the windows: what moves the ranks' begins against each other by less changes no gain."""

_ALIKE = 0.1
"""Of that: where ranks begin and end apart by more, the steps before the first were others."""


def begun_as_ended(
    job: Job,
    windows: Windows,
    scenarios: Sequence[tuple[Change, ...]],
    weights: np.ndarray,
    recorded: np.ndarray,
    times: np.ndarray,
) -> np.ndarray | None:
    """Lengths of every edge with ranks begun later, against those that gain most; `None` where nothing moves.

    A stage that was late at the end of each recorded step was late before the first one, too. A replay begins as the
    recording did, which of few steps gives a gain that many would not. So ranks begin apart by as much as the changed
    job ends them: where the recorded job does so, and the change is of every step.

    Args:
        job: the graph.
        windows: the steps.
        scenarios: sets of changes, a column of `weights` and `times` each.
        weights: lengths of edges after the changes.
        recorded: when nodes are reached unchanged, in the first column.
        times: when they are reached after the changes.
    """
    if not windows.has_steps:
        return None
    first, last = windows.of_ranks(recorded[:, :1])
    later_ns = last - windows.of_ranks(times)[1]
    later_ns = later_ns.max(axis=0) - later_ns
    is_apart = np.abs((first - last) - (first - last).mean()).max() > _ALIKE * later_ns.max(axis=0)
    whole_ns = float((last - first).max())
    steps = frozenset(array_of(windows.table, "step").tolist())
    is_of_all = np.array([all(each.steps is None or each.steps >= steps for each in own) for own in scenarios])
    later_ns[:, is_apart | ~is_of_all | (later_ns.max(axis=0) < _LEAST * whole_ns)] = 0
    if not later_ns.any():
        return None
    edges = np.flatnonzero(job.source == SOURCE)
    bases = np.array(list(job.base.values()))
    moved: np.ndarray = weights.copy()
    moved[edges] += later_ns[np.searchsorted(bases, job.target[edges], side="right") - 1]
    return moved
