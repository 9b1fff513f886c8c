"""Large models, and what clusters do to jobs: committed before any report of them was seen."""

from tests.simulator.case import LOADER, MS, Case, Truth, case_of, nobody, on_nodes, several
from tests.simulator.faults import Fault, in_turn
from tests.simulator.jobs import clusters, large
from tests.simulator.noise import like_hosts, unlike_hosts

_SAME = "the same kernels take"

_EIGHT = tuple(range(8))

BLIND: tuple[Case, ...] = (
    # Sequences exchanged for heads.
    nobody("healthy, by heads", "", large.by_heads, noise=unlike_hosts(3001)),
    case_of("by heads, links of a pair slow a row", large.by_heads, Fault("pair", 4 * MS, (5,)), "all-to-all among ranks 4 to 7",
            says_ranks=(4, 5, 6, 7), cause="transfer", noise=like_hosts(3002)),
    case_of("by heads, a hot GPU", large.by_heads, Fault("throttle", 0, (6,), None, 1.3), _SAME, noise=like_hosts(3003)),
    case_of("by heads, a row's sequences are longer", large.by_heads, Fault("long", 5 * MS, (0, 1, 2, 3)), "", cause="compute",
            noise=like_hosts(3004)),
    # A distributed optimizer behind a pipeline.
    nobody("healthy, an overlapped optimizer", "", large.overlapped_optimizer, noise=unlike_hosts(3005)),
    several("an overlapped optimizer, garbage of all in turn", large.overlapped_optimizer,
            in_turn("gc", 7 * MS, (3, 6, 0, 5, 1, 7, 2, 4)), Truth(_EIGHT, "host", "gc.collect"), steps=8, noise=like_hosts(3006)),
    case_of("an overlapped optimizer, a loader before a warm GPU", large.overlapped_optimizer, Fault("data", 9 * MS, (1,)), LOADER,
            left=(Fault("throttle", 0, (6,), None, 1.15),), others=(6,), noise=like_hosts(3007)),
    # Heavy ends.
    nobody("a pipeline with heavy ends", "tages 0 and 3|tage 3|tage 0", large.heavy_ends, noise=like_hosts(3008)),
    case_of("a pipeline with heavy ends, garbage in a light stage", large.heavy_ends, Fault("gc", 15 * MS, (5,), (2,)), "gc.collect",
            is_behind=True, has_gain=False, noise=like_hosts(3009)),
    # Experts across nodes.
    nobody("experts across nodes, a slow network", "ll-to-all", on_nodes(large.across_nodes, 4), Fault("wire", 8 * MS, (0,)),
           noise=like_hosts(3010)),
    nobody("experts across nodes, busy ones move", "xperts|unevenly|wait for each other", large.across_nodes, moves=0.6,
           noise=like_hosts(3011)),
    case_of("experts across nodes, busy ones move, a loader", large.across_nodes, Fault("data", 8 * MS, (3,)), LOADER, moves=0.3,
            noise=like_hosts(3012)),
    # Shared storage.
    nobody("all loaders stall by chance", "oader|data", clusters.on_shared_storage, others=_EIGHT, noise=like_hosts(3013)),
    nobody("all loaders stall by chance, a warm GPU behind them", "oader|data", clusters.on_shared_storage,
           Fault("throttle", 0, (2,), None, 1.1), others=_EIGHT, noise=like_hosts(3014)),
    # Lengths that a replica's ranks share.
    nobody("lengths by replica, by chance", "unevenly|in turn", clusters.of_replicas_lengths, noise=like_hosts(3015)),
    case_of("lengths by replica, a hot GPU", clusters.of_replicas_lengths, Fault("throttle", 0, (3,), None, 1.6), _SAME, spread=0.1,
            has_gain=False, noise=like_hosts(3016)),
    # A host that another job uses at times.
    case_of("another job on a host's cores", clusters.beside_other_jobs, Fault("neighbour", 0, (2,), None, 5.0), "", cause="host",
            noise=like_hosts(3017)),
    case_of("another job on a host's cores from a step on", clusters.beside_other_jobs, Fault("neighbour", 0, (1,), (4, 5, 6, 7), 6.0),
            "", cause="host", noise=like_hosts(3018)),
)  # fmt: skip
