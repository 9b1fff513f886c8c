"""Memory that is full: calls of the allocator, memory freed and asked for anew."""

from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import FOUR, MS, Case, Truth, case_of, nobody, several
from tests.simulator.faults import Fault
from tests.simulator.jobs import accumulating, memory, optimizers, sharded
from tests.simulator.noise import like_hosts, unlike_hosts

MEMORY: tuple[Case, ...] = (
    case_of("ddp of 3, once, free", usual.ddp, Fault("free", 9 * MS, (2,), (1,)), "cudaFree", ranks=3, steps=4),
    case_of("memory is freed and allocated anew", memory.refilled, Fault("retry", 9 * MS, (2,)), "cudaFree",
            cause="host", how=Capture(offset_ns={0: -70 * MS})),
    case_of("gathered ahead, memory is full on a rank", sharded.prefetching, Fault("allocate", 6 * MS, (5,)),
            "cudaFree", cause="host", noise=unlike_hosts(115)),
    case_of("a sharded optimizer, calls for memory", optimizers.in_shards, Fault("malloc", 6 * MS, (9,)),
            "cudaMalloc", noise=unlike_hosts(120)),
    several("two ranks, three steps, calls for memory of unequal length", usual.ddp,
            tuple(Fault("malloc", ms * MS, (1,), (step,)) for step, ms in enumerate((4, 3, 2))),
            Truth((1,), "host", "calls for GPU memory"), ranks=2, steps=3),
    nobody("allocation stalls all", "allocator_retries", usual.ddp, Fault("malloc", 15 * MS, FOUR), ranks=4,
            steps=6, layers=6),
    case_of("accumulating, free now and then", accumulating.accumulating, Fault("free", 7 * MS, (3,), (1, 2)),
            "cudaFree", steps=6),
    nobody("all empty their caches, one GPU", "allocator_retries", memory.emptied, Fault("empty", 5 * MS, (0, 1)),
           is_gained=True, ranks=2, layers=6, noise=like_hosts(1102)),
    case_of("one rank empties its cache in each step", memory.emptied, Fault("empty", 9 * MS, (2,)), "GPU memory",
            cause="host", noise=unlike_hosts(1103)),
    case_of("memory is full on one rank", memory.starved, Fault("retries", 9 * MS, (1,)), "cudaFree", cause="host"),
)  # fmt: skip
