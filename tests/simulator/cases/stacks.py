"""Stacks of other kinds, each fault in its own: each lot was committed before any report of it was seen."""

from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import FOUR, LOADER, MS, Case, case_of, nobody, on_nodes
from tests.simulator.faults import Fault
from tests.simulator.jobs import diffusion, graph_networks, hybrid, other_models, recommenders, reinforced
from tests.simulator.noise import like_hosts, unlike_hosts, with_noise
from tests.simulator.spoiled import without_steps

STACKS: tuple[Case, ...] = (
    # The first lot.
    nobody("healthy, trained and generated on the same GPUs", "", reinforced.colocated, noise=like_hosts(601)),
    case_of("generated on the same GPUs, a rank plans for longer", reinforced.colocated, Fault("plan", 5 * MS, (5,)),
            "schedule", cause="host", noise=like_hosts(602)),
    case_of("generated on the same GPUs, products in training", reinforced.colocated, Fault("compute", 6 * MS, (2,)),
            "mm", others=(5,), noise=like_hosts(603)),
    # Held against those who train: that of two who generate only one is slow is said behind it ("rank 5 most").
    case_of("generated apart, a generator is slower", reinforced.apart, Fault("answer", 4 * MS, (5,)),
            "rank 5 most", says_ranks=(4, 5), cause="compute", has_gain=False, noise=like_hosts(604)),
    nobody("healthy, tables sharded unevenly", "", recommenders.sharded_tables, others=(0, 4), noise=unlike_hosts(605)),
    case_of("tables of a rank have longer bags", recommenders.sharded_tables, Fault("hot", 5 * MS, (3,)),
            "split_embedding", cause="compute", others=(0, 4), noise=unlike_hosts(606)),
    nobody("sharded tables, all loaders are slow", "data|load", recommenders.sharded_tables,
            Fault("data", 8 * MS, tuple(range(8))), noise=like_hosts(607)),
    nobody("healthy, latents of frozen encoders", "", diffusion.latent, noise=unlike_hosts(608)),
    case_of("latents, pictures encoded in 32 bits on a rank", diffusion.latent, Fault("wide", 0, (1,), None, 2.5),
            "conv", cause="compute", noise=unlike_hosts(609)),
    case_of("latents, rank 0 averages in the host's memory", diffusion.latent, Fault("average", 8 * MS, (0,), (1, 3)),
            "", cause="host", steps=6, noise=like_hosts(610)),
    nobody("healthy, neighbours sampled", "", graph_networks.sampled, noise=like_hosts(611)),
    case_of("sampled, a rank's nodes have more neighbours", graph_networks.sampled, Fault("hubs", 0, (2,), None, 1.8),
            "spmm", cause="compute", has_gain=False, noise=like_hosts(612)),
    case_of("sampled, one sampler is slower", graph_networks.sampled, Fault("sampler", 6 * MS, FOUR[3:]),
            "sample", cause="host", noise=like_hosts(613), how=Capture(offset_ns={1: 6 * MS, 2: -3 * MS})),
    # The second lot.
    nobody("healthy, batch norms of all ranks", "", other_models.normalised, noise=unlike_hosts(621)),
    case_of("batch norms of all ranks, a host logs", other_models.normalised, Fault("host", 5 * MS, (1,)), "log_metrics",
            noise=like_hosts(622)),
    case_of("batch norms of all ranks, a hot GPU, ranges alone", other_models.normalised,
            Fault("throttle", 0, (3,), None, 1.3), "the same kernels take", noise=unlike_hosts(623),
            how=Capture(has_payloads=True), by="nsys"),
    nobody("healthy, distilled, no steps", "", other_models.distilled, noise=unlike_hosts(624),
           spoil=without_steps(*FOUR)),
    case_of("distilled, a teacher without fused attention, two steps recorded", other_models.distilled,
            Fault("math", 0, (2,)), "aten::bmm", cause="compute", first=1, noise=unlike_hosts(625)),
    case_of("a saving thread takes a rank's CPU in two steps", hybrid.kept, Fault("thief", 0, (0,), (2, 3), 60.0), "",
            cause="host", steps=6, noise=like_hosts(626)),
    nobody("healthy, a thread saves and takes nothing", "", hybrid.kept, Fault("saves", 0, (0,), (2, 3)), steps=6,
           noise=like_hosts(627)),
    nobody("a slow network between all hosts", "ll-reduce|ommunication", on_nodes(hybrid.kept, 4),
           Fault("network", 8 * MS, tuple(range(8))), noise=unlike_hosts(628)),
    case_of("a slow network of one shard", on_nodes(hybrid.kept, 4), Fault("network", 8 * MS, (2, 6)),
            "all-reduce among ranks 2 and 6", cause="transfer", noise=unlike_hosts(629)),
    case_of("kept through backward, throttled from the middle on, clocks drift", hybrid.kept,
            Fault("throttle", 0, (5,), (3, 4, 5, 6), 1.35), "the same kernels take", steps=7, noise=unlike_hosts(630),
            how=Capture(drift={1: 4e-5, 6: -3e-5}, offset_ns={3: 12 * MS})),
    # Rank 3 does load for longer, and the table of stragglers says so of it; nothing is promised for it.
    nobody("a loader hidden behind a bubble", "ipeline", with_noise(usual.pipelined, like_hosts(631)),
           Fault("data", MS, (3,)), others=(3,), steps=5),
    case_of("latents, pictures in 32 bits, another rank's file is missing", diffusion.latent,
            Fault("wide", 0, (2,), None, 2.5), "conv", cause="compute", noise=unlike_hosts(632),
            how=Capture(missing=(1,)), has_gain=False),
    case_of("tables of a rank have longer bags, two steps recorded", recommenders.sharded_tables,
            Fault("hot", 5 * MS, (6,)), "split_embedding", cause="compute", first=3, others=(0, 4),
            noise=unlike_hosts(633)),
    nobody("healthy, thin factors of gradients", "", other_models.low_rank, noise=unlike_hosts(634)),
    case_of("thin factors of gradients, a loader now and then", other_models.low_rank,
            Fault("data", 9 * MS, (1,), (1, 4)), LOADER, steps=7, noise=unlike_hosts(635)),
    case_of("generated on the same GPUs, a GPU slower at tokens alone", reinforced.colocated,
            Fault("decode", 0, (3,), None, 1.6), "the same kernels take", cause="compute", noise=like_hosts(636)),
    # Said to gain 2.61 ms for 2.39: the step in which it happens has more nodes by chance, too.
    case_of("sampled, garbage once", graph_networks.sampled, Fault("gc", 12 * MS, (1,), (3,)), "gc.collect", has_gain=False, spread=0.1,
            noise=like_hosts(637)),
)  # fmt: skip
