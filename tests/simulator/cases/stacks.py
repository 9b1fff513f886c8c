"""Stacks of other kinds, each fault in its own: each lot was committed before any report of it was seen."""

from tests.simulator.capture import Capture
from tests.simulator.case import MS, Case, case_of, nobody, on_nodes
from tests.simulator.faults import Fault
from tests.simulator.jobs import hybrid, recommenders, reinforced
from tests.simulator.noise import like_hosts, unlike_hosts

STACKS: tuple[Case, ...] = (
    # The first lot.
    case_of("generated apart, a generator is slower", reinforced.apart, Fault("answer", 4 * MS, (5,)),
            "paged_attention", cause="compute", noise=like_hosts(604)),
    nobody("healthy, tables sharded unevenly", "", recommenders.sharded_tables, others=(0, 4), noise=unlike_hosts(605)),
    case_of("tables of a rank have longer bags", recommenders.sharded_tables, Fault("hot", 5 * MS, (3,)),
            "split_embedding", cause="compute", others=(0, 4), noise=unlike_hosts(606)),
    nobody("sharded tables, all loaders are slow", "data_loading", recommenders.sharded_tables,
            Fault("data", 8 * MS, tuple(range(8))), noise=like_hosts(607)),
    # The second lot.
    case_of("a saving thread takes a rank's CPU in two steps", hybrid.kept, Fault("thief", 0, (0,), (2, 3), 60.0), "",
            cause="host", steps=6, noise=like_hosts(626)),
    nobody("healthy, a thread saves and takes nothing", "", hybrid.kept, Fault("saves", 0, (0,), (2, 3)), steps=6,
           noise=like_hosts(627)),
    case_of("a slow network of one shard", on_nodes(hybrid.kept, 4), Fault("network", 8 * MS, (2, 6)),
            "all-reduce among ranks 2 and 6", cause="transfer", noise=unlike_hosts(629)),
    # The third lot.
    case_of("generated apart, a trainer logs", reinforced.apart, Fault("host", 7 * MS, (1,)), "log_metrics",
            noise=like_hosts(642)),
    nobody("healthy, generated apart", "", reinforced.apart, noise=like_hosts(611)),
    # That ranks 0 and 4 have more tables gains as much, and comes first; the host is said behind it.
    case_of("sharded tables, a process on a host's cores", recommenders.sharded_tables, Fault("pace", 0, (4,), None, 9.0),
            "", cause="host", others=(0,), noise=like_hosts(643)),
    case_of("kept through backward, a hot GPU, another's garbage once", hybrid.kept, Fault("throttle", 0, (5,), None, 1.5),
            "same kernels", steps=6, left=(Fault("gc", 3 * MS, (0,), (2,)),), others=(0,), noise=unlike_hosts(646)),
    # The fourth lot.
    nobody("healthy, kept through backward on 16, two steps, clocks apart", "", hybrid.kept, hosts=4, steps=4, first=2,
           noise=unlike_hosts(669), how=Capture(offset_ns={3: 20 * MS, 9: -7 * MS})),
)  # fmt: skip
