"""Hosts that wait for their own GPU: numbers read, losses printed, launches that block."""

from tests.simulator import workloads as usual
from tests.simulator.case import FOUR, HEALTHY, LOADER, MS, Case, Truth, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import gpus, host_pauses, reads
from tests.simulator.noise import like_hosts, unlike_hosts

READS: tuple[Case, ...] = (
    Case("every rank reads a number in each layer", lambda _: reads.reading(), (),
            Truth(says="aten::item|cudaStreamSynchronize|cudaMemcpyAsync|choose")),
    nobody("all wait between short kernels, and load", "hosts wait for their GPUs 6 times", reads.between_short_kernels,
            Fault("read", 0, (0, 1)), is_gained=True),
    case_of("one rank reads the size of its masks", reads.masking, Fault("nonzero", 3 * MS, (2,)), "aten::nonzero",
            cause="host"),
    case_of("the loss on a rank's CPU", reads.loss_on_cpu, Fault("loss", round(8.4 * MS), (1,)), "log_softmax",
            cause="host", left=(Fault("logits", round(5.6 * MS), (1,)),)),
    case_of("one rank reads once", reads.reads_once, Fault("one", 0, (3,)), "", cause="host", noise=like_hosts(149)),
    nobody("all ranks read once", "cudaStreamSynchronize|item|host", reads.reads_once, Fault("one", 0, (0, 1, 2, 3)),
            noise=like_hosts(150)),
    case_of("one rank's launches wait for their kernels", gpus.watched, Fault("blocking", 0, (2,)),
            "cudaStreamSynchronize", cause="sync", noise=unlike_hosts(315)),
    nobody("a recurrent cell is looked at in each time step", "cudaStreamSynchronize|item", reads.recurrent,
            noise=like_hosts(415)),
    case_of("one rank prints its loss", usual.ddp, Fault("item", 3 * MS, (0,)), "print_loss", ranks=4),
    case_of("one rank prints now and then", usual.ddp, Fault("item", 4 * MS, (0,), (1, 3, 5)), "print_loss", ranks=4,
            steps=7),
    nobody("all read their loss", "print_loss|cudaStreamSynchronize|.item", usual.ddp, Fault("item", 5 * MS, FOUR),
            ranks=4, steps=6, layers=6),
    nobody("logging, even", HEALTHY, reads.logging),
    case_of("a barrier before each step, one rank prints", host_pauses.with_barrier,
            Fault("item", 4 * MS, (0,), (1, 4)), "print_loss"),
    nobody("clipping reads each norm", "item|cudaStreamSynchronize|clip_grad_norm", reads.clipped),
    nobody("every third step is logged", HEALTHY + "|in log|write_line", reads.logged),
    nobody("hosts wait for each collective", "cudaStreamSynchronize|hosts|ommunication", reads.blocking),
    case_of("hosts wait for each collective, one loader", reads.blocking, Fault("data", 5 * MS, (1,)), LOADER),
)  # fmt: skip
