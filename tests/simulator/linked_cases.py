"""Links of one group in pipelines: more stages, replicas, buckets and hosts than the grid has; with the truth beside."""

from tests.simulator.case import MS, Case, Truth, case_of
from tests.simulator.faults import Fault, Faults
from tests.simulator.linked_jobs import cubed, staged
from tests.simulator.program import Job

_LARGE = 800_000_000
"""Elements that take 8 ms."""


def _slow(name: str, ranks: tuple[int, ...], what: str, ns: int = 9 * MS, *, only: tuple[int, ...] | None = None,
          **options: object) -> Case:  # fmt: skip
    return case_of(name, staged, Fault("link", ns, ranks, only), what, **options)  # type: ignore[arg-type]  # options are the job's


def _even(faults: Faults) -> Job:
    return staged(4, 2, faults=faults, elements=(120_000_000, 40_000_000, 40_000_000, 80_000_000))


def _across(faults: Faults) -> Job:
    """Replicas of two stages side by side on a host: the last stages' groups span both hosts."""
    return staged(2, 4, faults=faults, hosts=("a", "b") * 3 + ("a", "a"), across=8.0, elements=(_LARGE, _LARGE))


LINKED_CASES: tuple[Case, ...] = (
    _slow("a stage's links, two steps recorded", (2, 6), "all-reduce among ranks 2 and 6", first=2),
    _slow("one of four stages' links", (2, 6), "all-reduce among ranks 2 and 6"),
    _slow("the first of four stages' links", (0, 4), "all-reduce among ranks 0 and 4"),
    _slow("two of three stages' links", (0, 2, 3, 5), "all-reduce among ranks", stages=3),
    _slow(
        "one of two stages' links, four replicas",
        (1, 3, 5, 7),
        "all-reduce among ranks 1, 3, 5 and 7",
        stages=2,
        data=4,
    ),
    # What all ranks do beside nothing gains more.
    Case(
        "links half as slow again",
        lambda faults: staged(faults=faults, elements=(600_000_000,) * 4),
        (Fault("link", 3 * MS, (0, 4)),),
        Truth((0, 4), "transfer", "all-reduce among ranks 0 and 4", is_behind=True),
    ),
    _slow(
        "a sharded stage's reduce-scatter",
        (1, 5),
        "reduce-scatter among ranks 1 and 5",
        is_sharded=True,
        slow="reduce_scatter",
        buckets=3,
    ),
    _slow(
        "a sharded stage's all-gather",
        (1, 5),
        "all-gather among ranks 1 and 5",
        is_sharded=True,
        slow="all_gather",
        buckets=3,
    ),
    _slow(
        "links of two stages on a host",
        (2, 3, 6, 7),
        "all-reduce among ranks",
        hosts=("a", "a", "b", "b", "c", "c", "d", "d"),
    ),
    _slow("buckets over slow links", (1, 5), "all-reduce among ranks 1 and 5", buckets=5),
    _slow(
        "slow links of a stage with fewer parameters",
        (2, 6),
        "all-reduce among ranks 2 and 6",
        elements=(120_000_000, 40_000_000, 20_000_000, 80_000_000),
    ),
    _slow("a stage's links stall now and then", (3, 7), "all-reduce among ranks 3 and 7", 12 * MS, only=(1, 3)),
    _slow("a stage's links, interleaved", (1, 5), "all-reduce among ranks 1 and 5", chunks=2, microbatches=8),
    case_of("a tensor group's links in a cube", cubed, Fault("link", 4 * MS, (4, 5)), "all-reduce among ranks 4 and 5"),
    case_of(
        "a data group's links in a cube",
        cubed,
        Fault("link", 6 * MS, (2, 6)),
        "all-reduce among ranks 2 and 6",
        of="dp",
    ),
    _slow(
        "a stage's links and a late host of another",
        (2, 6),
        "all-reduce among ranks 2 and 6",
        left=(Fault("host", 2 * MS, (1,)),),
        others=(1,),
    ),
    Case("stages of unequal gradients, links alike", _even, (), Truth(says="ipeline")),
    Case("a stage across hosts, one within", _across, (), Truth(says="ipeline|ll-reduce")),
)
