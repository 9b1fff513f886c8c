"""How a job communicates, and what that costs all ranks alike: nothing overlaps, pieces are small, gathered twice."""

from tests.simulator.case import FOUR, HEALTHY, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import (
    accumulating,
    gradients,
    models,
    other_libraries,
    sharded,
    tensor_parallel,
)
from tests.simulator.noise import unlike_hosts

COMMUNICATION: tuple[Case, ...] = (
    nobody("48 small all-reduces of scales", "Next to nothing overlaps", tensor_parallel.many_scales),
    nobody("gathered ahead, each layer twice", "", sharded.prefetching, Fault("twice", 0, tuple(range(8))),
            gather_ns=250_000, noise=unlike_hosts(113)),
    nobody("redundant exchanges", "exchange", accumulating.redundant_exchanges),
    nobody("exchanges in a row, even", "all-reduce|communication", gradients.serial),
    nobody("embeddings, even", HEALTHY + "|ll-to-all|communication", models.recommending),
    nobody("late in turn within a step",
            "Ranks wait for each other 5.99 to 6.00 ms of a 15.4 ms step.*would be 5.99 ms shorter",
            accumulating.accumulated_in_turn),
    nobody("sequence parallel", "communication|ll-gather|educe-scatter", tensor_parallel.sequence_parallel),
    nobody("deepep, even", "Next to nothing overlaps: .* more that may be data or waiting", other_libraries.deep_ep),
    nobody("parameters gathered again in backward", "gathered twice", sharded.regathered, Fault("again", 0, FOUR)),
    nobody("parameters kept after forward", "All-gathers", sharded.regathered),
    nobody("gradients in pieces of 8 MB", "66 GB/s", gradients.medium),
    case_of("one data group reduces in each micro-step", accumulating.accumulated, Fault("sync", 0, (1, 3)),
            "4 all-reduces", cause="transfer"),
)  # fmt: skip
