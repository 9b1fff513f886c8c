"""A fourth lot of jobs written down with their truth, and committed, before any report of one was seen."""

from dataclasses import replace

from tests.simulator import drawn_jobs as drawn
from tests.simulator import fourth_jobs as jobs
from tests.simulator import spoiled
from tests.simulator import third_host_jobs as hosts
from tests.simulator import third_jobs as third
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.faults import Fault
from tests.simulator.noise import Noise
from tests.simulator.program import Job
from tests.simulator.third_cases import alike, healthy, noise_of
from tests.simulator.unseen_cases import with_noise


def _capped(**options: object) -> Job:
    job = with_noise(usual.hsdp, noise_of(214))(**options)
    return replace(job, hosts=tuple(f"node{rank // 4}" for rank in range(16)))


FOURTH_CASES: tuple[Case, ...] = (
    # Ranks that do unlike things.
    healthy("healthy, encoders keep up", "", jobs.encoded, noise=noise_of(201)),
    healthy("encoders are behind", r"tage 0 \(ranks 0 and 1\) computes", jobs.encoded, Fault("pictures", 5 * MS, (0, 1)), noise=noise_of(202)),
    healthy("healthy, experts in stages", "", jobs.experts_in_stages, noise=noise_of(203)),
    case_of("experts in stages, a host routes slowly", jobs.experts_in_stages, Fault("route", 9 * MS, (5,)), "router.py(91): assign", cause="host",
            noise=noise_of(204)),
    # Copies.
    healthy("healthy, activations on the host", "", jobs.spilled, noise=noise_of(205)),
    case_of("activations on the host, a slow bus", jobs.spilled, Fault("bus", 12 * MS, (2,)), "", cause="copies", noise=noise_of(206)),
    # Buckets.
    healthy("all gradients in one bucket", "ll-reduce|overlaps", jobs.bucketed, buckets=(16,), noise=noise_of(207)),
    healthy("gradients reduced twice", "ll-reduce|twice|ommunication", jobs.bucketed, times=2, noise=noise_of(208)),
    # Hosts.
    healthy("hosts pause at random", "in turn|gc.collect|stay on their hosts", jobs.pausing, chance_of=0.15,
            others=tuple(range(8)), noise=alike(209)),
    case_of("rank 0 logs in every second step", jobs.pausing, Fault("host", 7 * MS, (0,), (1, 3, 5)), "log_metrics", noise=alike(210), steps=7),
    case_of("decoding, a slower host", jobs.decoded, Fault("pace", 0, (2,), None, 1.6), "", cause="host", noise=alike(211)),
    healthy("healthy, decoding", "host", jobs.decoded, noise=alike(212)),
    healthy("healthy, one host at half the pace, GPUs ahead", "", jobs.bucketed, noise=Noise(213, 0.3, 0.03, 0.1, (1.0, 2.0, 1.1, 1.3) * 2)),
    # GPUs.
    case_of("two GPUs of a node capped for some steps", _capped, Fault("throttle", 0, (4, 5), (2, 3), 1.35), "the same kernels take",
            shard=4, replicate=4, steps=6),
    case_of("products in 32 bits on a rank of a pair", jobs.precise, Fault("wide", 0, (6,)), "mm", cause="compute", noise=noise_of(215)),
    case_of("long sequences on a rank, two steps recorded", jobs.packed, Fault("long", 500 * MS, (1,)), "_flash_attention_forward", cause="compute",
            first=1, noise=noise_of(216)),
    healthy("one of four ranks has the longest lengths by chance", "compute unevenly", drawn.lengths_and_faults, spread=0.6, seed=7),
    healthy("healthy, lengths of packed sequences", "uneven|overlap|ommunication", jobs.packed, spread=0.3, noise=noise_of(217)),
    # Generation and training.
    case_of("answers, a rank's cache is full", jobs.answered, Fault("retry", 8 * MS, (3,)), "GPU memory", cause="host", noise=alike(218)),
    # Links.
    healthy("a card that slows all groups", "ll-reduce|ommunication", jobs.summed_over_nodes, Fault("nic", 6 * MS, tuple(range(8))),
            noise=noise_of(219)),
    case_of("a loader before a slow edge", third.keys_and_values, Fault("data", 8 * MS, (1,)), LOADER,
            left=(Fault("link", 3 * MS, (3, 4)),), others=(3, 4), noise=noise_of(220)),
    # Captures.
    healthy("healthy, tensor x data, GPUs alone recorded", "", with_noise(usual.tp_dp, noise_of(221)), tensor=4, data=2,
            how=Capture(offset_ns={2: MS, 5: -2 * MS}), spoil=spoiled.without_host(*range(8))),
    replace(case_of("a rank recorded later and shorter, another computes longer", third.in_shards, Fault("compute", 5 * MS, (5,)), "mm",
                    ranks=8, steps=5, noise=noise_of(222), has_gain=False),
            how=Capture(start_ns={2: 17 * MS}, end_ns={2: 70 * MS})),
    case_of("ranges alone, loaders", third.prefetching, Fault("data", 10 * MS, (6,)), "", cause="data", is_synced=True, noise=noise_of(223)),
    # Two ranks take turns; many ranks.
    Case("two ranks compute longer in turn", lambda own: jobs.pausing(8, 8, own, noise=alike(224)),
         tuple(Fault("compute", 4 * MS, (1 if step % 2 else 6,), (step,)) for step in range(8)), Truth((1, 6), "compute", "mm")),
    healthy("healthy, a cube of 48", "ipeline", third.cube, tensor=4, stages=3, data=4, micro=6, noise=noise_of(225)),
    case_of("a cube of 48, a host", third.cube, Fault("host", 9 * MS, (29,)), "log_metrics", tensor=4, stages=3, data=4, micro=6,
            noise=noise_of(226)),
    case_of("preferences, a scorer and a hot GPU", hosts.preferring, Fault("score", 8 * MS, (2,)), "score", cause="host",
            left=(Fault("throttle", 0, (5,), None, 1.25),), others=(5,), noise=alike(227)),
)  # fmt: skip
