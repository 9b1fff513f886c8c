"""Files named by their rank within a node, in a folder for each node: which ranks of the job they are."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from traceanalyzer.decoding.stream import EventText
from traceanalyzer.discovery.clustering import SAME_RUN_NS, TraceFile, natural
from traceanalyzer.errors import NotATraceError
from traceanalyzer.readers import NODE_ORDER, RankHint

_LISTED = re.compile(rb'"Process Group Ranks"\s*:\s*"?\[([\d, ]+)\]')
_SIZE = re.compile(rb'"Group size"\s*:\s*(\d+)')

_MOST_BYTES = 64 << 20
"""Of a file's text: what is looked into for groups."""


def of_nodes(captures: Sequence[TraceFile]) -> list[TraceFile]:
    """The captures; ranks that stand in names and repeat from folder to folder are counted through the folders.

    Only where neighbouring folders hold the same numbers from 0 on, files do not say which rank they are, all began
    within a minute, and process groups hold the ranks so counted, also of other nodes.
    """
    by_place: dict[Path, dict[Path, list[TraceFile]]] = defaultdict(lambda: defaultdict(list))
    for capture in captures:
        folder = capture.place.parent
        by_place[folder.parent][folder].append(capture)
    ranks: dict[Path, int] = {}
    for folders in by_place.values():
        if len(folders) > 1:
            ranks |= _counted([folders[folder] for folder in sorted(folders, key=lambda one: natural(one.name))])
    return [replace(c, hint=RankHint(ranks[c.path], NODE_ORDER)) if c.path in ranks else c for c in captures]


def _counted(nodes: Sequence[list[TraceFile]]) -> dict[Path, int]:
    """Each file's rank, nodes in order; nothing where the files do not bear it out."""
    each = len(nodes[0])
    every = [capture for node in nodes for capture in node]
    starts = [capture.start_ns for capture in every]
    is_local = all(sorted(rank for c in node for rank in c.ranks) == list(range(each)) for node in nodes)
    says_rank = any(c.header.ranks is not None or c.is_numbered_by_order or c.url is not None for c in every)
    if not is_local or says_rank or max(starts) - min(starts) > SAME_RUN_NS:
        return {}
    ranks = {c.path: place * each + c.ranks[0] for place, node in enumerate(nodes) for c in node}
    firsts = [next(c.path for c in node if c.ranks[0] == 0) for node in nodes]
    return ranks if all(_agrees(path, ranks[path], each, len(every)) for path in firsts) else {}


def _agrees(path: Path, rank: int, each: int, world: int) -> bool:
    """Whether every group that the first file of a node lists holds its rank, and one reaches beyond the node."""
    listed: set[bytes] = set()
    sizes: set[int] = set()
    try:
        text = EventText.open(path)
    except NotATraceError:
        return False
    read = 0
    for chunk in text.chunks():
        listed |= {*_LISTED.findall(chunk)}
        sizes |= {int(size) for size in _SIZE.findall(chunk)}
        read += len(chunk)
        if read > _MOST_BYTES:
            break
    text.file.close()
    groups = [{int(number) for number in ranks.split(b",")} for ranks in listed]
    is_beyond = any(max(group) >= rank + each or min(group) < rank for group in groups) or world in sizes
    return is_beyond and all(rank in group and max(group) < world for group in groups)
