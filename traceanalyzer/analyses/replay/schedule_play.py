"""A pipeline's step played: passes and messages of some order, with what they take the hosts and the GPUs."""

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct

from traceanalyzer.analyses.replay.schedule_orders import BACKWARD, FORWARD, OF_INPUTS, OF_WEIGHTS, Order, Pass

STEPS = 3
"""Steps that are played one after the other; the last is measured, when each rank's start is as in a long run."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a pass, or what a rank does outside of passes, takes.

    Attributes:
        gpu_ns: its kernels, one after the other.
        before_ns: the host's work before its first launch, messages included.
        within_ns: the host's work from its first launch to its last one.
    """

    gpu_ns: float
    before_ns: float
    within_ns: float


class Outside(Struct, frozen=True):
    """What each rank does in a step outside of its passes: the optimizer, collectives, what begins the next step."""

    cost: Cost
    is_blocking: bool
    """The host waits in it until the GPU is done."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """All that an order is played with.

    Attributes:
        of_pass: by kind and stage.
        outside: by the rank's place in the pipeline.
        message_ns: from when both ends are there.
        has_one_channel: a rank's messages follow each other, whatever their peers and directions.
    """

    of_pass: Mapping[tuple[str, int], Cost]
    outside: Mapping[int, Outside]
    message_ns: float
    has_one_channel: bool


class Message(Struct, frozen=True):
    """One end of a message: the pass whose result it is, whether it is sent, and the rank's place at the other end."""

    of: Pass
    is_send: bool
    peer: int


Item = Pass | Message


def step_ns(order: Order, lengths: Lengths) -> float | None:
    """Length of a step played in this order; `None` where its passes wait for each other for ever.

    Each rank's host issues passes and messages in order and waits for nothing but, where that blocks, what is outside
    of passes. A pass runs when its rank's GPU is free, its host has launched it, and its inputs have come; kernels that
    the host launches later than the GPU could run them wait for it. A message takes its time from when both ends are
    free for it. A step lasts from when the last rank began it to when the last began the next.
    """
    programs = with_messages(order)
    if programs is None:
        return None
    clocks = _Clocks(programs, lengths)
    begins = [clocks.step() for _ in range(STEPS)]
    return begins[-1] - begins[-2]


def with_messages(order: Order) -> dict[int, list[Item]] | None:
    """The order with its messages: sent right after their pass, taken in by their receiver where it is by then.

    `None` where the passes wait for each other for ever.
    """
    place_of = {stage: place for place, passes in order.items() for _, stage, _ in passes}
    last = max(place_of)
    left = {place: deque(passes) for place, passes in order.items()}
    present = {one for passes in order.values() for one in passes}
    items: dict[int, list[Item]] = {place: [] for place in order}
    known: dict[int, set[Pass]] = {place: set() for place in order}
    while any(left.values()):
        has_moved = False
        for place in sorted(left):
            if not left[place] or any(one not in known[place] for one in needs(left[place][0], last, present)):
                continue
            has_moved = True
            done = left[place].popleft()
            items[place].append(done)
            known[place].add(done)
            target = place_of.get(_next_stage(done), place)
            if target != place:
                items[place].append(Message(done, is_send=True, peer=target))
                items[target].append(Message(done, is_send=False, peer=place))
                known[target].add(done)
        if not has_moved:
            return None
    return items


def _next_stage(one: Pass) -> int:
    kind, stage, _ = one
    return stage + 1 if kind == FORWARD else stage - 1 if kind in (BACKWARD, OF_INPUTS) else stage


def needs(one: Pass, last: int, present: set[Pass]) -> list[Pass]:
    """Passes whose results a pass needs, of which its own rank's need no message."""
    kind, stage, number = one
    if kind == FORWARD:
        return [(FORWARD, stage - 1, number)] if stage else []
    if kind == OF_WEIGHTS and (OF_INPUTS, stage, number) in present:
        return [(OF_INPUTS, stage, number)]
    behind = [(each, stage + 1, number) for each in (BACKWARD, OF_INPUTS)]
    return [(FORWARD, stage, number), *(each for each in behind if stage < last and each in present)]


