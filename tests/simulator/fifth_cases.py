"""A fifth lot of jobs written down with their truth, and committed, before any report of one was seen."""

from dataclasses import replace

from tests.simulator import fifth_host_jobs as hosts
from tests.simulator import fifth_jobs as jobs
from tests.simulator import third_host_jobs as third
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import MS, Case, Truth, case_of
from tests.simulator.faults import Fault
from tests.simulator.program import Job
from tests.simulator.third_cases import alike, healthy, noise_of
from tests.simulator.unseen_cases import with_noise


def _racked(**options: object) -> Job:
    job = with_noise(usual.hsdp, noise_of(346))(**options)
    return replace(job, hosts=tuple(f"node{rank // 8}" for rank in range(64)))


FIFTH_CASES: tuple[Case, ...] = (
    # Nodes whose first GPUs speak for them.
    healthy("healthy, leaders of nodes", "", jobs.led, noise=noise_of(301)),
    case_of("leaders of nodes, products of one behind them", jobs.led, Fault("compute", 4 * MS, (6,)), "mm", noise=noise_of(302)),
    case_of("leaders of nodes, a leader collects garbage once", jobs.led, Fault("gc", 9 * MS, (8,), (2,)), "gc.collect", steps=5,
            noise=noise_of(303)),
    healthy("leaders of nodes, a slow network", "ll-reduce|ommunication", jobs.led, Fault("wire", 7 * MS, (0, 4, 8, 12)), noise=noise_of(304)),
    # Neighbours only.
    healthy("healthy, gossip", "", jobs.gossip, noise=noise_of(305)),
    case_of("gossip, a hot GPU", jobs.gossip, Fault("throttle", 0, (1,), None, 1.4), "the same kernels take", noise=noise_of(306)),
    # Optimizers.
    healthy("healthy, owned matrices", "", jobs.owned, noise=noise_of(307)),
    case_of("owned matrices, one owns more", jobs.owned, Fault("own", 1_950_000, (1,)), "aten::addmm", cause="compute", noise=noise_of(308)),
    healthy("healthy, roots in every third step", "", jobs.preconditioned, noise=noise_of(309)),
    case_of("roots in every third step, one rank's blocks are larger", jobs.preconditioned, Fault("eigh", 6 * MS, (5,), (1, 4)), "eigh",
            cause="compute", noise=noise_of(310)),
    healthy("healthy, merged in every fourth step", "", hosts.merged, noise=alike(311)),
    Case("merged in every fourth step, an outer optimizer once", lambda own: hosts.merged(faults=own, noise=alike(312)),
         (Fault("outer", 9 * MS, (1,), (3,)),), Truth((1,), "host", "outer")),
    # Small collectives in each layer.
    healthy("healthy, norms over all ranks", "", hosts.normed, noise=noise_of(313)),
    case_of("norms over all ranks, a hot GPU", hosts.normed, Fault("throttle", 0, (3,), None, 1.2), "the same kernels take", noise=noise_of(314)),
    # Debugged on one rank.
    case_of("one rank's launches wait for their kernels", hosts.watched, Fault("blocking", 0, (2,)), "cudaStreamSynchronize", cause="sync",
            noise=noise_of(315)),
    case_of("one rank searches its gradients", hosts.watched, Fault("anomaly", 3 * MS, (1,)), "isnan", cause="compute", noise=noise_of(316)),
    case_of("rank 0 draws histograms in every second step", hosts.watched, Fault("drawn", 6 * MS, (0,), (1, 3, 5)), "histc", cause="compute",
            steps=7, noise=noise_of(317)),
    case_of("one rank tries kernels out", hosts.watched, Fault("tune", 30 * MS, (2,), (3,)), "triton", cause="compute", noise=noise_of(318)),
    # GPUs.
    healthy("healthy, two kinds of GPUs, batches in proportion", "", jobs.two_kinds, noise=noise_of(319)),
    case_of("two kinds of GPUs, batches alike", jobs.two_kinds, Fault("alike", 0, (4, 5, 6, 7)), "A100", cause="compute", noise=noise_of(320)),
    case_of("another process on a GPU", jobs.next_door, Fault("shared", 0, (5,)), "the same kernels take", cause="compute", noise=noise_of(321)),
    case_of("two GPUs behind one switch", with_noise(usual.fsdp, noise_of(322)), Fault("copy", 5 * MS, (2, 3)), "HtoD"),
    case_of("a GPU's links are slow in both its groups", jobs.own_links, Fault("port", 5 * MS, (5,)), "ranks 4 and 5", says_ranks=(4, 5),
            cause="transfer", left=(Fault("reach", 2 * MS, (5,)),), others=(1, 3, 7), noise=noise_of(323)),
    # What costs nothing.
    healthy("a longer backward under longer all-reduces", "ll-reduce|ommunication|overlap", jobs.bound_by_links,
            Fault("backward", round(2.4 * MS), (3,)), noise=noise_of(324)),
    healthy("a light stage throttled", "ipeline", jobs.light_first, Fault("throttle", 0, (0,), None, 1.8), others=(0,), noise=noise_of(325)),
    # Pipelines.
    # The first stage runs three forward passes more in the first step: the table of who is awaited says so, no sentence does.
    healthy("healthy, a pipeline never emptied", "", jobs.unflushed, others=(0,), noise=noise_of(326)),
    healthy("a pipeline never emptied, a heavy stage", "tage 2", jobs.unflushed, others=(0,), stage_ns=(500_000, 500_000, 650_000, 500_000),
            noise=noise_of(327)),
    healthy("healthy, hosts wait for messages", "ipeline", hosts.stopping, noise=alike(328)),
    case_of("hosts wait for messages, garbage in a stage", hosts.stopping, Fault("gc", 15 * MS, (2,)), "gc.collect", noise=alike(329)),
    case_of("hosts wait for messages, two replicas, a hot GPU", hosts.stopping, Fault("throttle", 0, (5,), None, 1.4), "the same kernels take",
            data=2, noise=alike(330)),
    # Disks, modules, checkpoints.
    healthy("healthy, swapped in from disks", "", hosts.swapped, noise=alike(331)),
    case_of("swapped in from disks, a slower one", hosts.swapped, Fault("disk", 10 * MS, (2,)), "synchronize_reads", cause="host",
            noise=alike(332)),
    healthy("all load a module at its first use", "tep 2", hosts.at_first_use, Fault("module", 40 * MS, (0, 1, 2, 3), (2,)), noise=noise_of(333)),
    case_of("all write their parts, one's is larger", hosts.at_first_use, Fault("written", 30 * MS, (3,), (2,)), "save", cause="host",
            left=(Fault("written", 10 * MS, (0, 1, 2, 3), (2,)),), others=(), noise=alike(334)),
    # Serving.
    healthy("healthy, attention apart, experts together", "", hosts.apart, noise=alike(335)),
    case_of("attention apart, long prompts on a rank", hosts.apart, Fault("prompt", 4 * MS, (2,), (5, 10)), "attention", cause="compute",
            noise=alike(336)),
    case_of("decoding by stages, a hot GPU", hosts.token_by_token, Fault("throttle", 0, (2,), None, 1.35), "", noise=alike(337)),
    # Hosts.
    case_of("every second host is slower, small kernels", third.small_ones, Fault("pace", 0, (1, 3, 5, 7), None, 1.6), "", cause="host", ranks=8,
            noise=alike(338)),
    case_of("a node stalls once, nothing is recorded of it", with_noise(usual.hsdp, noise_of(339)), Fault("silent", 12 * MS, (4, 5, 6, 7), (3,)), "",
            shard=4, replicate=2, steps=6),
    # Lengths.
    healthy("healthy, sequences grow", "", jobs.lengthening, noise=noise_of(340)),
    # Two at once.
    case_of("always a little before once a lot", with_noise(usual.hsdp, noise_of(341)), Fault("compute", 4 * MS, (6,)), "mm", shard=4, replicate=2,
            steps=6, left=(Fault("data", 7 * MS, (1,), (2,)),), others=(1,)),
    # Captures.
    case_of("one node of four recorded, a GPU of it", with_noise(usual.tp_dp, noise_of(342)), Fault("compute", 4 * MS, (2,)), "mm", tensor=4, data=4,
            how=Capture(missing=tuple(range(4, 16))), has_gain=False),
    healthy("one node of four recorded, a GPU of another", "4 of 16 ranks are here", with_noise(usual.tp_dp, noise_of(343)), Fault("compute", 4 * MS, (9,)),
            tensor=4, data=4, how=Capture(missing=tuple(range(4, 16)))),
    # Many ranks.
    healthy("healthy, sharded over 48", "", with_noise(usual.fsdp, noise_of(344)), ranks=48, steps=3, layers=3, first=1),
    case_of("a rack of 64 at lower clocks", _racked, Fault("throttle", 0, tuple(range(32, 64)), None, 1.25), "the same kernels take",
            shard=8, replicate=8, steps=3, layers=2),
)  # fmt: skip
