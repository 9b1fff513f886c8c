"""The standard orders in which pipelines run their passes (GPipe, 1F1B, interleaved, zero-bubble), and their play."""

from collections import defaultdict, deque
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct

from traceanalyzer.errors import UsageError

FORWARD, BACKWARD, OF_INPUTS, OF_WEIGHTS = "F", "B", "I", "W"
"""Kinds of passes: forward, backward, and the two halves of a backward one."""

Pass = tuple[str, int, int]
"""Kind, stage of the model and microbatch, both counted from 0."""

Order = Mapping[int, list[Pass]]
"""A step's passes in order, by the rank's place in its pipeline."""


ORDERS = ("gpipe", "1f1b", "interleaved", "zero-bubble")
"""Schedules by the name that `--schedule` takes.

Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters (2021); Qi et al., Zero Bubble Pipeline
Parallelism (2024), H1: gradients of weights computed apart, as many passes later as there are ranks before.
"""

MOST_CHUNKS = 64


def read_schedule(text: str) -> tuple[str, int | None]:
    """Name and stages a rank of `1f1b`, `interleaved:4`; `None` where the text says no number.

    Raises:
        UsageError: there is no such schedule.
    """
    name, colon, number = text.strip().partition(":")
    is_number = number.isdecimal() and 0 < int(number) <= MOST_CHUNKS
    if name not in ORDERS or (colon and not is_number):
        raise UsageError(
            f"schedule {text!r}: write {', '.join(ORDERS)}; with stages a rank interleaved:2 (at most {MOST_CHUNKS})"
        )
    if (name == "1f1b" and is_number and int(number) > 1) or (name == "interleaved" and number == "1"):
        raise UsageError(f"schedule {text!r}: 1f1b has one stage a rank, interleaved more than one")
    return name, int(number) if is_number else None


def order_of(name: str, ranks: int, microbatches: int, chunks: int) -> Order:
    """The order of a schedule.

    Raises:
        UsageError: interleaving takes groups of as many microbatches as there are ranks, which these do not fill.
    """
    if chunks > 1 and name != "gpipe" and microbatches % ranks:
        raise UsageError(
            f"schedule {name}: with {chunks} stages a rank the microbatches ({microbatches}) must be a multiple of the "
            f"ranks ({ranks})"
        )
    if name == "gpipe":
        return {place: _all_forward_first(place, ranks, microbatches, chunks) for place in range(ranks)}
    is_split = name == "zero-bubble"
    return {place: _in_turns(place, ranks, microbatches, chunks, is_split=is_split) for place in range(ranks)}


def _all_forward_first(place: int, ranks: int, microbatches: int, chunks: int) -> list[Pass]:
    """All forward passes, then all backward ones; of several stages a rank one after the other, as they follow."""
    forward = [(FORWARD, chunk * ranks + place, number) for chunk in range(chunks) for number in range(microbatches)]
    return forward + sorted(((BACKWARD, stage, number) for _, stage, number in forward), key=lambda one: -one[1])


def _in_turns(place: int, ranks: int, microbatches: int, chunks: int, *, is_split: bool) -> list[Pass]:
    """A forward and a backward pass in turns once a rank has what it needs; with several stages a rank interleaved."""
    total = microbatches * chunks
    ahead = ranks - 1 - place
    # In zero-bubble half a backward pass sets the pace, so that interleaved ranks start one pass apart.
    warm = ahead if chunks == 1 else (chunks - 1) * ranks + (1 if is_split else 2) * ahead
    warm = min(warm, total)
    numbered = [_numbered(number, ranks, chunks) for number in range(total)]
    forward = [(FORWARD, chunk * ranks + place, number) for chunk, number in numbered]
    back = [((chunks - 1 - chunk) * ranks + place, number) for chunk, number in numbered]
    found = forward[:warm]
    for done, (stage, number) in enumerate(back):
        found += forward[warm + done : warm + done + 1]
        found.append((OF_INPUTS if is_split else BACKWARD, stage, number))
        if is_split and done >= place:
            found.append((OF_WEIGHTS, *back[done - place]))
    return [*found, *((OF_WEIGHTS, *one) for one in back[max(total - place, 0) :])] if is_split else found


