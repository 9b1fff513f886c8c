"""A third lot of jobs written down with their truth, and committed, before any report of one was seen."""

from collections.abc import Callable
from dataclasses import replace

from tests.simulator import spoiled
from tests.simulator import third_host_jobs as hosts
from tests.simulator import third_jobs as jobs
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.faults import Fault, Faults
from tests.simulator.noise import Noise
from tests.simulator.program import Job
from tests.simulator.unseen_cases import with_noise

_PACES = (1.0, 1.2, 1.1, 1.3, 1.05, 1.5, 1.0, 1.15, 1.4, 1.0, 1.25, 1.1, 1.0, 1.35, 1.2, 1.05) * 4

_APART = Capture(offset_ns={1: 2 * MS, 2: -MS, 3: 5 * MS, 5: -3 * MS})


def noise_of(seed: int) -> Noise:
    """Hosts at their own paces, a noisy network."""
    return Noise(seed, 0.25, 0.03, 0.12, _PACES)


def alike(seed: int) -> Noise:
    """Hosts that all have one pace."""
    return Noise(seed, 0.2, 0.03, 0.1)


def healthy(name: str, says: str, job: Callable[..., Job], *faults: Fault, how: Capture | None = None, first: int = 0,
            spoil: spoiled.Spoil | None = None, by: str = "kineto", others: tuple[int, ...] = (),
            **options: object) -> Case:  # fmt: skip
    """Nobody's fault comes first; what is said of `others` is true."""
    truth = Truth(says=says, others=others)
    return Case(
        name, lambda own: job(faults=own, **options), faults, truth, how or Capture(), first, spoil=spoil, by=by
    )


def _heat(rank: int, first: int, factors: tuple[float, ...]) -> Faults:
    return tuple(Fault("throttle", 0, (rank,), (first + at,), factor) for at, factor in enumerate(factors))


def _in_turn(what: str, ns: int, turns: tuple[int, ...]) -> Faults:
    return tuple(Fault(what, ns, (rank,), (step,)) for step, rank in enumerate(turns))


