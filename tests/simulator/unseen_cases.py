"""Jobs written down with their truth, and committed, before any report of one was seen: durations are drawn as on machines."""

from collections.abc import Callable
from dataclasses import replace

from tests.simulator import unseen_host_jobs as hosts
from tests.simulator import unseen_jobs as jobs
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.faults import Fault
from tests.simulator.noise import Noise, noisy
from tests.simulator.program import Job

_TOLD = Capture(has_stream_waits=True)
"""What streams wait for is recorded: where it is guessed, the gain of parts that go round is said 15 % too small."""

_HEALTHY = "A step takes|model FLOPs"


def with_noise(job: Callable[..., Job], noise: Noise) -> Callable[..., Job]:
    """The job, by name and options, with noise."""
    return lambda *, faults=(), **options: noisy(job(faults=faults, **options), noise, faults)


def _nobody(name: str, says: str, job: Callable[..., Job], *faults: Fault, how: Capture | None = None, first: int = 0,
            others: tuple[int, ...] = (), **options: object) -> Case:  # fmt: skip
    """Nobody's fault comes first; what is said behind it of `others` is true."""
    return Case(name, lambda own: job(faults=own, **options), faults, Truth(says=says, others=others), how or Capture(),
                first)  # fmt: skip


def _in_turn(what: str, ns: int, turns: tuple[int, ...]) -> tuple[Fault, ...]:
    return tuple(Fault(what, ns, (rank,), (step,)) for step, rank in enumerate(turns))


def _on_nodes(**options: object) -> Job:
    return replace(jobs.rails(**options), hosts=tuple(f"node{rank // 2}" for rank in range(8)))  # type: ignore[arg-type]  # options are the job's


_PACES_16 = (1.0, 1.1, 1.2, 1.5, 1.05, 1.3, 1.0, 1.4, 1.15, 1.25, 1.0, 1.1, 1.45, 1.2, 1.0, 1.35)
_UNEQUAL = ((60, 75, 66, 90), (92, 61, 70, 64), (66, 88, 60, 71), (63, 70, 95, 62), (81, 60, 67, 74))

