"""Jobs of one GPU, or of several that exchange nothing."""

from tests.simulator.case import HEALTHY, MS, Case, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import models

ONE_GPU: tuple[Case, ...] = (
    nobody("one GPU, kernels", HEALTHY, models.trained),
    nobody("one GPU, small kernels", "host", models.trained, kernel_ns=6_000, layers=60),
    nobody("one GPU, loader", "data", models.trained, Fault("data", 8 * MS, (0,))),
    nobody("one GPU, reads each layer", "cudaStreamSynchronize|item|print_stats", models.trained,
            read_each_layer=True),
    nobody("one GPU, clips by a number", HEALTHY + "|item|cudaStreamSynchronize", models.trained, clips=True),
    nobody("one GPU, copies bind", "cop", models.trained, copies_ns=12 * MS),
    nobody("one GPU, pageable copies bind", "pageable", models.trained, copies_ns=12 * MS, is_pageable=True),
    nobody("one GPU, recorded with stacks", "host|profiler", models.trained, frames=60, kernel_ns=30_000),
    nobody("one GPU, kernels of few blocks", HEALTHY + "|SM|block", models.trained, blocks=8),
    nobody("one GPU, collects garbage once", "In step 3.*gc.collect", models.trained,
            Fault("gc", 60 * MS, (0,), (3,))),
    nobody("one GPU, Python of its own",
            "Nothing is recorded of what rank 0's host does for [23].* ms a step, in one stretch", models.trained,
            Fault("silent", 30 * MS, (0,))),
    nobody("one GPU, Python of its own once", "Nothing is recorded|In step 3", models.trained,
            Fault("silent", 90 * MS, (0,), (3,))),
    nobody("one GPU, throttled more and more", HEALTHY + "|slower", models.trained,
            Fault("throttle", 0, (0,), (3, 4, 5), 1.5)),
    nobody("four GPUs, nothing exchanged", HEALTHY, models.trained, ranks=4),
    nobody("four GPUs, nothing exchanged, one slow", HEALTHY + "|wait", models.trained,
            Fault("compute", 3 * MS, (2,)), ranks=4),
)  # fmt: skip