THIRD_CASES: tuple[Case, ...] = (
    # Tensor x pipeline x data, interleaved, sequence parallel.
    # Run without any all-gather, the first is 1.02 ms a step shorter: either bound may come first.
    healthy("healthy, a cube of 16", "ipeline|All-gathers", jobs.cube, noise=noise_of(101)),
    healthy("healthy, a cube of 32", "ipeline|All-gathers", jobs.cube, tensor=4, noise=noise_of(102)),
    Case("a cube, heat grows", lambda own: jobs.cube(stages=2, chunks=1, micro=8, steps=6, faults=own, noise=noise_of(103)),
         _heat(5, 2, (1.2, 1.4, 1.6, 1.8)), Truth((5,), "compute", "the same kernels take")),
    case_of("a cube, a tensor group's links", jobs.cube, Fault("tplink", 6 * MS, (4, 5)), "among ranks 4 and 5", cause="transfer",
            noise=noise_of(104)),
    case_of("a cube, a data group's links", jobs.cube, Fault("dplink", 6 * MS, (9, 11)), "among ranks 9 and 11", cause="transfer",
            noise=noise_of(105)),
    case_of("a cube, a loader on the first stage", jobs.cube, Fault("data", 8 * MS, (0,)), LOADER, noise=noise_of(106)),
    case_of("a cube, products, two steps recorded", jobs.cube, Fault("compute", 5 * MS, (6,)), "mm", steps=4, first=1, noise=noise_of(107)),
    healthy("a cube, a heavy stage", "tage 2", jobs.cube, stage_ns=(400_000, 400_000, 650_000, 400_000), noise=noise_of(108)),
    # Fully sharded, gathered ahead.
    healthy("healthy, gathered ahead", "", jobs.prefetching, noise=noise_of(109), how=_APART),
    healthy("gathered ahead, a loader that the host's lead hides", "", jobs.prefetching, Fault("data", 9 * MS, (4,), (5,)), steps=7,
             noise=alike(110)),
    case_of("gathered ahead, a loader in two steps", jobs.prefetching, Fault("data", 9 * MS, (4,), (2, 4)), LOADER, steps=7, is_synced=True,
            noise=noise_of(111), how=_APART),
    case_of("gathered ahead, a slow bus", jobs.prefetching, Fault("batch", 5 * MS, (2,)), "HtoD", cause="copies", noise=noise_of(112)),
    healthy("gathered ahead, each layer twice", "", jobs.prefetching, Fault("twice", 0, tuple(range(8))),
             gather_ns=250_000, noise=noise_of(113)),
    case_of("gathered ahead, products in 32 bits", jobs.prefetching, Fault("dtype", 0, (3,)), "mm", cause="compute", noise=noise_of(114)),
    case_of("gathered ahead, memory is full on a rank", jobs.prefetching, Fault("allocate", 6 * MS, (5,)), "cudaFree", cause="host",
            noise=noise_of(115)),
    case_of("gathered ahead, a slow bus before heat", jobs.prefetching, Fault("batch", 6 * MS, (6,)), "HtoD", cause="copies",
            left=(Fault("throttle", 0, (1,), None, 1.2),), others=(1,), is_synced=True, noise=noise_of(116)),
    Case("gathered ahead, loaders stall in turn", lambda own: jobs.prefetching(6, 8, own, is_synced=True, noise=alike(117)),
         _in_turn("data", 12 * MS, (3, 0, 5, 2, 4, 1, 3, 0)), Truth((0, 1, 2, 3, 4, 5), "data", LOADER, is_behind=True)),
    # Sharded optimizers.
    healthy("healthy, a sharded optimizer", "", jobs.in_shards, noise=noise_of(118)),
    healthy("a sharded optimizer, pieces too small", "educe-scatter|bucket|ommunication", jobs.in_shards, buckets=120, bucket_ns=60_000, ranks=8,
             noise=noise_of(119)),
    case_of("a sharded optimizer, calls for memory", jobs.in_shards, Fault("malloc", 6 * MS, (9,)), "cudaMalloc", noise=noise_of(120)),
    healthy("healthy, optimizers on CPUs", "Optimizer.step|adam", jobs.on_the_cpu, noise=alike(121)),
    case_of("optimizers on CPUs, threads of a host oversubscribed", jobs.on_the_cpu, Fault("adam", 10 * MS, (2,)), "adam", cause="host",
            noise=alike(122)),
    healthy("healthy, fetched by hooks", "host", jobs.by_hooks, noise=alike(123)),
    case_of("fetched by hooks, a slower host", jobs.by_hooks, Fault("pace", 0, (1,), None, 1.4), "", cause="host", noise=alike(124)),
    case_of("fetched by hooks, a node's slower hosts", jobs.by_hooks, Fault("pace", 0, (4, 5, 6, 7), None, 1.4), "", cause="host", ranks=8,
            steps=3, noise=alike(125)),
    # Experts.
    healthy("healthy, routed unevenly", "", jobs.routed_unevenly, noise=noise_of(126)),
    case_of("routed unevenly, a hot rank", jobs.routed_unevenly, Fault("hot", 6 * MS, (11,)), "grouped", cause="compute", noise=noise_of(127)),
    case_of("routed unevenly, memory is freed", jobs.routed_unevenly, Fault("free", 6 * MS, (4,)), "cudaFree", noise=noise_of(128)),
    # Context parallel.
    healthy("healthy, keys and values on streams", "", jobs.keys_and_values, noise=noise_of(129), how=_APART),
    case_of("keys and values, a slow edge", jobs.keys_and_values, Fault("link", 6 * MS, (3, 4)), "ranks 3 and 4", cause="transfer",
            noise=noise_of(130)),
    case_of("keys and values, long documents", jobs.keys_and_values, Fault("long", 6 * MS, (2,)), "_flash_attention_forward", cause="compute",
            noise=noise_of(131)),
    # Serving.
    healthy("healthy, served by graphs", "", hosts.served, noise=alike(132)),
    case_of("served by graphs, a scheduler", hosts.served, Fault("plan", 1 * MS, (0,)), "schedule", cause="host", noise=alike(133)),
    case_of("drafted on one rank", hosts.drafted, Fault("draft", 3 * MS, (0,)), "mm", cause="compute", noise=alike(134)),
    healthy("healthy, verified without drafts", "", hosts.drafted, noise=alike(135)),
    replace(case_of("served by graphs, heat, GPUs alone recorded", hosts.served, Fault("throttle", 0, (2,), None, 1.3), "clocks", is_small=True, noise=alike(136)), spoil=spoiled.without_host(0, 1, 2, 3), is_of_capture=True),
    # One window of four hosts that differ anyway does not tell that the fourth one costs 5 % more.
    Case("served kernel by kernel, a slower host", lambda own: hosts.served(faults=own, is_eager=True, iterations=16,
                                                                            noise=Noise(137, 0.2, 0.03, 0.1, (1.0, 1.15, 1.3, 1.0))),
         (Fault("pace", 0, (3,), None, 1.6),), Truth(says="GPUs wait for their hosts: rank 3's", others=(3,))),
    # Two models, phases.
    healthy("healthy, adversaries", "", hosts.adversaries, noise=noise_of(138)),
    healthy("adversaries, pictures prepared within the host's lead", "", hosts.adversaries, Fault("augment", 5 * MS, (1,), (3, 4, 5, 6, 7)),
             noise=alike(139)),
    case_of("adversaries, pictures prepared for too long", hosts.adversaries, Fault("augment", 14 * MS, (1,)), "augment", cause="host",
            noise=alike(140)),
    case_of("one rank without latents", hosts.latents, Fault("encode", 5 * MS, (3,)), "conv", cause="compute", noise=noise_of(141)),
    case_of("latents, encoded in the first of two steps", hosts.latents, Fault("encode", 9 * MS, (1,), (1,)), "conv", cause="compute", steps=4,
            first=1, noise=noise_of(142)),
    healthy("healthy, preferences of random lengths", "uneven|in turn|wait for each other|generate|score", hosts.preferring, spread=14,
             noise=alike(143)),
    case_of("preferences, a host scores slowly in two steps", hosts.preferring, Fault("score", 7 * MS, (5,), (1, 3)), "score", cause="host",
            steps=6, noise=alike(144)),
    # Micro-steps, threads.
    healthy("healthy, micro-steps, threads write", "", hosts.micro_steps, writes=True, noise=noise_of(145)),
    case_of("micro-steps, a slow bus", hosts.micro_steps, Fault("bus", 8 * MS, (6,)), "HtoD", cause="copies", noise=noise_of(146)),
    healthy("micro-steps, a snapshot beside", "", hosts.micro_steps, Fault("snapshot", 0, (0,), (2,)), noise=noise_of(147)),
    # Hosts.
    case_of("a node compiles again", hosts.compiled, Fault("compile", 80 * MS, tuple(range(8, 16)), (2,)), "compile", cause="host", ranks=16,
            hosts=8, noise=noise_of(148)),
    case_of("one rank reads once", hosts.reads_once, Fault("one", 0, (3,)), "", cause="host", noise=alike(149)),
    healthy("all ranks read once", "cudaStreamSynchronize|item|host", hosts.reads_once, Fault("one", 0, (0, 1, 2, 3)), noise=alike(150)),
    healthy("healthy, small kernels", "host|overlaps", hosts.small_ones, noise=Noise(151, 0.2, 0.03, 0.1, (1.0, 1.06, 1.02, 1.08))),
    case_of("small kernels, garbage once", hosts.small_ones, Fault("gc", 8 * MS, (2,), (2,)), "gc.collect", noise=alike(152)),
    # Captures.
    replace(case_of("GPUs alone recorded, one hot", with_noise(usual.ddp, alike(153)), Fault("throttle", 0, (6,), None, 1.3),
                    "the same kernels take 1.3"), spoil=spoiled.without_host(*range(8)), is_of_capture=True),
    healthy("healthy, GPUs alone recorded", "", with_noise(usual.fsdp, noise_of(154)), how=Capture(offset_ns={1: MS, 4: -MS}),
             spoil=spoiled.without_host(*range(8))),
    healthy("healthy, ranges alone, gathered ahead", "", jobs.prefetching, noise=noise_of(155), by="nsys"),
    replace(case_of("ranges alone, products", jobs.in_shards, Fault("compute", 5 * MS, (6,)), "extra_gemm", ranks=8, noise=noise_of(156)), by="nsys"),
    replace(case_of("ranges alone, a host", jobs.by_hooks, Fault("host", 9 * MS, (2,)), "log_metrics", noise=alike(157)), by="nsys"),
    Case("no steps, garbage now and then", lambda own: with_noise(usual.ddp, noise_of(158))(has_steps=False, faults=own),
         (Fault("gc", 7 * MS, (3,), (1, 3)),), Truth((3,), "host", "gc.collect")),
    # Many ranks.
    case_of("a node's network card", jobs.paired_nodes, Fault("nic", 4 * MS, tuple(range(8))), "all-reduce", cause="transfer", noise=noise_of(159)),
    healthy("healthy, 32 ranks, one stops early", "", with_noise(usual.ddp, noise_of(160)), ranks=32, steps=4, layers=4,
             how=Capture(end_ns={17: 9 * MS})),
    healthy("healthy, tensor x data on 64", "", with_noise(usual.tp_dp, noise_of(161)), tensor=8, data=8, steps=3, layers=2, first=1),
    case_of("sharded over 64, one GPU hot", with_noise(usual.fsdp, noise_of(162)), Fault("throttle", 0, (37,), None, 1.35), "the same kernels take",
            ranks=64, steps=3, layers=3),
    # Several causes.
    case_of("a loader, then a GPU, then garbage", with_noise(usual.ddp, noise_of(163)), Fault("data", 9 * MS, (2,)), LOADER, steps=6,
            left=(Fault("compute", 3 * MS, (5,)), Fault("gc", 6 * MS, (7,), (2,))), others=(5, 7)),
)  # fmt: skip
