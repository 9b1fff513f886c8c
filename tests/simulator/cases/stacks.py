"""Stacks of other kinds, each fault in its own: each lot was committed before any report of it was seen."""

from tests.simulator.capture import Capture
from tests.simulator.case import FOUR, LOADER, MS, Case, case_of, nobody, on_nodes
from tests.simulator.faults import Fault
from tests.simulator.jobs import diffusion, graph_networks, hybrid, other_models, recommenders, reinforced
from tests.simulator.noise import like_hosts, unlike_hosts
from tests.simulator.spoiled import without_steps

STACKS: tuple[Case, ...] = (
    # The first lot.
    case_of("generated apart, a generator is slower", reinforced.apart, Fault("answer", 4 * MS, (5,)),
            "paged_attention", cause="compute", noise=like_hosts(604)),
    nobody("healthy, tables sharded unevenly", "", recommenders.sharded_tables, others=(0, 4), noise=unlike_hosts(605)),
    case_of("tables of a rank have longer bags", recommenders.sharded_tables, Fault("hot", 5 * MS, (3,)),
            "split_embedding", cause="compute", others=(0, 4), noise=unlike_hosts(606)),
    nobody("sharded tables, all loaders are slow", "data_loading", recommenders.sharded_tables,
            Fault("data", 8 * MS, tuple(range(8))), noise=like_hosts(607)),
    nobody("healthy, latents of frozen encoders", "", diffusion.latent, noise=unlike_hosts(608)),
    case_of("latents, pictures encoded in 32 bits on a rank", diffusion.latent, Fault("wide", 0, (1,), None, 2.5),
            "conv", cause="compute", noise=unlike_hosts(609)),
    nobody("healthy, neighbours sampled", "", graph_networks.sampled, noise=like_hosts(611)),
    case_of("sampled, a rank's nodes have more neighbours", graph_networks.sampled, Fault("hubs", 0, (2,), None, 1.8),
            "spmm", cause="compute", has_gain=False, noise=like_hosts(612)),
    # The second lot.
    nobody("healthy, batch norms of all ranks", "", other_models.normalised, noise=unlike_hosts(621)),
    case_of("batch norms of all ranks, a host logs", other_models.normalised, Fault("host", 5 * MS, (1,)), "log_metrics",
            noise=like_hosts(622)),
    case_of("batch norms of all ranks, a hot GPU, ranges alone", other_models.normalised,
            Fault("throttle", 0, (3,), None, 1.3), "same kernels", noise=unlike_hosts(623),
            how=Capture(has_payloads=True), by="nsys"),
    nobody("healthy, distilled, no steps", "", other_models.distilled, noise=unlike_hosts(624),
           spoil=without_steps(*FOUR)),
    case_of("distilled, a teacher without fused attention, two steps recorded", other_models.distilled,
            Fault("math", 0, (2,)), "aten::bmm", cause="compute", first=1, noise=unlike_hosts(625)),
    case_of("a saving thread takes a rank's CPU in two steps", hybrid.kept, Fault("thief", 0, (0,), (2, 3), 60.0), "",
            cause="host", steps=6, noise=like_hosts(626)),
    nobody("healthy, a thread saves and takes nothing", "", hybrid.kept, Fault("saves", 0, (0,), (2, 3)), steps=6,
           noise=like_hosts(627)),
    case_of("a slow network of one shard", on_nodes(hybrid.kept, 4), Fault("network", 8 * MS, (2, 6)),
            "all-reduce among ranks 2 and 6", cause="transfer", noise=unlike_hosts(629)),
    nobody("healthy, thin factors of gradients", "", other_models.low_rank, noise=unlike_hosts(634)),
    case_of("thin factors of gradients, a loader now and then", other_models.low_rank,
            Fault("data", 9 * MS, (1,), (1, 4)), LOADER, steps=7, noise=unlike_hosts(635)),
    # Said to gain 2.61 ms for 2.39: the step in which it happens has more nodes by chance, too.
    case_of("sampled, garbage once", graph_networks.sampled, Fault("gc", 12 * MS, (1,), (3,)), "gc.collect", has_gain=False, spread=0.1,
            noise=like_hosts(637)),
    # The third lot.
    case_of("generated apart, a trainer logs", reinforced.apart, Fault("host", 7 * MS, (1,)), "log_metrics",
            noise=like_hosts(642)),
    nobody("healthy, generated apart", "", reinforced.apart, noise=like_hosts(611)),
    # That ranks 0 and 4 have more tables gains as much, and comes first; the host is said behind it.
    case_of("sharded tables, a process on a host's cores", recommenders.sharded_tables, Fault("pace", 0, (4,), None, 9.0),
            "", cause="host", others=(0,), noise=like_hosts(643)),
    case_of("batch norms of all ranks, one step recorded, a loader", other_models.normalised, Fault("data", 6 * MS, (2,)),
            LOADER, first=3, steps=4, has_gain=False, noise=like_hosts(645)),
    case_of("kept through backward, a hot GPU, another's garbage once", hybrid.kept, Fault("throttle", 0, (5,), None, 1.5),
            "same kernels", steps=6, left=(Fault("gc", 3 * MS, (0,), (2,)),), others=(0,), noise=unlike_hosts(646)),
    case_of("distilled on two GPUs, a loader", other_models.distilled, Fault("data", 5 * MS, (1,)), LOADER, ranks=2,
            noise=like_hosts(647)),
    case_of("latents, a node's slow bus", on_nodes(diffusion.latent, 4), Fault("copy", 5 * MS, (4, 5, 6, 7)), "HtoD",
            ranks=8, noise=unlike_hosts(649)),
    nobody("latents, all evaluate in a step", "stalls", diffusion.latent, Fault("eval", 8 * MS, FOUR, (3,)), steps=6,
           noise=like_hosts(652)),
    # The fourth lot.
    nobody("distilled, all evaluate in every third step", "stalls", other_models.distilled,
           Fault("eval", 6 * MS, FOUR, (2, 5)), steps=8, noise=unlike_hosts(661)),
    case_of("thin factors of gradients, rank 0 evaluates in every third step", other_models.low_rank,
            Fault("eval", 7 * MS, (0,), (2, 5)), "conv", steps=7, noise=unlike_hosts(664)),
    case_of("latents, a file cut, another's loader", diffusion.latent, Fault("data", 7 * MS, (3,)), LOADER, has_gain=False,
            noise=unlike_hosts(667), how=Capture(cut={1: 0.7})),
    nobody("healthy, kept through backward on 16, two steps, clocks apart", "", hybrid.kept, hosts=4, steps=4, first=2,
           noise=unlike_hosts(669), how=Capture(offset_ns={3: 20 * MS, 9: -7 * MS})),
)  # fmt: skip
