"""Copies between host and GPU that take longer, are pageable, or run beside and cost nothing."""

from tests.simulator import workloads as usual
from tests.simulator.case import FOUR, MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import accumulating, inputs, memory, models, sharded
from tests.simulator.noise import unlike_hosts, with_noise

COPIES: tuple[Case, ...] = (
    case_of("batches come over half of the lanes", inputs.prefetched, Fault("pcie", 0, (4,), None, 2.0), "HtoD",
            cause="copies"),
    case_of("micro-steps, a slow bus", accumulating.micro_steps, Fault("bus", 8 * MS, (6,)), "HtoD", cause="copies",
            noise=unlike_hosts(146)),
    nobody("micro-steps, a snapshot beside", "", accumulating.micro_steps, Fault("snapshot", 0, (0,), (2,)),
            noise=unlike_hosts(147)),
    case_of("two GPUs behind one switch", with_noise(usual.fsdp, unlike_hosts(322)), Fault("copy", 5 * MS, (2, 3)),
            "HtoD"),
    case_of("features over a slow bus, by a kernel", inputs.gathered_from_host, Fault("bus", 3 * MS, (3,)), "gather",
            cause="compute", noise=unlike_hosts(414)),
    case_of("one of two ranks copies in the last step of four", usual.ddp, Fault("copy", 9 * MS, (1,), (3,)), "HtoD",
            ranks=2, steps=4, has_gain=False),
    case_of("activations offloaded on one rank", memory.offloads_activations, Fault("copy", 4 * MS, (2,)), "DtoH"),
    case_of("adapters, copies", models.frozen, Fault("copy", 3 * MS, (0,)), "HtoD"),
    case_of("offload, one rank's bus is slow", usual.offload, Fault("copy", 6 * MS, (1,)), "HtoD", ranks=4,
            optimizer_ns=2 * MS),
    case_of("limited prefetch, one rank's bus", sharded.limited, Fault("bus", 7 * MS, (3,)), "HtoD", cause="copies"),
    nobody("pictures from pageable memory", "blocking_calls exposed_copies", inputs.pictures, memory="Pageable"),
    case_of("pictures, one rank without pinned memory", inputs.pictures, Fault("pageable", 0, (2,)), "HtoD",
            cause="copies"),
    nobody("a checkpoint is copied beside all-reduces", "", memory.checkpointed,
            Fault("copy", 8 * MS, (0,), (3,)), Fault("link", 6 * MS, FOUR, (3,))),
)  # fmt: skip
