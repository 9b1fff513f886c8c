"""What was recorded is short, cut off, shifted or poor: few steps, clocks, lost operations, GPUs alone, ranges alone."""

from collections.abc import Callable

from tests.simulator import spoiled
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import HEALTHY, LOADER, MS, Case, Truth, case_of, nobody, several
from tests.simulator.faults import Fault
from tests.simulator.jobs import between_steps, cubes, gpus, lengths, optimizers, serving, sharded
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
           r"In step 2, the first that was recorded, rank \d waits .* ms longer than later for rank 0, which began it late",
           between_steps.evaluating, Fault("eval", 60 * MS, (0,), (1,)), first=2),
    case_of("ddp, first recorded step", usual.ddp, Fault("compute", 5 * MS, (5,), (2,)), "mm", first=2),
    case_of("hsdp, two recorded steps", usual.hsdp, Fault("compute", 4 * MS, (5,)), "mm", first=3),
    case_of("fsdp, two recorded steps, host", usual.fsdp, Fault("host", 4 * MS, (3,)), "log_metrics", first=3),
    case_of("ddp, no steps", usual.ddp, Fault("compute", 3 * MS, (5,)), "mm", has_steps=False, has_gain=False),
    case_of("ddp, clocks apart", usual.ddp, Fault("host", 3 * MS, (5,)), "log_metrics",
            how=Capture(offset_ns={5: 90 * MS})),
    nobody("ddp, clock step", "clock", usual.ddp, ranks=8, steps=6, how=Capture(clock_step={3: (14 * MS, 40 * MS)})),
    case_of("late in the first recorded step by a copy", usual.tp_dp, Fault("copy", 6 * MS, (5,), (3,)), "HtoD",
            tensor=2, data=4, steps=6, first=3),
    several("late in the last recorded step, experts", usual.ep_dp, (Fault("compute", 4 * MS, (2,), (4,)),),
            Truth((2,), "compute", "mm", (4,), has_gain=False, is_behind=True),
            how=Capture(offset_ns={1: 12 * MS, 6: -8 * MS})),
    case_of("a cube, products, two steps recorded", cubes.interleaved_cube, Fault("compute", 5 * MS, (6,)), "mm",
            steps=4, first=1, noise=unlike_hosts(107)),
    case_of("served by graphs, heat, GPUs alone recorded", serving.served, Fault("throttle", 0, (2,), None, 1.3),
            "clocks", is_small=True, noise=like_hosts(136), spoil=spoiled.without_host(0, 1, 2, 3),
            is_of_capture=True),
    case_of("GPUs alone recorded, one hot", with_noise(usual.ddp, like_hosts(153)),
            Fault("throttle", 0, (6,), None, 1.3), "the same kernels take 1.3", spoil=spoiled.without_host(*range(8)),
            is_of_capture=True),
    nobody("healthy, GPUs alone recorded", "", with_noise(usual.fsdp, unlike_hosts(154)),
            how=Capture(offset_ns={1: MS, 4: -MS}), spoil=spoiled.without_host(*range(8))),
    nobody("healthy, ranges alone, gathered ahead", "", sharded.prefetching, noise=unlike_hosts(155), by="nsys"),
    case_of("ranges alone, products", optimizers.in_shards, Fault("compute", 5 * MS, (6,)), "extra_gemm", ranks=8,
            noise=unlike_hosts(156), by="nsys"),
    case_of("ranges alone, a host", sharded.by_hooks, Fault("host", 9 * MS, (2,)), "log_metrics",
            noise=like_hosts(157), by="nsys"),
    several("no steps, garbage now and then", with_noise(usual.ddp, unlike_hosts(158)),
            (Fault("gc", 7 * MS, (3,), (1, 3)),), Truth((3,), "host", "gc.collect"), has_steps=False),
    nobody("healthy, 32 ranks, one stops early", "", with_noise(usual.ddp, unlike_hosts(160)), ranks=32, steps=4,
            layers=4, how=Capture(end_ns={17: 9 * MS})),
    case_of("long sequences on a rank, two steps recorded", lengths.packed, Fault("long", 500 * MS, (1,)),
            "_flash_attention_forward", cause="compute", first=1, noise=unlike_hosts(216)),
    nobody("healthy, tensor x data, GPUs alone recorded", "", with_noise(usual.tp_dp, unlike_hosts(221)), tensor=4,
            data=2, how=Capture(offset_ns={2: MS, 5: -2 * MS}), spoil=spoiled.without_host(*range(8))),
    case_of("a rank recorded later and shorter, another computes longer", optimizers.in_shards,
            Fault("compute", 5 * MS, (5,)), "mm", ranks=8, steps=5, noise=unlike_hosts(222), has_gain=False,
            how=Capture(start_ns={2: 17 * MS}, end_ns={2: 70 * MS})),
    # Nsight Systems records no Python frames; without payloads, calls of two kinds of groups cannot all be told apart.
    case_of("ranges alone, tensor x data, garbage", with_noise(usual.tp_dp, unlike_hosts(426)),
            Fault("gc", 8 * MS, (3,), (2,)), "no range, operator or call", tensor=4, data=2,
            how=Capture(has_payloads=True), by="nsys"),
    case_of("late in the first of two recorded steps, a host", with_noise(usual.tp_dp, unlike_hosts(428)),
            Fault("host", 9 * MS, (6,), (2,)), "log_metrics", tensor=2, data=4, steps=5, first=2),
    case_of("one step recorded, compute", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=4, steps=2, first=1,
            has_gain=False),
    case_of("one step recorded, loader", usual.fsdp, Fault("data", 6 * MS, (1,)), LOADER, ranks=4, steps=2, first=1,
            has_gain=False),
    case_of("one step recorded, half late", usual.ddp, Fault("host", 4 * MS, (0, 1)), "log_metrics", ranks=4, steps=2,
            first=1, has_gain=False),
    case_of("two steps recorded, half late", usual.ddp, Fault("compute", 4 * MS, (0, 1)), "mm", ranks=4, steps=3,
            first=1),
    case_of("a call is lost", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=4,
            how=Capture(dropped={2: (3, -1)}), has_gain=False),
    nobody("operations are lost", "The profiler lost .*% of ranks 0 to 3.s GPU", usual.ddp,
            Fault("host", 3 * MS, (1,)), ranks=4, steps=4, layers=30,
            how=Capture(lost=dict.fromkeys(range(4), 0.15))),
    case_of("starts apart", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=4, steps=6,
            how=Capture(start_ns={2: 12 * MS}), has_gain=False),
    case_of("ends apart", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=4, steps=6,
            how=Capture(end_ns={3: 30 * MS}), has_gain=False),
    nobody("groups without names", "cannot be told whether it moves data or waits", usual.tp_dp,
            Fault("compute", 3 * MS, (5,)), tensor=2, data=4, steps=5, others=(5,), how=Capture(arguments="none")),
    nobody("one step recorded, even", "No step is complete", usual.ddp, ranks=4, steps=1),
    case_of("last step only, two steps recorded", usual.fsdp, Fault("data", 6 * MS, (3,), (3,)), LOADER, ranks=4,
            steps=4, first=2, has_gain=False),
    *_short("slower in backward alone", gpus.slow_backward, Fault("backward", 2 * MS, (1,)), "the same kernels take", cause="compute"),
    *_short("tensor x data, loader", usual.tp_dp, Fault("data", 6 * MS, (5,)), LOADER, tensor=2, data=4),
    *_short("experts, host", usual.ep_dp, Fault("host", 5 * MS, (6,)), "log_metrics"),
    *_short("pipeline, gc", usual.pipelined, Fault("gc", 15 * MS, (1,)), "gc.collect"),
    *_short("hsdp, half throttled", usual.hsdp, Fault("throttle", 0, (4, 5, 6, 7), None, 1.5), "the same kernels take 1.5", shard=4, replicate=2),
    case_of("one rank stops recording halfway", usual.ddp, Fault("compute", 3 * MS, (1,)), "mm", ranks=4, steps=8,
            how=Capture(end_ns={3: 35 * MS}), has_gain=False),
    nobody("ranks recorded one after the other", "no time|not at the same time|in common|overlap|apart", usual.ddp,
            Fault("compute", 3 * MS, (1,)), ranks=2, steps=10,
            how=Capture(end_ns={0: 35 * MS}, start_ns={1: 45 * MS})),
    case_of("a clock that drifts", usual.ddp, Fault("host", 4 * MS, (3,)), "log_metrics", ranks=4, steps=10,
            how=Capture(drift={1: 0.001, 2: -0.0005})),
    case_of("one rank records from its third step on", usual.fsdp, Fault("data", 6 * MS, (1,)), LOADER, ranks=4,
            steps=7, how=Capture(start_ns={2: 24 * MS}), has_gain=False),
    case_of("the profiler starts within a step", usual.tp_dp, Fault("compute", 3 * MS, (6,)), "mm", steps=6,
            how=Capture(start_ns=dict.fromkeys(range(16), 9 * MS)), has_gain=False),
    nobody("clocks drift, even", HEALTHY, usual.fsdp, how=Capture(drift={1: 0.002, 3: -0.001}), ranks=4, steps=10),
    nobody("a clock set anew, and a late host", "clock", usual.ddp, Fault("host", 5 * MS, (2,)), others=(2,), steps=6,
            how=Capture(clock_step={6: (24 * MS, 30 * MS)})),
    case_of("one rank recorded three steps of six", usual.ddp, Fault("host", 5 * MS, (1,)), "log_metrics", ranks=4,
            steps=6, how=Capture(end_ns={2: 38 * MS}), has_gain=False),
    case_of("the late rank recorded fewer steps", usual.ddp, Fault("host", 5 * MS, (2,)), "log_metrics", ranks=4,
            steps=6, how=Capture(end_ns={2: 48 * MS}), has_gain=False),
)  # fmt: skip
