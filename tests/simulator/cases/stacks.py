"""Stacks of other kinds, each fault in its own: each lot was committed before any report of it was seen."""

from tests.simulator.capture import Capture
from tests.simulator.case import FOUR, MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import diffusion, graph_networks, recommenders, reinforced
from tests.simulator.noise import like_hosts, unlike_hosts

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
)  # fmt: skip
