"""Which calls that wait for the GPU a rank makes more often than its peers do."""

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np

from traceanalyzer.analyses.replay.nodes import Nodes
from traceanalyzer.analyses.replay.same_operation import calls_passed, since_first
from traceanalyzer.model.schema import NONE

_Place = tuple[int, str, int]
"""Step, name, and how many communication calls of the step were launched before."""


def more_calls(nodes: Mapping[int, Nodes], rank: int, peers: Collection[int]) -> list[int]:
    """Segments of the rank that begin with them: of a step and name as many as it makes more than any peer.

    Those between two communication calls between which it makes more of them.
    """
    left = nodes[rank].blocking_calls if peers else Counter[tuple[int, str]]()
    most = Counter[tuple[int, str]]()
    for peer in peers:
        most |= nodes[peer].blocking_calls
        if not left - most:
            return []
    left = left - most
    own = _places(nodes[rank])
    usual = Counter[_Place]()
    for peer in peers if left else ():
        usual |= Counter(_places(nodes[peer]).values())
    found = []
    for segment, place in own.items():
        if usual[place] > 0:
            usual[place] -= 1
        elif left[place[:2]] > 0:
            left[place[:2]] -= 1
            found.append(segment)
    return found


def _places(nodes: Nodes) -> dict[int, _Place]:
    """Of each segment that a blocking call begins where that is."""
    held = np.flatnonzero(nodes.column("segments", "before") != NONE)
    first = np.searchsorted(nodes.column("host", "segment"), held)
    steps, names = nodes.column("segments", "step")[held], nodes.piece.segments["call"].to_numpy(dtype=object)[held]
    passed = since_first(np.append(calls_passed(nodes.piece), 0)[np.minimum(first, len(nodes.piece.host))], steps)
    return dict(zip(held.tolist(), zip(steps.tolist(), names.tolist(), passed.tolist(), strict=True), strict=True))
