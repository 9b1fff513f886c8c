"""Which ranks runs of one size are compared on, where a run lacks the traces of some."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from traceanalyzer.diff.captures import Capture, Side
from traceanalyzer.diff.scales import world_size


def with_same_ranks(sides: Sequence[Side], read_again: Callable[[int, frozenset[int]], Side]) -> list[Side]:
    """The sides, each of the ranks that all have: a mean over two ranks is none over one, nor is a wait for a peer.

    Jobs of other sizes, and those that share no rank, stay as they are.

    Args:
        sides: as they were read.
        read_again: the side at a place, of these ranks; what was stored is cut to them where it has a row for each.
    """
    common = _shared(sides)
    if common is None:
        return [*sides]
    every = frozenset[int]().union(*map(_ranks_of, sides))
    made = []
    for place, side in enumerate(sides):
        own = side if _ranks_of(side) == common else read_again(place, common)
        lacks = tuple(sorted(every - _ranks_of(side)))
        made.append(Side(side.label, tuple(_of_ranks(capture, common, side.label, lacks) for capture in own.captures)))
    return made


def _shared(sides: Sequence[Side]) -> frozenset[int] | None:
    """Ranks that every capture has, of jobs of one size; `None` where all have the same, or none is shared."""
    captures = [capture for side in sides for capture in side.captures]
    held, sizes = [_ranks(capture) for capture in captures], {world_size(capture) for capture in captures}
    common = frozenset.intersection(*held)
    is_told = len(sizes) == 1 and None not in sizes and common
    return common if is_told and any(own != common for own in held) else None


def _of_ranks(capture: Capture, common: Collection[int], label: str, lacks: tuple[int, ...]) -> Capture:
    tables = {
        name: frame[frame["rank"].isin([*common])].reset_index(drop=True) if "rank" in frame else frame
        for name, frame in capture.tables.items()
    }
    return replace(capture, label=label, tables=tables, lacks=lacks)


def _ranks_of(side: Side) -> frozenset[int]:
    return frozenset[int]().union(*map(_ranks, side.captures))


def _ranks(capture: Capture) -> frozenset[int]:
    frame = capture.table("ranks")
    return frozenset() if frame is None else frozenset(int(rank) for rank in frame["rank"])
