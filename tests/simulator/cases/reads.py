"""Hosts that wait for their own GPU: numbers read, losses printed, launches that block."""

from tests.simulator import workloads as usual
from tests.simulator.case import FOUR, LOADER, MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import gpus, reads
from tests.simulator.noise import unlike_hosts

READS: tuple[Case, ...] = (
    nobody("all wait between short kernels, and load", "blocking_calls per_tensor_work",
           reads.between_short_kernels, Fault("read", 0, (0, 1))),
    case_of("one rank reads the size of its masks", reads.masking, Fault("nonzero", 3 * MS, (2,)), "aten::nonzero",
            cause="host"),
    case_of("one rank's launches wait for their kernels", gpus.watched, Fault("blocking", 0, (2,)),
            "cudaStreamSynchronize", cause="sync", noise=unlike_hosts(315)),
    case_of("one rank prints its loss", usual.ddp, Fault("item", 3 * MS, (0,)), "print_loss", ranks=4),
    nobody("all read their loss", "blocking_calls launch_bound stalls", usual.ddp, Fault("item", 5 * MS, FOUR),
            ranks=4, steps=6, layers=6),
    nobody("hosts wait for each collective", "blocking_calls launch_bound exposed_communication", reads.blocking),
    case_of("hosts wait for each collective, one loader", reads.blocking, Fault("data", 5 * MS, (1,)), LOADER),
)  # fmt: skip
