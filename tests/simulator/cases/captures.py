"""What was recorded is short, cut off, shifted or poor: few steps, clocks, lost operations, GPUs alone, ranges alone."""

from collections.abc import Callable

from tests.simulator import spoiled
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import between_steps, gpus, optimizers, serving, sharded
from tests.simulator.noise import like_hosts, unlike_hosts, with_noise
from tests.simulator.program import Job


def _short(name: str, job: Callable[..., Job], fault: Fault, what: str, **options: object) -> tuple[Case, ...]:
    """The same job with one step recorded, and with two."""
    return tuple(
        case_of(f"{name}, {'one step' if first == 3 else 'two steps'} recorded", job, fault, what, first=first, steps=4,
                has_gain=first == 2, **options)
        for first in (3, 2)
    )  # fmt: skip


CAPTURES: tuple[Case, ...] = (
    nobody("one rank evaluates before the first recorded step",
           "blocking_calls usable_steps",
           between_steps.evaluating, Fault("eval", 60 * MS, (0,), (1,)), first=2),
    nobody("ddp, clock step", "missing_data usable_steps", usual.ddp, ranks=8, steps=6, how=Capture(clock_step={3: (14 * MS, 40 * MS)})),
    case_of("served by graphs, heat, GPUs alone recorded", serving.served, Fault("throttle", 0, (2,), None, 1.3),
            "clocks", is_small=True, noise=like_hosts(136), spoil=spoiled.without_host(0, 1, 2, 3),
            is_of_capture=True),
    nobody("healthy, GPUs alone recorded", "", with_noise(usual.fsdp, unlike_hosts(154)),
            how=Capture(offset_ns={1: MS, 4: -MS}), spoil=spoiled.without_host(*range(8))),
    case_of("ranges alone, products", optimizers.in_shards, Fault("compute", 5 * MS, (6,)), "extra_gemm", ranks=8,
            noise=unlike_hosts(156), by="nsys"),
    case_of("ranges alone, a host", sharded.by_hooks, Fault("host", 9 * MS, (2,)), "log_metrics",
            noise=like_hosts(157), by="nsys"),
    nobody("healthy, 32 ranks, one stops early", "", with_noise(usual.ddp, unlike_hosts(160)), ranks=32, steps=4,
            layers=4, how=Capture(end_ns={17: 9 * MS})),
    case_of("one step recorded, half late", usual.ddp, Fault("host", 4 * MS, (0, 1)), "log_metrics", ranks=4, steps=2,
            first=1, has_gain=False),
    case_of("a call is lost", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=4,
            how=Capture(dropped={2: (3, -1)}), has_gain=False),
    nobody("operations are lost", "missing_data", usual.ddp,
            Fault("host", 3 * MS, (1,)), ranks=4, steps=4, layers=30,
            how=Capture(lost=dict.fromkeys(range(4), 0.15))),
    case_of("starts apart", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=4, steps=6,
            how=Capture(start_ns={2: 12 * MS}), has_gain=False),
    nobody("groups without names", "missing_data", usual.tp_dp,
            Fault("compute", 3 * MS, (5,)), tensor=2, data=4, steps=5, others=(5,), how=Capture(arguments="none")),
    *_short("slower in backward alone", gpus.slow_backward, Fault("backward", 2 * MS, (1,)), "same kernels", cause="compute"),
    *_short("tensor x data, loader", usual.tp_dp, Fault("data", 6 * MS, (5,)), LOADER, tensor=2, data=4),
    *_short("experts, host", usual.ep_dp, Fault("host", 5 * MS, (6,)), "log_metrics"),
    *_short("pipeline, gc", usual.pipelined, Fault("gc", 15 * MS, (1,)), "gc.collect"),
    *_short("hsdp, half throttled", usual.hsdp, Fault("throttle", 0, (4, 5, 6, 7), None, 1.5), "same kernels take 1.5", shard=4, replicate=2),
    nobody("ranks recorded one after the other", "missing_data", usual.ddp,
            Fault("compute", 3 * MS, (1,)), ranks=2, steps=10,
            how=Capture(end_ns={0: 35 * MS}, start_ns={1: 45 * MS})),
    nobody("clocks drift, even", "", usual.fsdp, how=Capture(drift={1: 0.002, 3: -0.001}), ranks=4, steps=10),
)  # fmt: skip
