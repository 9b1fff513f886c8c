"""How a job communicates, and what that costs all ranks alike: nothing overlaps, pieces are small, gathered twice."""

from tests.simulator.capture import Capture
from tests.simulator.case import FOUR, HEALTHY, MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import (
    accumulating,
    experts,
    gradients,
    models,
    optimizers,
    other_libraries,
    replicated_pipelines,
    sharded,
    tensor_parallel,
)
from tests.simulator.noise import unlike_hosts

COMMUNICATION: tuple[Case, ...] = (
    nobody("48 small all-reduces of scales", "Next to nothing overlaps", tensor_parallel.many_scales),
    nobody("gathered ahead, each layer twice", "", sharded.prefetching, Fault("twice", 0, tuple(range(8))),
            gather_ns=250_000, noise=unlike_hosts(113)),
    nobody("a sharded optimizer, pieces too small", "educe-scatter|bucket|ommunication", optimizers.in_shards,
            buckets=120, bucket_ns=60_000, ranks=8, noise=unlike_hosts(119)),
    nobody("all gradients in one bucket", "ll-reduce|overlaps", gradients.bucketed, buckets=(16,),
            noise=unlike_hosts(207)),
    nobody("gradients reduced twice", "ll-reduce|twice|ommunication", gradients.bucketed, times=2,
            noise=unlike_hosts(208)),
    nobody("a longer backward under longer all-reduces", "ll-reduce|ommunication|overlap", gradients.bound_by_links,
            Fault("backward", round(2.4 * MS), (3,)), noise=unlike_hosts(324)),
    nobody("redundant exchanges", "exchange", accumulating.redundant_exchanges),
    nobody("redundant exchanges, two optimizers", "3 of 4 exchanges", accumulating.redundant_exchanges, optimizers=2),
    nobody("exchanges in a row, even", "all-reduce|communication", gradients.serial),
    nobody("embeddings, even", HEALTHY + "|ll-to-all|communication", models.recommending),
    nobody("sharded, no prefetch", "nothing overlaps", sharded.gathered_late),
    nobody("late in turn within a step",
            "Ranks wait for each other 5.99 to 6.00 ms of a 15.4 ms step.*would be 5.99 ms shorter",
            accumulating.accumulated_in_turn),
    nobody("late in turn within a step, nobody waits", HEALTHY, accumulating.accumulated_in_turn, is_synced=False),
    nobody("sequence parallel", "communication|ll-gather|educe-scatter", tensor_parallel.sequence_parallel),
    # Replicas of two stages side by side on a host: the last stages' groups span both hosts.
    nobody("a stage across hosts, one within", "ipeline|ll-reduce", replicated_pipelines.linked, stages=2, data=4,
            hosts=("a", "b") * 3 + ("a", "a"), across=8.0, elements=(800_000_000,) * 2),
    nobody("exchanged by Horovod behind the last gradient", "Next to nothing overlaps|All-reduces",
            other_libraries.horovod, how=Capture(arguments="none")),
    nobody("deepep, even", "Next to nothing overlaps: .* more that may be data or waiting", other_libraries.deep_ep),
    nobody("experts even, exchanges with splits", HEALTHY + "|ll-to-all|communication", experts.hot_experts),
    nobody("buffers are broadcast each step", HEALTHY, gradients.with_buffers),
    nobody("an all-reduce for each parameter", "bucket|all-reduce|ommunication", gradients.unbucketed),
    nobody("gradients scattered in one piece", "educe-scatter|ommunication", sharded.scattered_last),
    nobody("kernels beside all-reduces take 1.8 times as long", "beside|1.8", gradients.contended),
    nobody("parameters gathered again in backward", "gathered twice", sharded.regathered, Fault("again", 0, FOUR)),
    nobody("parameters kept after forward", "All-gathers", sharded.regathered),
    nobody("gathers and reductions in one queue", "All-gathers .20 a step", sharded.queued),
    nobody("gradients in pieces of 8 MB", "66 GB/s", gradients.medium),
    case_of("one data group reduces in each micro-step", accumulating.accumulated, Fault("sync", 0, (1, 3)),
            "4 all-reduces", cause="transfer"),
    case_of("one data group of four reduces in each micro-step", accumulating.accumulated, Fault("sync", 0, (2, 6)),
            "4 all-reduces", cause="transfer", tensor=4),
)  # fmt: skip
