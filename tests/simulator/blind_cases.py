"""Thirty jobs whose truth was written down before any report of one was seen.

What a report cannot say yet is no part of the truth: that another thread held the interpreter.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.simulator import blind_host_jobs as hosts
from tests.simulator import blind_jobs as jobs
from tests.simulator import odd_jobs as odd
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.cube_jobs import cube
from tests.simulator.faults import Fault, Faults
from tests.simulator.program import Job

_HEALTHY = "A step takes|model FLOPs"


def _nobody(name: str, says: str, job: Callable[..., Job], *faults: Fault, how: Capture | None = None, others: tuple[int, ...] = (),
            **options: object) -> Case:  # fmt: skip
    return Case(name, lambda own: job(faults=own, **options), faults, Truth(says=says, others=others), how or Capture())


def _on_hosts(faults: Faults) -> Job:
    job = usual.hsdp(4, 4, 5, faults)
    return replace(job, hosts=tuple(f"node{rank // 4}" for rank in range(16)))


BLIND_CASES: tuple[Case, ...] = (
    case_of("a GPU gets hotter and hotter", jobs.heated, Fault("heat", 0, (5,)), "the same kernels take", cause="compute"),
    case_of("memory-bound kernels alone are slower", jobs.slow_memory, Fault("memory", 0, (2,), None, 1.8), "aten::gelu",
            cause="compute", how=Capture(offset_ns={2: 30 * MS})),
    case_of("other kernels for the same products", jobs.other_library, Fault("library", 0, (1,), None, 1.35), "aten::linear",
            cause="compute"),
    case_of("one rank's batch is larger", jobs.other_batch, Fault("batch", 0, (6,), None, 1.5), "[6144, 768]", cause="compute",
            how=Capture(arguments="host")),
    Case("one rank's input runs out", lambda _: jobs.joined(), (), Truth(says="[Rr]ank 3")),
    _nobody("lengths drawn anew, sharded, no shapes", "unevenly|in turn", jobs.lengths_anew),
    case_of("a stage of a replica saves now and then", odd.pp_dp, Fault("save", 16 * MS, (0,), (1, 4)), "save", steps=6),
    Case("every rank reads a number in each layer", lambda _: hosts.reading(), (),
         Truth(says="aten::item|cudaStreamSynchronize|cudaMemcpyAsync|choose")),
    case_of("one rank reads the size of its masks", hosts.masking, Fault("nonzero", 3 * MS, (2,)), "aten::nonzero", cause="host"),
    Case("garbage in turn, sharded", lambda own: usual.fsdp(4, 8, own),
         tuple(Fault("gc", 7 * MS, (step % 4,), (step,)) for step in range(8)), Truth((0, 1, 2, 3), "host", "gc.collect")),
    Case("a node's loaders, each as slow as it is", _on_hosts,
         tuple(Fault("data", round(ms * MS), (rank,)) for rank, ms in ((8, 6.0), (9, 7.1), (10, 5.2), (11, 6.6))),
         Truth((8, 9, 10, 11), "data", LOADER)),
    Case("all loaders are slow", lambda own: usual.ddp(8, 5, own),
         tuple(Fault("data", round((11.6 + rank / 10) * MS), (rank,)) for rank in range(8)), Truth(says="data|load")),
    case_of("a thread holds the interpreter", hosts.held, Fault("gil", 8 * MS, (1,)), "", cause="host"),
    case_of("a process on a shared core", hosts.pinned, Fault("pinned", 0, (5,), None, 2.5), "", cause="host"),
    case_of("memory is freed and allocated anew", hosts.retried, Fault("retry", 9 * MS, (2,)), "cudaFree", cause="host",
            how=Capture(offset_ns={0: -70 * MS})),
    case_of("late in the first recorded step by a copy", usual.tp_dp, Fault("copy", 6 * MS, (5,), (3,)), "HtoD", tensor=2, data=4,
            steps=6, first=3),
    Case("late in the last recorded step, experts", lambda own: usual.ep_dp(faults=own), (Fault("compute", 4 * MS, (2,), (4,)),),
         Truth((2,), "compute", "mm", (4,), has_gain=False, is_behind=True), Capture(offset_ns={1: 12 * MS, 6: -8 * MS})),
    case_of("two ranks, two causes, one step", usual.hsdp, Fault("data", 9 * MS, (1,), (3,)), LOADER, shard=4, replicate=2,
            left=(Fault("compute", 4 * MS, (6,), (3,)),), others=(6,)),
    case_of("passed on through three kinds of groups", cube, Fault("throttle", 0, (5,), None, 1.4), "the same kernels take 1.4",
            tensor=4, how=Capture(offset_ns={rank: 3 * rank * MS for rank in range(16)})),
    case_of("batches come over half of the lanes", jobs.prefetched, Fault("pcie", 0, (4,), None, 2.0), "HtoD", cause="copies"),
    case_of("one microbatch more", jobs.uneven_accumulation, Fault("micro", 0, (2,)), "aten::linear", cause="compute"),
    Case("one stage recomputes, two replicas", lambda _: jobs.staged(recomputes=(1,)), (), Truth(says="recompute")),
    Case("the first stages are frozen", lambda _: jobs.staged(frozen=2), (), Truth(says=r"Stages 2 and 3 \(ranks 2, 3, 6 and 7\)")),
    case_of("CUDA graphs, one rank eager", hosts.graphed, Fault("eager", 0, (2,)), "raph", cause="host"),
    Case("48 small all-reduces of scales", lambda _: jobs.many_scales(), (), Truth(says="Next to nothing overlaps")),
    case_of("the loss on a rank's CPU", hosts.loss_on_cpu, Fault("loss", round(8.4 * MS), (1,)), "log_softmax", cause="host",
            left=(Fault("logits", round(5.6 * MS), (1,)),)),
    case_of("heat moves from one node to another", usual.ddp, Fault("throttle", 0, (8, 9, 10, 11), (2, 3, 4, 5, 6), 1.45),
            "the same kernels take", ranks=16, steps=7, layers=5, left=(Fault("throttle", 0, (0, 1, 2, 3), (0, 1), 1.3),),
            others=(0, 1, 2, 3)),
    _nobody("sharded, hosts ahead, all is well", _HEALTHY, usual.fsdp, ranks=8, steps=6, is_synced=False,
            how=Capture(offset_ns={3: 5 * MS})),
    _nobody("one file of eight", "is here alone", usual.ddp, Fault("compute", 3 * MS, (2,)),
            how=Capture(missing=(0, 1, 2, 3, 5, 6, 7))),
    _nobody("a causal mask in parts", "even|[Rr]ank 3", jobs.causal_ring, others=(2, 3)),
)  # fmt: skip
