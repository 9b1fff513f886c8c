"""Batches that come late: slow loaders and storage, of one rank, of some, of all; always, in turn, now and then."""

from functools import partial

from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import FOUR, LOADER, MS, Case, Truth, case_of, nobody, several
from tests.simulator.faults import Fault, in_turn
from tests.simulator.jobs import (
    accumulating,
    between_steps,
    cubes,
    gradients,
    host_pauses,
    inputs,
    memory,
    models,
    other_libraries,
    sharded,
)
from tests.simulator.noise import Noise, like_hosts, unlike_hosts, with_noise

LOADING: tuple[Case, ...] = (
    case_of("a loader in the first recorded step, clocks apart", with_noise(usual.tp_dp, Noise(35, 0.2, 0.03, 0.1)),
            Fault("data", 8 * MS, (5,), (2,)), LOADER, tensor=2, data=4, steps=6, first=2,
            how=Capture(offset_ns={1: 20 * MS, 5: -15 * MS, 7: 3 * MS})),
    case_of("adversaries, pictures prepared for too long", models.adversaries, Fault("augment", 14 * MS, (1,)),
            "augment", cause="host", noise=like_hosts(140)),
    case_of("ranges alone, loaders", sharded.prefetching, Fault("data", 10 * MS, (6,)), "", cause="data",
            is_synced=True, noise=unlike_hosts(223)),
    nobody("healthy, swapped in from disks", "", memory.swapped, noise=like_hosts(331)),
    case_of("swapped in from disks, a slower one", memory.swapped, Fault("disk", 10 * MS, (2,)), "synchronize_reads",
            cause="host", noise=like_hosts(332)),
    case_of("half of the loaders stall once", with_noise(usual.tp_dp, unlike_hosts(424)),
            Fault("data", 11 * MS, (0, 1, 2, 3), (2,)), LOADER, tensor=2, data=4, steps=6),
    case_of("validating job, loader", between_steps.validates, Fault("data", 9 * MS, (1,)), LOADER),
    case_of("accumulating, loader", accumulating.accumulating, Fault("data", 6 * MS, (2,)), LOADER),
    nobody("all wait for data now and then", "data_loading", usual.ddp,
            Fault("data", 6 * MS, FOUR, (1, 4)), ranks=4, steps=8, layers=6),
    case_of("tensor x pipeline x data, loader", cubes.cube, Fault("data", 9 * MS, (6,)), LOADER),
    case_of("embeddings, a loader", models.recommending, Fault("data", 5 * MS, (2,)), LOADER),
    case_of("loaders of half now and then", usual.ddp, Fault("data", 9 * MS, FOUR, (1, 3, 5)), LOADER, steps=7),
    case_of("limited prefetch, a loader in two steps", sharded.limited, Fault("data", 11 * MS, (1,), (1, 3)), LOADER,
            steps=6),
    case_of("pictures, a worker dies", inputs.pictures, Fault("data", 160 * MS, (2,), (3,)), LOADER),
    several("loaders of two ranks alternate", usual.ddp, in_turn("data", 11 * MS, (1, 2) * 4),
            Truth((1, 2), "data", LOADER), ranks=4, steps=8, layers=10),
    case_of("decoding, one rank, loader", other_libraries.decoding, Fault("data", 2 * MS, (1,)), LOADER),
    case_of("gradients in pieces of 8 MB, a loader", gradients.medium, Fault("data", 9 * MS, (2,)), LOADER),
    case_of("hosts meet in an all-reduce of the CPU, a loader", partial(host_pauses.meeting_hosts, name="allreduce"),
            Fault("data", 6 * MS, (1,)), LOADER, ranks=2, steps=3),
)  # fmt: skip
