"""Large models, and what clusters do to jobs: committed before any report of them was seen."""

from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, Truth, case_of, nobody, on_nodes, several
from tests.simulator.faults import Fault
from tests.simulator.jobs import ambient, clusters, large, unlike_steps
from tests.simulator.noise import like_hosts, unlike_hosts

_SAME = "same kernels"

_EIGHT = tuple(range(8))

_ENDS = Fault("ends", 0, _EIGHT)

BLIND: tuple[Case, ...] = (
    # Sequences exchanged for heads.
    nobody("healthy, by heads", "", large.by_heads, noise=unlike_hosts(3001)),
    case_of("by heads, links of a pair slow a row", large.by_heads, Fault("pair", 4 * MS, (5,)), "all-to-all among ranks 4–7",
            says_ranks=(4, 5, 6, 7), cause="transfer", noise=like_hosts(3002)),
    case_of("by heads, a hot GPU", large.by_heads, Fault("throttle", 0, (6,), None, 1.3), _SAME, noise=like_hosts(3003)),
    # Heavy ends.
    nobody("a pipeline with heavy ends", "pipeline_stages", large.heavy_ends, _ENDS, is_gained=True, noise=like_hosts(3008)),
    case_of("a pipeline with heavy ends, garbage in a light stage", large.heavy_ends, Fault("gc", 15 * MS, (5,), (2,)), "gc.collect",
            left=(_ENDS,), is_behind=True, has_gain=False, noise=like_hosts(3009)),
    # Experts across nodes.
    nobody("experts across nodes, a slow network", "exposed_communication", on_nodes(large.across_nodes, 4), Fault("wire", 8 * MS, (0,)),
           noise=like_hosts(3010)),
    nobody("experts across nodes, busy ones move", "uneven_experts uneven_work", large.across_nodes, moves=0.6,
           noise=like_hosts(3011)),
    case_of("experts across nodes, busy ones move, a loader", large.across_nodes, Fault("data", 8 * MS, (3,)), LOADER, moves=0.3,
            noise=like_hosts(3012)),
    # Shared storage.
    nobody("all loaders stall by chance", "data_loading straggler", clusters.on_shared_storage, others=_EIGHT, noise=like_hosts(3013)),
    nobody("all loaders stall by chance, a warm GPU behind them", "data_loading straggler", clusters.on_shared_storage,
           Fault("throttle", 0, (2,), None, 1.1), others=_EIGHT, noise=like_hosts(3014)),
    # Lengths that a replica's ranks share.
    nobody("lengths by replica, by chance", "uneven_work", clusters.of_replicas_lengths, noise=like_hosts(3015)),
    case_of("lengths by replica, a hot GPU", clusters.of_replicas_lengths, Fault("throttle", 0, (3,), None, 1.6), _SAME, spread=0.1,
            has_gain=False, noise=like_hosts(3016)),
    # A host that another job uses at times.
    case_of("another job on a host's cores", clusters.beside_other_jobs, Fault("neighbour", 0, (2,), None, 5.0), "", cause="host",
            noise=like_hosts(3017)),
    # The second lot.
    # Captures of what was above.
    case_of("a pipeline with heavy ends, a middle stage throttled", large.heavy_ends, Fault("throttle", 0, (1,), None, 1.6), _SAME,
            left=(_ENDS,), noise=like_hosts(3121)),
    # The third lot. Lengths that a step's ranks share.
    nobody("healthy, batches by buckets of lengths", "", ambient.by_buckets, noise=unlike_hosts(3201)),
    case_of("batches by buckets of lengths, garbage in two steps", ambient.by_buckets, Fault("gc", 9 * MS, (6,), (2, 5)), "gc.collect",
            noise=like_hosts(3203)),
    several("batches by buckets of lengths, two GPUs brake in turn", ambient.by_buckets,
            (Fault("throttle", 0, (1,), (0, 2, 4, 6), 1.4), Fault("throttle", 0, (5,), (1, 3, 5, 7), 1.4)),
            Truth((1, 5), "compute", ""), noise=like_hosts(3204)),
    # Four nodes.
    nobody("healthy, over four nodes", "", on_nodes(ambient.over_four_nodes, 4), noise=unlike_hosts(3205)),
    case_of("over four nodes, a rail", on_nodes(ambient.over_four_nodes, 4), Fault("rail", 6 * MS, (3,)), "all-reduce among",
            says_ranks=(3, 7, 11, 15), cause="transfer", noise=like_hosts(3206)),
    nobody("over four nodes, all uplinks", "exposed_communication slow_link", on_nodes(ambient.over_four_nodes, 4), Fault("uplink", 6 * MS, (0,)),
           noise=like_hosts(3207)),
    case_of("over four nodes, a node's loaders before a rail", on_nodes(ambient.over_four_nodes, 4),
            Fault("data", 8 * MS, (8, 9, 10, 11)), LOADER, left=(Fault("rail", 3 * MS, (1,)),), others=(1, 5, 9, 13), noise=like_hosts(3208)),
    several("over four nodes, each rank's garbage at times of its own", on_nodes(ambient.over_four_nodes, 4),
            tuple(Fault("gc", 5 * MS, (rank,), (1 + 5 * rank % 7,)) for rank in range(16)),
            Truth(tuple(range(16)), "host", "gc.collect"), steps=8, noise=like_hosts(3210)),
    # Parameters from hosts.
    nobody("parameters from hosts", "exposed_copies", ambient.parameters_from_hosts, noise=like_hosts(3211)),
    case_of("parameters from hosts, a slow bus", ambient.parameters_from_hosts, Fault("bus", 4 * MS, (1,)), "HtoD", cause="copies",
            noise=like_hosts(3212)),
    # Copied ahead.
    nobody("healthy, copied ahead", "", ambient.copied_ahead, noise=unlike_hosts(3214)),
    nobody("copied ahead, a longer copy that is hidden", "", ambient.copied_ahead, Fault("batch", 4 * MS, (3,)), noise=like_hosts(3215)),
    case_of("copied ahead, a copy longer than a step", ambient.copied_ahead, Fault("batch", 14 * MS, (3,)), "HtoD", cause="copies",
            noise=like_hosts(3216)),
    case_of("copied ahead, rank 0 logs pictures in every second step", ambient.copied_ahead, Fault("pictures", 12 * MS, (0,), (1, 3)),
            "", cause="host", noise=like_hosts(3217)),
    # What was recorded is little.
    case_of("copied ahead, a hot GPU, ranges alone", ambient.copied_ahead, Fault("throttle", 0, (4,), None, 1.3), _SAME,
            how=Capture(has_payloads=True), by="nsys", noise=like_hosts(3222)),
    # The fourth lot. Batches that grow.
    nobody("healthy, micro-batches ramp up", "", unlike_steps.ramping_up, noise=unlike_hosts(3301)),
    case_of("micro-batches ramp up, a hot GPU", unlike_steps.ramping_up, Fault("throttle", 0, (5,), None, 1.25), _SAME,
            noise=like_hosts(3302)),
    case_of("micro-batches ramp up, a loader before the first one", unlike_steps.ramping_up, Fault("data", 5 * MS, (2,)), LOADER,
            noise=like_hosts(3303)),
    # Secondary shards.
    nobody("healthy, secondary shards", "", unlike_steps.secondary_shards, noise=unlike_hosts(3309)),
    case_of("secondary shards, a node's own links", on_nodes(unlike_steps.secondary_shards, 4), Fault("within", 8 * MS, (5,)),
            "all-gather among ranks 4–7", says_ranks=(4, 5, 6, 7), cause="transfer", noise=like_hosts(3310)),
    nobody("secondary shards, slow gathers over all", "exposed_communication slow_link", unlike_steps.secondary_shards, Fault("all", 8 * MS, (0,)),
           noise=like_hosts(3311)),
    case_of("secondary shards, garbage before a node's own links", unlike_steps.secondary_shards, Fault("gc", 9 * MS, (1,)), "gc.collect",
            left=(Fault("within", 5 * MS, (6,)),), others=(4, 5, 6, 7), noise=like_hosts(3312)),
    # Gradients of weights aside.
    nobody("healthy, weights' gradients aside", "", unlike_steps.weights_aside, noise=unlike_hosts(3313)),
    case_of("weights' gradients aside, a hot GPU", unlike_steps.weights_aside, Fault("throttle", 0, (7,), None, 1.3), _SAME,
            noise=like_hosts(3315)),
    nobody("weights' gradients aside, a host steps within its lead", "", unlike_steps.weights_aside, Fault("foreach", 2 * MS, (2,)),
           noise=like_hosts(3317)),
    # What nobody's fault is gains nine times as much, at most.
    case_of("over four nodes, two GPUs of unlike nodes are hot", on_nodes(ambient.over_four_nodes, 4),
            Fault("throttle", 0, (2, 13), None, 1.3), _SAME, noise=like_hosts(3320)),
    # Captures.
    case_of("weights' gradients aside, garbage, a file missing, clocks apart", unlike_steps.weights_aside, Fault("gc", 8 * MS, (3,), (2,)),
            "gc.collect", has_gain=False, noise=like_hosts(3322), how=Capture(missing=(6,), offset_ns={1: 30 * MS, 3: -12 * MS})),
    case_of("secondary shards, a loader, the last two steps recorded", unlike_steps.secondary_shards, Fault("data", 7 * MS, (4,)), LOADER,
            steps=6, first=4, noise=like_hosts(3323)),
)  # fmt: skip
