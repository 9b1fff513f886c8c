"""How a job communicates, and what that costs all ranks alike: nothing overlaps, pieces are small, gathered twice."""

from tests.simulator.case import FOUR, Case, case_of, nobody
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
    nobody("48 small all-reduces of scales", "exposed_communication", tensor_parallel.many_scales),
    nobody("gathered ahead, each layer twice", "", sharded.prefetching, Fault("twice", 0, tuple(range(8))),
            gather_ns=250_000, noise=unlike_hosts(113)),
    nobody("redundant exchanges", "redundant_communication", accumulating.redundant_exchanges),
    nobody("exchanges in a row, even", "exposed_communication slow_link", gradients.serial),
    nobody("embeddings, even", "", models.recommending),
    nobody("late in turn within a step",
            "uneven_work",
            accumulating.accumulated_in_turn),
    nobody("sequence parallel", "exposed_communication slow_link", tensor_parallel.sequence_parallel),
    nobody("deepep, even", "exposed_communication", other_libraries.deep_ep),
    nobody("parameters gathered again in backward", "redundant_communication exposed_communication", sharded.regathered, Fault("again", 0, FOUR)),
    nobody("parameters kept after forward", "exposed_communication", sharded.regathered),
    nobody("gradients in pieces of 8 MB", "exposed_communication", gradients.medium),
    case_of("one data group reduces in each micro-step", accumulating.accumulated, Fault("sync", 0, (1, 3)),
            "4 all-reduces", cause="transfer"),
)  # fmt: skip
