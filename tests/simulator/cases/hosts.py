"""Hosts that launch too slowly, or do other work before they launch: one, some, all."""

from tests.simulator import workloads as usual
from tests.simulator.case import FOUR, MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import (
    cubes,
    data_parallel,
    experts,
    gradients,
    host_pauses,
    inputs,
    launches,
    links,
    meshes,
    optimizers,
    other_libraries,
    rollouts,
    serving,
    sharded,
    tensor_parallel,
)
from tests.simulator.noise import Noise, like_hosts, unlike_hosts

HOSTS: tuple[Case, ...] = (
    nobody("offload, even", "launch_bound per_tensor_work stalls", usual.offload, ranks=2, steps=4),
    case_of("a process on a shared core", launches.pinned, Fault("pinned", 0, (5,), None, 2.5), "", cause="host"),
    case_of("boxes sorted out on a slower CPU", inputs.boxes, Fault("nms", 4 * MS, (1,)), "nms", cause="host"),
    case_of("environments of a rank are slower", rollouts.environments, Fault("env", 5 * MS, (0,)),
            "envs.py(60): step", cause="host"),
    nobody("healthy, environments", "launch_bound blocking_calls stalls per_tensor_work", rollouts.environments,
            noise=Noise(38, 0.2, 0.03, 0.1)),
    nobody("healthy, fetched by hooks", "launch_bound blocking_calls per_tensor_work", sharded.by_hooks, noise=like_hosts(123)),
    case_of("served by graphs, a scheduler", serving.served, Fault("plan", 1 * MS, (0,)), "schedule", cause="host",
            noise=like_hosts(133)),
    # One window of four hosts that differ anyway does not tell that the fourth one costs 5% more.
    nobody("served kernel by kernel, a slower host", "straggler launch_bound", serving.served,
            Fault("pace", 0, (3,), None, 1.6), is_eager=True, iterations=16,
            noise=Noise(137, 0.2, 0.03, 0.1, (1.0, 1.15, 1.3, 1.0)), others=(3,)),
    case_of("experts in stages, a host routes slowly", cubes.experts_in_stages, Fault("route", 9 * MS, (5,)),
            "router.py(91): assign", cause="host", noise=unlike_hosts(204)),
    case_of("exchanges in a row, host", gradients.serial, Fault("host", 6 * MS, (1,)), "log_metrics"),
    case_of("broadcasts, the root's host", data_parallel.broadcasts, Fault("host", 6 * MS, (0,)), "log_metrics"),
    nobody("small kernels", "per_tensor_work launch_bound", launches.small_kernels),
    case_of("hosts meet in a barrier of the CPU, one late", host_pauses.meeting_hosts, Fault("host", 6 * MS, (1,)),
            "log_metrics"),
    case_of("edges exchanged with neighbours, a host", meshes.neighbours, Fault("host", 5 * MS, (1,)), "log_metrics"),
    case_of("sequence parallel, host", tensor_parallel.sequence_parallel, Fault("host", 4 * MS, (2,)), "log_metrics"),
    case_of("two nodes, a host", links.two_nodes, Fault("host", 6 * MS, (5,)), "log_metrics", noise=Noise(3)),
    case_of("split sizes read, one slower host", experts.routed, Fault("pace", 0, (3,), None, 1.6), "", cause="host",
            is_behind=True),
    case_of("deepep, one rank, host", other_libraries.deep_ep, Fault("host", 4 * MS, (2,)), "log_metrics"),
    case_of("decoding, one rank, host", other_libraries.decoding, Fault("host", 2 * MS, (3,)), "log_metrics"),
    case_of("groups that share ranks, a host in the middle", data_parallel.chained, Fault("host", 7 * MS, (3,)),
            "log_metrics"),
    case_of("gradients late by a hook", gradients.hooked, Fault("hook", 12 * MS, (2,)), "compress_hook",
            cause="host"),
    nobody("every host's hook is long", "launch_bound stalls", gradients.hooked, Fault("hook", 12 * MS, FOUR)),
    nobody("graphs on some ranks only, even", "exposed_communication uneven_work", launches.partly_graphed,
            Fault("eager", 0, (1,))),
    nobody("an optimizer in a loop", "launch_bound per_tensor_work",
            optimizers.looped_optimizer),
)  # fmt: skip
