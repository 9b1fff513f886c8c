"""Every sensible combination of a strategy, how somebody is late, and who or when; the others with the reason.

`python -m tests.simulator.grid_page docs/results` judges all of them, which takes half an hour of a core.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth
from tests.simulator.faults import Fault, Faults
from tests.simulator.grid_jobs import RANKS, STRATEGIES, Strategy, made
from tests.simulator.program import Job

HOW = ("host", "compute", "copy", "loader", "gc pause", "other group's communication", "chain")

WHEN = ("one rank", "a node", "half of the ranks", "in turn", "once", "first instance", "last step",
        "one complete step", "another's file missing", "its own file missing", "cut file", "no steps", "clock step")  # fmt: skip

_FAULTS = {
    "host": ("host", 4 * MS, "host", "log_metrics"),
    "compute": ("compute", 3 * MS, "compute", "mm"),
    "copy": ("copy", 3 * MS, "copies", "HtoD"),
    "loader": ("data", 4 * MS, "data", LOADER),
    "gc pause": ("gc", 5 * MS, "host", "gc.collect"),
    "other group's communication": ("link", 3 * MS, "transfer", "among ranks"),
    "chain": ("compute", 4 * MS, "compute", "mm"),
}
"""What is longer, by how much, the kind of time that this is, and what names it."""

_BEHIND_NS = 2 * MS
"""What the second rank of a chain needs more."""

_LATE, _BEHIND = 5, 0
"""The late rank; the one that is late behind it, in another group or at another stage of another replica."""

_NODE, _HALF, _TURNS = (2, 3), (0, 1, 2), (1, 3, 4)
_STEPS, _STEPS_OF_TURNS, _ONCE, _FIRST, _LAST = 5, 7, 2, 2, 4
_CLOCK_STEP = (12 * MS, 40 * MS)


@dataclass(frozen=True)
class Place:
    """A place of the grid."""

    strategy: Strategy
    how: str
    when: str

    @property
    def name(self) -> str:
        """`hsdp | copy | in turn`."""
        return f"{self.strategy.name}, {self.how}, {self.when}"


def places() -> Iterator[Place]:
    """All of them."""
    for strategy in STRATEGIES:
        for how in HOW:
            for when in WHEN:
                yield Place(strategy, how, when)


def impossible(place: Place) -> str | None:
    """Why there is no such job; `None` of one that there is."""
    if place.strategy.is_pipeline and place.how == "gc pause" and place.when in ("a node", "half of the ranks"):
        return "stages that stop for what they launched wait for each other's messages: such a job hangs"
    if place.how != "other group's communication":
        return None
    if not place.strategy.groups:
        return "all ranks are one group: its transfers are as long for all, and nobody waits for another group's"
    return _IMPOSSIBLE_OF_GROUPS.get(place.when)


_IMPOSSIBLE_OF_GROUPS = {
    "a node": "a slow group is its ranks: those of a node are such a group, and told under one rank",
    "half of the ranks": "three groups have no half; two of three are what is usual, and the third one's links are fast",
    "its own file missing": "of a group that is late several files are here: told under another's file missing",
}


def case_at(place: Place) -> Case:
    """The job of a place, with the truth about it."""
    what, ns, cause, named = _FAULTS[place.how]
    ns *= place.strategy.times
    steps = _STEPS_OF_TURNS if place.when == "in turn" else _STEPS
    faults = _faults(place, what, ns, steps)
    left = _behind(place)
    ranks = tuple(sorted({rank for fault in faults for rank in fault.ranks}))
    only = _steps(place)
    others = tuple({rank for fault in left for rank in fault.ranks})
    if what == "link" and place.when == "in turn":
        named = place.strategy.slow
    truth = Truth(ranks, cause, named, only, has_gain=place.when != "last step", others=others,
                  is_behind=place.when == "last step" or place.strategy.has_steady_cost)  # fmt: skip
    first = {"first instance": _FIRST, "one complete step": _STEPS - 2}.get(place.when, 0)
    return Case(place.name, _job(place, steps), (*faults, *left), _said(place, truth), _captured(place, ranks), first,
                left, place.when == "cut file")  # fmt: skip


def _job(place: Place, steps: int) -> Callable[[Faults], Job]:
    return lambda faults: made(place.strategy, steps, faults, has_steps=place.when != "no steps")


def _faults(place: Place, what: str, ns: int, steps: int) -> Faults:
    groups = place.strategy.groups if what == "link" else tuple((rank,) for rank in range(RANKS))
    if place.when == "in turn":
        turns = groups if what == "link" else tuple((rank,) for rank in _TURNS)
        return tuple(Fault(what, ns, turns[step % len(turns)], (step,)) for step in range(steps))
    late = next(group for group in groups if _LATE in group)
    ranks = {"a node": _NODE, "half of the ranks": _half(groups)}.get(place.when, late)
    return (Fault(what, ns, ranks, _steps(place)),)


def _steps(place: Place) -> tuple[int, ...] | None:
    return {"once": (_ONCE,), "first instance": (_FIRST,), "last step": (_LAST,)}.get(place.when)


def _half(groups: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Half of the ranks, or as many of the groups."""
    return _HALF if len(groups) == RANKS else tuple(sorted({*groups[0], *groups[1]}))


def _behind(place: Place) -> Faults:
    if place.how != "chain":
        return ()
    return (Fault("host", _BEHIND_NS * place.strategy.times, (_BEHIND,), _steps(place)),)


def _captured(place: Place, ranks: tuple[int, ...]) -> Capture:
    if place.when == "another's file missing":
        return Capture(missing=(1,))
    if place.when == "its own file missing":
        return Capture(missing=ranks)
    if place.when == "cut file":
        return Capture(cut={1: 0.75})
    if place.when == "clock step":
        return Capture(clock_step={3: (_CLOCK_STEP[0] * place.strategy.times, _CLOCK_STEP[1])})
    return Capture()


def _said(place: Place, truth: Truth) -> Truth:
    """What else is to be said first, where the late rank is not."""
    if place.when == "its own file missing":
        return Truth(kinds="missing_data", others=truth.others)
    if place.when == "clock step":
        return Truth(kinds="missing_data usable_steps", others=(*truth.ranks, *truth.others))
    return truth


GRID: tuple[Case, ...] = tuple(case_at(place) for place in places() if impossible(place) is None)
