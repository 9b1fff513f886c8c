"""Hosts that stop: garbage collection, checkpoints, compilation, other threads, what nothing is recorded of."""

from tests.simulator import workloads as usual
from tests.simulator.case import FOUR, MS, Case, Truth, case_of, nobody, several
from tests.simulator.faults import Fault
from tests.simulator.jobs import (
    context_parallel,
    cubes,
    data_parallel,
    first_times,
    host_pauses,
    models,
    pipelines,
    replicated_pipelines,
    serving,
)
from tests.simulator.noise import like_hosts, unlike_hosts, with_noise

PAUSES: tuple[Case, ...] = (
    case_of("a thread holds the interpreter", host_pauses.held, Fault("gil", 8 * MS, (1,)), "", cause="host"),
    nobody("adversaries, pictures prepared within the host's lead", "", models.adversaries,
            Fault("augment", 5 * MS, (1,), (3, 4, 5, 6, 7)), noise=like_hosts(139)),
    case_of("leaders of nodes, a leader collects garbage once", data_parallel.led, Fault("gc", 9 * MS, (8,), (2,)),
            "gc.collect", steps=5, noise=unlike_hosts(303)),
    case_of("a node stalls once, nothing is recorded of it", with_noise(usual.hsdp, unlike_hosts(339)),
            Fault("silent", 12 * MS, (4, 5, 6, 7), (3,)), "", shard=4, replicate=2, steps=6),
    case_of("decoding by stages, garbage in a stage", serving.token_by_token, Fault("gc", 9 * MS, (1,), (2, 4)),
            "gc.collect", noise=like_hosts(429)),
    case_of("tensor x pipeline x data, gc", cubes.cube, Fault("gc", 8 * MS, (2,)), "gc.collect"),
    case_of("pipelines side by side, a host", replicated_pipelines.pp_dp, Fault("gc", 12 * MS, (1,)), "gc.collect"),
    several("gc in turn", usual.ddp, tuple(Fault("gc", 6 * MS, (step % 4,), (step,)) for step in range(1, 8)),
            Truth((0, 1, 2, 3), "host", "gc.collect", (1, 2, 3, 4, 5, 6, 7), has_gain=True), ranks=4, steps=8,
            layers=6),
    nobody("all collect garbage always", "stalls launch_bound", usual.ddp, Fault("gc", 10 * MS, FOUR), ranks=4, steps=6,
            layers=6),
    nobody("all save once", "stalls launch_bound", usual.ddp, Fault("save", 20 * MS, FOUR, (3,)), ranks=4, steps=6,
            layers=6),
    nobody("hosts stall at random", "straggler stalls", host_pauses.stalling_hosts,
            others=(0, 1, 2, 3)),
    nobody("hosts meet in a barrier of the CPU, none late", "",
            host_pauses.meeting_hosts),
    nobody("all hosts do the same in Python", "launch_bound stalls", usual.ddp,
            Fault("silent", 30 * MS, FOUR), ranks=4),
    case_of("the last stage has the vocabulary, another collects garbage", pipelines.with_loss,
            Fault("gc", 20 * MS, (1,)), "gc.collect", others=(3,)),
    case_of("one rank compiles again in the last step", first_times.compiled, Fault("compile", 900 * MS, (2,), (5,)),
            "compiling by torch.compile", cause="host", has_gain=False),
    case_of("tensor in pipeline, a heavy stage and a host", cubes.tensor_in_pipeline, Fault("gc", 15 * MS, (4,)),
            "gc.collect", stage_ns=(300_000, 400_000, 300_000), others=(2, 3)),
    case_of("a ring, one host", context_parallel.ring, Fault("gc", 6 * MS, (2,)), "gc.collect"),
    case_of("zero bubble, garbage in a stage", pipelines.zero_bubble, Fault("gc", 18 * MS, (2,)), "gc.collect"),
)  # fmt: skip