class _Clocks:
    """When all ranks' hosts, GPUs and channels are done with what they were given, over several steps."""

    def __init__(self, programs: Mapping[int, list[Item]], lengths: Lengths) -> None:
        self.programs, self.lengths = programs, lengths
        self.host, self.gpu = (dict.fromkeys(programs, 0.0) for _ in range(2))
        self.present = {one for items in programs.values() for one in items if not isinstance(one, Message)}
        self.last = max(stage for _, stage, _ in self.present)

    def step(self) -> float:
        """Play one; returns when its last rank began its first pass."""
        step = _Step(self)
        for place, items in self.programs.items():
            for item in items:
                self._issue(step, place, item)
        step.run()
        for place in self.programs:
            self._outside(place, step.sent_until[place])
        return max(step.begins.values())

    def _issue(self, step: "_Step", place: int, item: Item) -> None:
        """The host never waits within a step, so that its times are known beforehand."""
        if isinstance(item, Message):
            step.channels[step.channel_of(place, item)].append((item, self.host[place]))
            return
        cost = self.lengths.of_pass[item[0], item[1]]
        launched = self.host[place] + cost.before_ns
        self.host[place] = launched + cost.within_ns
        step.passes[place].append((item, launched, self.host[place]))

    def _outside(self, place: int, sent_until: float) -> None:
        outside = self.lengths.outside[place]
        launched = self.host[place] + outside.cost.before_ns
        self.gpu[place] = max(self.gpu[place], launched, sent_until) + outside.cost.gpu_ns
        done = self.gpu[place] if outside.is_blocking else 0.0
        self.host[place] = max(launched + outside.cost.within_ns, done)


class _Step:
    """One step in which all is launched: GPUs and channels take what comes first in theirs, as soon as it is ready."""

    def __init__(self, clocks: _Clocks) -> None:
        self.clocks = clocks
        self.passes: dict[int, deque[tuple[Pass, float, float]]] = {place: deque() for place in clocks.programs}
        self.channels: dict[Channel, deque[tuple[Message, float]]] = defaultdict(deque)
        self.free: dict[Channel, float] = defaultdict(float)
        self.ends: dict[tuple[int, Pass], float] = {}
        self.begins: dict[int, float] = {}
        self.sent_until = dict.fromkeys(clocks.programs, 0.0)

    def channel_of(self, place: int, message: Message) -> "Channel":
        """What the message follows others in."""
        return (place, -1, False) if self.clocks.lengths.has_one_channel else (place, message.peer, message.is_send)

    def run(self) -> None:
        """Until all is done."""
        has_moved = True
        while has_moved:
            has_moved = False
            for place, queue in self.passes.items():
                while queue and self._run(place, *queue[0]):
                    queue.popleft()
                    has_moved = True
            for channel, messages in list(self.channels.items()):
                while messages and messages[0][0].is_send and self._send(channel, *messages[0]):
                    has_moved = True

    def _run(self, place: int, one: Pass, launched: float, launched_all: float) -> bool:
        needed = [self.ends.get((place, each)) for each in needs(one, self.clocks.last, self.clocks.present)]
        if None in needed:
            return False
        gpu = self.clocks.gpu
        begin = max([gpu[place], launched, *(each for each in needed if each is not None)])
        self.begins.setdefault(place, begin)
        gpu[place] = max(begin + self.clocks.lengths.of_pass[one[0], one[1]].gpu_ns, launched_all)
        self.ends[place, one] = gpu[place]
        return True

    def _send(self, channel: "Channel", message: Message, launched: float) -> bool:
        """A message goes when it is the next one at both ends."""
        place, target = channel[0], message.peer
        there = self.channel_of(target, Message(message.of, is_send=False, peer=place))
        waiting = self.channels[there]
        made = self.ends.get((place, message.of))
        if made is None or not waiting or waiting[0][0].of != message.of or waiting[0][0].is_send:
            return False
        begin = max(self.free[channel], self.free[there], made, launched, waiting[0][1])
        end = begin + self.clocks.lengths.message_ns
        self.free[channel] = self.free[there] = self.ends[target, message.of] = end
        for one in (place, target):
            self.sent_until[one] = max(self.sent_until[one], end)
        self.channels[channel].popleft()
        waiting.popleft()
        return True


Channel = tuple[int, int, bool]
"""A rank's place, its peer's (-1 for all peers), and whether it sends."""
