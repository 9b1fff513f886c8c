"""An order in which a graph's nodes can be computed, many at a time."""

from itertools import pairwise

import numpy as np
from msgspec import Struct

from traceanalyzer.model.schema import NONE


class CircleError(ValueError):
    """A node would come before itself."""


class Order(Struct, frozen=True):
    """Edges sorted so that every level needs only earlier ones.

    Attributes:
        place: of each node in the order.
        edges: the edges in order of their targets; those of `dropped` are left out.
        source: place of each one's source.
        levels: for each level its first node's and first edge's place; and the ends.
        first: for each node its first edge's place.
        begins: the same within its level.
        dropped: mask of the edges that would have closed a circle.
    """

    place: np.ndarray
    edges: np.ndarray
    source: np.ndarray
    levels: np.ndarray
    first: np.ndarray
    begins: np.ndarray
    dropped: np.ndarray

    def latest(self, weights: np.ndarray) -> np.ndarray:
        """When each node is reached: the largest over its edges of the source's time + the edge's weight.

        `weights` has a row for each edge as given, and a column for each replay; so has the answer for nodes.
        """
        ordered = weights[self.edges]
        times = np.zeros((len(self.place), weights.shape[1]), dtype=np.int64)
        source, begins = self.source, self.begins
        bounds = self.levels.tolist()
        for (node, edge), (next_node, next_edge) in pairwise(bounds):
            reached = times[source[edge:next_edge]]
            reached += ordered[edge:next_edge]
            times[node:next_node] = np.maximum.reduceat(reached, begins[node:next_node], axis=0)
        given: np.ndarray = times[self.place]
        return given

    def deadlines(self, weights: np.ndarray, latest_ns: np.ndarray) -> np.ndarray:
        """How late each node may be reached so that none is reached after its `latest_ns`: `latest` backwards."""
        times = latest_ns[self.nodes]
        lengths = weights[self.edges]
        targets = np.repeat(np.arange(len(self.place)), np.diff(np.append(self.first, len(self.edges))))
        bounds = self.levels.tolist()
        for (_, edge), (_, next_edge) in reversed(list(pairwise(bounds))):
            held = slice(edge, next_edge)
            np.minimum.at(times, self.source[held], times[targets[held]] - lengths[held])
        given: np.ndarray = times[self.place]
        return given

    def bounds(self, node: int) -> tuple[int, int]:
        """The node's first edge's place, and the end of its edges."""
        place = int(self.place[node])
        following = self.first[place + 1] if place + 1 < len(self.first) else len(self.edges)
        return int(self.first[place]), int(following)

    @property
    def nodes(self) -> np.ndarray:
        """The node at each place."""
        nodes = np.empty(len(self.place), dtype=np.int64)
        nodes[self.place] = np.arange(len(self.place))
        return nodes


def order_of(count: int, source: np.ndarray, target: np.ndarray, may_drop: np.ndarray, when_ns: np.ndarray) -> Order:
    """Order `count` nodes, of which 0 is the source; where edges close a circle, the earliest that may is dropped.

    Args:
        count: nodes.
        source: of each edge.
        target: of each edge.
        may_drop: edges that are less sure than the others.
        when_ns: of each edge, to choose among those.

    Raises:
        CircleError: the edges that may not be dropped close a circle.
    """
    level = np.full(count, NONE, dtype=np.int64)
    dropped = np.zeros(len(source), dtype=bool)
    by_source = np.argsort(source, kind="stable")
    first = np.searchsorted(source[by_source], np.arange(count + 1))
    missing = np.bincount(target, minlength=count)
    frontier, number = np.flatnonzero(missing == 0), 0
    while True:
        while len(frontier):
            level[frontier] = number
            edges = by_source[_ranges(first[frontier], first[frontier + 1])]
            edges = edges[~dropped[edges]]
            frontier = _released(missing, target[edges])
            number += 1
        open_edges = np.flatnonzero((level[source] == NONE) & may_drop & ~dropped)
        if not len(open_edges):
            break
        cut = open_edges[when_ns[open_edges] == when_ns[open_edges].min()]
        dropped[cut] = True
        frontier = _released(missing, target[cut])
    if (level == NONE).any():
        raise CircleError
    return _sorted(level, source, target, dropped)


def _released(missing: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Nodes that wait for nothing more once these edges are done; `missing` is brought up to date."""
    np.subtract.at(missing, targets, 1)
    touched = np.unique(targets)
    released: np.ndarray = touched[missing[touched] == 0]
    return released


def _ranges(begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The numbers of all ranges [begin, end), one after the other."""
    lengths = ends - begins
    return np.repeat(begins - np.append(0, np.cumsum(lengths)[:-1])[: len(lengths)], lengths) + np.arange(lengths.sum())


def _sorted(level: np.ndarray, source: np.ndarray, target: np.ndarray, dropped: np.ndarray) -> Order:
    nodes = np.argsort(level, kind="stable")
    place = np.empty(len(level), dtype=np.int64)
    place[nodes] = np.arange(len(level))
    edges = np.flatnonzero(~dropped)
    edges = edges[np.argsort(place[target[edges]], kind="stable")]
    targets = place[target[edges]]
    # Level 0 is what nothing comes before.
    cuts = np.flatnonzero(np.diff(level[nodes])) + 1
    bounds = np.append(cuts, len(level))
    edge_bounds = np.searchsorted(targets, bounds)
    first = np.searchsorted(targets, np.arange(len(level)))
    of_level = np.repeat(np.append(0, edge_bounds[:-1]), np.diff(np.append(0, bounds)))
    return Order(
        place, edges, place[source[edges]], np.stack([bounds, edge_bounds], axis=1), first, first - of_level, dropped
    )
