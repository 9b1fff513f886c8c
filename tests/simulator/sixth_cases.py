"""A sixth lot of jobs written down with their truth, and committed, before any report of one was seen."""

from dataclasses import replace

from tests.simulator import fifth_host_jobs as fifth
from tests.simulator import sixth_jobs as jobs
from tests.simulator import third_host_jobs as third
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.faults import Fault
from tests.simulator.program import Job
from tests.simulator.third_cases import alike, healthy, noise_of
from tests.simulator.unseen_cases import with_noise


def _small_on_nodes(**options: object) -> Job:
    job = third.small_ones(**options)  # type: ignore[arg-type]  # options are the job's
    return replace(job, hosts=tuple(f"node{rank // 4}" for rank in range(len(job.programs))))


SIXTH_CASES: tuple[Case, ...] = (
    # Micro-batches that are steps.
    healthy("healthy, micro-batches are steps", "", jobs.micro_stepped, noise=noise_of(401)),
    case_of("micro-batches are steps, a loader in some of them", jobs.micro_stepped, Fault("data", 9 * MS, (2,), (1, 5, 9)), LOADER,
            noise=noise_of(402)),
    case_of("micro-batches are steps, a hot GPU", jobs.micro_stepped, Fault("throttle", 0, (1,), None, 1.3), "the same kernels take",
            noise=noise_of(403)),
    case_of("micro-batches are steps, garbage in the first of four", jobs.micro_stepped, Fault("gc", 12 * MS, (3,), (4,)), "gc.collect",
            noise=noise_of(404), is_read=False),
    # Pipelines side by side.
    healthy("healthy, replicas", "", jobs.replicas, noise=noise_of(405)),
    case_of("a replica has one microbatch more", jobs.replicas, Fault("more", 0, (1, 3, 5)), "aten::linear", cause="compute",
            noise=noise_of(406)),
    # Images.
    healthy("healthy, guidance by pairs", "", jobs.guided, noise=noise_of(407)),
    case_of("guidance by pairs, the half with texts takes longer", jobs.guided, Fault("text", 3 * MS, (1, 3, 5, 7)),
            "flash_attention", cause="compute", noise=noise_of(408)),
    # Long documents.
    case_of("a long document on both ranks of a pair", jobs.documents, Fault("long", 5 * MS, (2, 3), (1, 2)), "_flash_attention_forward",
            cause="compute", steps=6, noise=noise_of(409)),
    # Generation.
    healthy("healthy, beams", "host|ll-reduce|overlap", jobs.searched, noise=alike(410)),
    case_of("beams, a slower search", jobs.searched, Fault("beams", 1 * MS, (1,)), "beam_search", cause="host", noise=alike(411)),
    case_of("rewards, a rank scores longer", jobs.rewarded, Fault("score", 5 * MS, (2,)), "aten::linear", cause="compute", noise=alike(412)),
    healthy("healthy, rewards, tensors sent one by one", "", jobs.rewarded, noise=alike(413)),
    # Gathers from the host's memory.
    case_of("features over a slow bus, by a kernel", jobs.gathered_from_host, Fault("bus", 3 * MS, (3,)), "gather", cause="compute",
            noise=noise_of(414)),
    # Reads in each time step.
    healthy("a recurrent cell is looked at in each time step", "cudaStreamSynchronize|item", jobs.recurrent, noise=alike(415)),
    # Tokens in two moves.
    healthy("healthy, tokens in two moves", "", jobs.sent_in_two, noise=noise_of(416)),
    case_of("tokens in two moves, one rail's card", jobs.sent_in_two, Fault("nic", 6 * MS, (4,)), "all-to-all among ranks 0, 2, 4 and 6",
            says_ranks=(0, 2, 4, 6), cause="transfer", noise=noise_of(417)),
    # Copies that nobody waits for.
    healthy("metrics are copied out beside, nobody waits", "", jobs.measured, Fault("metrics", 4 * MS, (4,)), noise=noise_of(418)),
    healthy("all keep a checkpoint beside a step", "", jobs.measured, Fault("kept", 5 * MS, tuple(range(8)), (1,)), noise=noise_of(419)),
    # Ramps, turns, brakes.
    Case("calls for memory take longer from step to step", lambda own: with_noise(usual.fsdp, noise_of(420))(steps=7, faults=own),
         tuple(Fault("malloc", step * MS, (5,), (step,)) for step in range(1, 7)), Truth((5,), "host", "GPU memory")),
    Case("heat goes round", lambda own: with_noise(usual.ddp, noise_of(421))(ranks=4, steps=9, faults=own),
         tuple(Fault("throttle", 0, (at,), (2 * at, 2 * at + 1), 1.4) for at in range(4)), Truth((0, 1, 2, 3), "compute", "")),
    case_of("a GPU brakes in every third step", with_noise(usual.hsdp, noise_of(422)), Fault("throttle", 0, (6,), (1, 4), 1.5),
            "the same kernels take", shard=4, replicate=2, steps=7),
    # Hosts.
    case_of("a node's hosts save power, small kernels", _small_on_nodes, Fault("pace", 0, (8, 9, 10, 11), None, 1.8), "node2", cause="host",
            ranks=16, steps=3, noise=alike(423)),
    case_of("half of the loaders stall once", with_noise(usual.tp_dp, noise_of(424)), Fault("data", 11 * MS, (0, 1, 2, 3), (2,)), LOADER,
            tensor=2, data=4, steps=6),
    # Two at once.
    Case("a loader and a host in unlike shards", lambda own: with_noise(usual.hsdp, alike(425))(shard=4, replicate=2, faults=own),
         (Fault("host", 8 * MS, (5,)), Fault("data", 9 * MS, (2,))), Truth((2, 5), "host and data", LOADER)),
    # Captures.
    # Nsight Systems records no Python frames; without payloads, calls of two kinds of groups cannot all be told apart.
    replace(case_of("ranges alone, tensor x data, garbage", with_noise(usual.tp_dp, noise_of(426)), Fault("gc", 8 * MS, (3,), (2,)),
                    "no range, operator or call", tensor=4, data=2, how=Capture(has_payloads=True)), by="nsys"),
    case_of("a cut file, another rank is hot, clocks apart", with_noise(usual.fsdp, noise_of(427)), Fault("throttle", 0, (5,), None, 1.35),
            "the same kernels take", steps=6, how=Capture(cut={2: 0.6}, offset_ns={1: 3 * MS, 6: -5 * MS}), has_gain=False),
    case_of("late in the first of two recorded steps, a host", with_noise(usual.tp_dp, noise_of(428)), Fault("host", 9 * MS, (6,), (2,)),
            "log_metrics", tensor=2, data=4, steps=5, first=2),
    case_of("decoding by stages, garbage in a stage", fifth.token_by_token, Fault("gc", 9 * MS, (1,), (2, 4)), "gc.collect", noise=alike(429)),
)  # fmt: skip