def _numbered(number: int, ranks: int, chunks: int) -> tuple[int, int]:
    """Chunk and microbatch of a rank's forward pass: groups of as many microbatches as ranks, chunk by chunk."""
    if chunks == 1:
        return 0, number
    group, within = divmod(number, ranks * chunks)
    return within // ranks, group * ranks + within % ranks


# Passes with their messages, and when each of them ends.


class Message(Struct, frozen=True):
    """A message: the pass whose result it is, and the ranks' places in the pipeline."""

    of: Pass
    source: int
    target: int

    def other_end(self, place: int) -> tuple[int, bool]:
        """The place that it comes from or goes to, and whether it goes."""
        return (self.target, True) if place == self.source else (self.source, False)


Item = Pass | Message


def with_messages(order: Order) -> dict[int, list[Item]] | None:
    """The order with its messages: sent right after their pass, taken in by their receiver where it is by then.

    `None` where the passes wait for each other for ever.
    """
    place_of = {stage: place for place, passes in order.items() for _, stage, _ in passes}
    last, present = max(place_of), {one for passes in order.values() for one in passes}

    def ends(one: Pass, free: float, ended: Mapping[Pass, float]) -> float | None:
        return free if all(each in ended for each in needs(one, last, present)) else None

    done = in_order({place: order[place] for place in sorted(order)}, ends)
    if done is None:
        return None
    items: dict[int, list[Item]] = {place: [] for place in order}
    for one in done:
        place = place_of[one[1]]
        target = place_of.get(_next_stage(one), place)
        items[place].append(one)
        if target != place:
            for end in (place, target):
                items[end].append(Message(one, place, target))
    return items


def _next_stage(one: Pass) -> int:
    kind, stage, _ = one
    return stage + 1 if kind == FORWARD else stage - 1 if kind in (BACKWARD, OF_INPUTS) else stage


def needs(one: Pass, last: int, present: Container[Pass]) -> list[Pass]:
    """Passes whose results a pass needs, of which its own rank's need no message."""
    kind, stage, number = one
    if kind == FORWARD:
        return [(FORWARD, stage - 1, number)] if stage else []
    if kind == OF_WEIGHTS and (OF_INPUTS, stage, number) in present:
        return [(OF_INPUTS, stage, number)]
    behind = [(each, stage + 1, number) for each in (BACKWARD, OF_INPUTS)]
    return [(FORWARD, stage, number), *(each for each in behind if stage < last and each in present)]


T = TypeVar("T", bound=Hashable)


def in_order(
    queues: Mapping[Any, Sequence[T]],
    ends: Callable[[T, float, Mapping[T, float]], float | None],
    free_ns: Mapping[Any, float] = MappingProxyType({}),
) -> dict[T, float] | None:
    """When each task ends where each queue does its own in order, the queues by turns; `None` where they wait for ever.

    Args:
        queues: a task of several is done by all of them together.
        ends: when a task ends, by when its queues are free and by the tasks that have ended; `None` for not yet.
        free_ns: of queues that are not free from the beginning.
    """
    left = {queue: deque(tasks) for queue, tasks in queues.items()}
    holders: dict[T, list[Any]] = defaultdict(list)
    for queue, tasks in queues.items():
        for task in tasks:
            holders[task].append(queue)
    free, ended = {**dict.fromkeys(queues, 0.0), **free_ns}, dict[T, float]()
    before = -1
    while len(ended) > before:
        before = len(ended)
        for tasks in left.values():
            if not tasks or not all(left[queue] and left[queue][0] == tasks[0] for queue in holders[tasks[0]]):
                continue
            task = tasks[0]
            end = ends(task, max(free[queue] for queue in holders[task]), ended)
            if end is not None:
                ended[task] = end
                for queue in holders[task]:
                    free[queue] = end
                    left[queue].popleft()
    return None if any(left.values()) else ended
