"""Further kinds of jobs, each with faults and without: committed before any report of them was seen."""

from tests.simulator import workloads as usual
from tests.simulator.case import FOUR, LOADER, MS, Case, Truth, case_of, nobody, on_nodes, several
from tests.simulator.faults import Fault
from tests.simulator.jobs import cadences, overlapping, side_streams
from tests.simulator.noise import like_hosts, unlike_hosts, with_noise

_EIGHT = tuple(range(8))
_SAME = "same kernels"

UNSEEN: tuple[Case, ...] = (
    # Three moves.
    nobody("healthy, three moves", "", overlapping.in_three_moves, noise=unlike_hosts(932)),
    case_of("three moves, one rail", overlapping.in_three_moves, Fault("rail", 8 * MS, (2, 6)),
            "all-reduce among ranks 2 and 6", cause="transfer", noise=like_hosts(933)),
    nobody("three moves, all rails in two steps", "exposed_communication slow_link",
           overlapping.in_three_moves, Fault("rail", 14 * MS, _EIGHT, (1, 3)), steps=6, noise=like_hosts(934)),
    case_of("three moves, a node's hosts at a fiftieth of the pace", on_nodes(overlapping.in_three_moves, 4),
            Fault("pace", 0, (4, 5, 6, 7), None, 50.0), "", cause="host", noise=like_hosts(936)),
    case_of("three moves on 32, a node's loaders", on_nodes(overlapping.in_three_moves, 8),
            Fault("data", 6 * MS, tuple(range(8, 16))), LOADER, each=8, nodes=4, steps=3, layers=5,
            noise=like_hosts(937)),
    # Pictures decoded on the GPU.
    nobody("healthy, decoded on the GPU", "", overlapping.decoded_on_gpu, noise=unlike_hosts(938)),
    case_of("decoded on the GPU, larger pictures", overlapping.decoded_on_gpu, Fault("pictures", 14 * MS, (1,)),
            "dali.run", cause="compute", noise=like_hosts(939)),
    nobody("decoded on the GPU, larger pictures and hidden", "", overlapping.decoded_on_gpu,
           Fault("pictures", 3 * MS, (1,)), first=1, noise=like_hosts(940)),
    case_of("decoded on the GPU, a loader", overlapping.decoded_on_gpu, Fault("data", 14 * MS, (2,)), LOADER,
            noise=like_hosts(941)),
    # What comes how often.
    nobody("healthy, one graph a step", "", cadences.in_one_graph, noise=unlike_hosts(954)),
    case_of("one graph a step, a warm GPU", cadences.in_one_graph, Fault("throttle", 0, (3,), None, 1.15), _SAME, ranks=8,
            noise=unlike_hosts(955)),
    case_of("one graph a step, garbage once", cadences.in_one_graph, Fault("gc", 12 * MS, (2,), (3,)), "gc.collect",
            noise=like_hosts(956)),
    nobody("one graph a step, all loaders are slow", "data_loading straggler", cadences.in_one_graph, Fault("data", 6 * MS, FOUR),
           noise=like_hosts(957)),
    # From the host.
    nobody("a batch of 120 small tensors", "blocking_calls exposed_copies", cadences.of_small_tensors,
           tensors=120, noise=like_hosts(965)),
    several("a batch of 120 small tensors on one rank", cadences.of_small_tensors, (Fault("packed", 0, (1, 2, 3)),),
            Truth((0,), "host"), left=(Fault("packed", 0, FOUR),), tensors=120, noise=like_hosts(966)),
    # No host's lookups are hidden, and those of ranks 3 and 2 do take longer.
    nobody("rows from the host, hosts at their own paces", "blocking_calls stalls", cadences.rows_from_host,
           others=(2, 3), noise=unlike_hosts(967)),
    case_of("rows from the host, one looks longer", cadences.rows_from_host, Fault("look", 6 * MS, (2,)), "embedding_bag",
            cause="host", noise=like_hosts(968)),
    case_of("rows from the host, a slow bus", cadences.rows_from_host, Fault("copy", 5 * MS, (0,)), "HtoD", ranks=6,
            noise=like_hosts(969)),
    # Known layouts.
    case_of("a warm stage, garbage in another once", with_noise(usual.pipelined, like_hosts(971)),
            Fault("throttle", 0, (2,), None, 1.3), _SAME, left=(Fault("gc", 6 * MS, (0,), (2,)),), others=(0,), steps=5),
    # The second lot, over other sizes, seeds and strengths.
    case_of("one graph a step on two, a loader", cadences.in_one_graph, Fault("data", 4 * MS, (0,)), LOADER, ranks=2,
            noise=like_hosts(1028)),
    # The third lot: streams of their own.
    nobody("healthy, streams numbered otherwise", "", side_streams.other_streams, noise=unlike_hosts(1031)),
    case_of("streams numbered otherwise, a hot GPU", side_streams.other_streams, Fault("throttle", 0, (2,), None, 1.25), _SAME,
            has_gain=False, noise=like_hosts(1032)),
    case_of("streams numbered otherwise on half, a loader", side_streams.other_streams, Fault("data", 6 * MS, (1,)), LOADER,
            renumbered=(2, 3), has_gain=False, noise=like_hosts(1033)),
    nobody("healthy, stepped on hosts", "", side_streams.stepped_on_host, noise=like_hosts(1037)),
    case_of("stepped on hosts, a slow bus", side_streams.stepped_on_host, Fault("bus", 12 * MS, (2,)), "", cause="copies",
            noise=like_hosts(1038)),
    case_of("stepped on hosts, one takes longer", side_streams.stepped_on_host, Fault("cpu", 6 * MS, (1,)), "CPUAdam",
            cause="host", noise=like_hosts(1039)),
    nobody("rank 0 computes metrics while the others go on", "", side_streams.gathered_by_one,
           Fault("metrics", 3 * MS, (0,)), noise=like_hosts(1040)),
    case_of("rank 0 computes metrics before all meet", side_streams.gathered_by_one, Fault("metrics", 7 * MS, (0,)),
            "compute_auc", cause="host", is_met=True, noise=like_hosts(1041)),
    case_of("two ranks reduce something of their own", side_streams.twice_on_one_stream, Fault("extra", 4 * MS, (0, 1)), "",
            cause="transfer", noise=like_hosts(1043)),
    case_of("all on one stream, a warm GPU", side_streams.twice_on_one_stream, Fault("throttle", 0, (3,), None, 1.15), _SAME,
            ranks=6, noise=unlike_hosts(1044)),
)  # fmt: skip