UNSEEN_CASES: tuple[Case, ...] = (
    # Sharded, prefetch limited.
    case_of("limited prefetch, one rank's bus", jobs.limited, Fault("bus", 7 * MS, (3,)), "HtoD", cause="copies"),
    case_of("limited prefetch, a GPU throttled", jobs.limited, Fault("throttle", 0, (6,), None, 1.25), "the same kernels take 1.2"),
    case_of("limited prefetch, a loader in two steps", jobs.limited, Fault("data", 11 * MS, (1,), (1, 3)), LOADER, steps=6),
    case_of("two nodes, one slow card", jobs.two_nodes, Fault("link", 6 * MS, (2, 6)), "all-reduce among ranks 2 and 6"),
    case_of("two nodes, a host", jobs.two_nodes, Fault("host", 6 * MS, (5,)), "log_metrics", noise=Noise(3)),
    # Tensor and context parallel.
    case_of("products by chunks, a GPU throttled", jobs.chunked_tensor, Fault("throttle", 0, (2,), None, 1.35), "the same kernels take 1.3",
            how=_TOLD),
    case_of("products by chunks, garbage", jobs.chunked_tensor, Fault("gc", 7 * MS, (1,)), "gc.collect"),
    case_of("batches broadcast in tensor groups, a source's loader", jobs.fed_by_broadcast, Fault("data", 6 * MS, (4,)), LOADER),
    case_of("a ring of unequal parts", jobs.uneven_ring, Fault("tokens", 1, (1,)), "[1, 16, 3072, 128]", cause="compute"),
    # Pipelines.
    _nobody("zero bubble, a heavy first stage", "tage 0", jobs.zero_bubble, first_ns=350_000),
    _nobody("zero bubble, a heavy last stage", "tage 3", jobs.zero_bubble, last_ns=450_000),
    case_of("zero bubble, garbage in a stage", jobs.zero_bubble, Fault("gc", 18 * MS, (2,)), "gc.collect"),
    # Experts.
    case_of("experts with a capacity, one is full", jobs.capped_experts, Fault("hot", 4 * MS, (5,)), "_grouped_mm", cause="compute"),
    case_of("a slow rail of experts", _on_nodes, Fault("link", 5 * MS, (1, 3, 5, 7)), "all-to-all among ranks 1, 3, 5 and 7"),
    case_of("split sizes read, one slower host", hosts.routed, Fault("pace", 0, (3,), None, 1.6), "", cause="host"),
    # Adapters and small kernels.
    case_of("adapters by slow launches, one slower host", hosts.adapted, Fault("pace", 0, (2,), None, 1.5), "", cause="host"),
    _nobody("adapters by slow launches", "host", hosts.adapted, noise=Noise(5, paces=(1.0, 1.06, 1.02, 1.08))),
    _nobody("clipping reads each norm", "item|cudaStreamSynchronize|clip_grad_norm", hosts.clipped),
    # Rollouts.
    case_of("rollouts by graphs, longer answers in two steps", hosts.rolled_out, Fault("answers", 12 * MS, (3,), (1, 3)), "generate",
            cause="compute", steps=6),
    _nobody("rollouts by graphs, all lengths differ", "uneven|in turn|wait for each other", hosts.rolled_out, own_tokens=_UNEQUAL),
    # Input.
    case_of("pictures, one rank refills every fourth batch", hosts.pictures, Fault("data", 40 * MS, (1,), (2, 6)), LOADER, steps=9),
    case_of("pictures, a worker dies", hosts.pictures, Fault("data", 160 * MS, (2,), (3,)), LOADER),
    _nobody("pictures, all refill every third batch", "data|oad", hosts.pictures, every=3, refill_ns=45 * MS, steps=8,
            others=(0, 1, 3)),
    _nobody("pictures from pageable memory", "ageable|pin", hosts.pictures, memory="Pageable"),
    case_of("pictures, one rank without pinned memory", hosts.pictures, Fault("pageable", 0, (2,)), "HtoD", cause="copies"),
    # Around steps.
    case_of("a checkpoint between steps", hosts.saved_between, Fault("save", 40 * MS, (0,), (2,)), "save", says_ranks=(0,)),
    case_of("validation between steps by rank 0", hosts.saved_between, Fault("eval", 24 * MS, (0,), (1, 4)), "conv", steps=7),
    _nobody("communicators are set up in the first step", "tep 0|first|warm|set up", hosts.set_up),
    _nobody("communicators are set up, and one rank computes longer", "Step 0 is a warm-up", hosts.set_up,
            Fault("compute", 3 * MS, (5,)), others=(5,)),
    _nobody("every third step is logged", _HEALTHY + "|in log|write_line", hosts.logged),
    # Memory, graphs, compilation.
    case_of("memory is full on one rank", hosts.starved, Fault("retries", 9 * MS, (1,)), "cudaFree", cause="host"),
    case_of("replayed graphs, a GPU throttled", hosts.replayed, Fault("throttle", 0, (2,), None, 1.3), "the same kernels take 1.3"),
    Case("each rank compiles again in a step of its own", lambda own: hosts.recompiled(faults=own),
         _in_turn("compile", 70 * MS, (0, 2, 1, 3)), Truth((0, 1, 2, 3), "host", "compile", (0, 1, 2, 3), is_behind=True)),
    # Two faults.
    case_of("a loader, three times as long as another's products", with_noise(usual.ddp, Noise(7)), Fault("data", 9 * MS, (2,)), LOADER,
            left=(Fault("compute", 3 * MS, (6,)),), others=(6,)),
    Case("a GPU behind a copy of nearly its length", lambda own: with_noise(usual.fsdp, Noise(8))(faults=own),
         (Fault("copy", 5 * MS, (3,)), Fault("compute", 4 * MS, (1,))), Truth((1, 3), "copies and compute", "HtoD")),
    Case("loaders of two ranks alternate", lambda own: usual.ddp(4, 8, own, layers=10),
         _in_turn("data", 11 * MS, (1, 2) * 4), Truth((1, 2), "data", LOADER)),
    # Nobody is late.
    _nobody("healthy, two ranks, two steps", "", with_noise(usual.ddp, Noise(11, host=0.3, paces=(1.0, 1.4))), ranks=2, steps=3, first=1),
    _nobody("healthy, 16 ranks, hosts at their own paces", "", with_noise(usual.ddp, Noise(12, 0.3, 0.04, 0.1, _PACES_16)), ranks=16, steps=3,
            layers=6),
    _nobody("healthy, sharded, a noisy network", "", with_noise(usual.fsdp, Noise(13, 0.2, 0.03, 0.3, _PACES_16)), ranks=8),
    _nobody("healthy, tensor x data, one step", "", with_noise(usual.tp_dp, Noise(14, 0.2, 0.03, 0.1, _PACES_16)), tensor=4, data=2, steps=3,
            first=1),
    _nobody("healthy, a pipeline with noise", "ipeline|bubble", with_noise(usual.pipelined, Noise(15, 0.2, 0.04, 0.1, _PACES_16)), steps=3),
    _nobody("healthy, experts with noise", "", with_noise(usual.ep_dp, Noise(16, 0.2, 0.06, 0.15, _PACES_16)), expert=4, data=2, steps=4),
    _nobody("healthy, limited prefetch", "", jobs.limited, noise=Noise(17, 0.3, 0.03, 0.1, _PACES_16), steps=3),
    _nobody("healthy, pictures", "", hosts.pictures, noise=Noise(18, 0.35, 0.05, 0.1, _PACES_16)),
    _nobody("healthy, replayed graphs, clocks apart", "", hosts.replayed, noise=Noise(19, 0.3, 0.03, 0.1, (1.0, 1.5, 1.2, 1.1)),
            how=Capture(offset_ns={1: 4 * MS, 2: -7 * MS})),
    _nobody("healthy, no steps, one file cut", "", with_noise(usual.ddp, Noise(20, 0.2, 0.03, 0.1)), ranks=4, has_steps=False,
            how=Capture(cut={2: 0.7})),
    _nobody("healthy, two files missing", "", with_noise(usual.fsdp, Noise(21, 0.2, 0.03, 0.1)), ranks=8, how=Capture(missing=(2, 5))),
    _nobody("healthy, half a batch in the last step of two ranks", "", hosts.joined_last),
    _nobody("healthy, one step alone", "", with_noise(usual.hsdp, Noise(22, 0.25, 0.04, 0.1, _PACES_16)), shard=2, replicate=4, steps=3, first=2),
)  # fmt: skip
