"""Jobs whose ranks do unlike things, and several faults in mixed layouts: each lot was committed before any report of it was seen."""

from tests.simulator.case import FOUR, LOADER, MS, Case, case_of, nobody, on_nodes
from tests.simulator.faults import Fault
from tests.simulator.jobs import four_ways, two_models, unlike_ranks
from tests.simulator.noise import Noise, like_hosts, unlike_hosts

_SAME = "same kernels"

_SURE = Noise(2112, 0.2, 0.03, 0.0)
"""Both ends of a message take as long: noise is drawn for each, which of long ones is more than their ends differ by."""


ROLES: tuple[Case, ...] = (
    # The first lot.
    nobody("healthy, servers of parameters", "", unlike_ranks.served, noise=like_hosts(2001)),
    case_of("servers of parameters, a worker's hot GPU", unlike_ranks.served, Fault("throttle", 0, (2,), None, 1.4), _SAME,
            noise=like_hosts(2002)),
    nobody("healthy, evaluated apart", "", unlike_ranks.evaluated_apart, noise=unlike_hosts(2005)),
    case_of("evaluated apart, a trainer logs", unlike_ranks.evaluated_apart, Fault("host", 6 * MS, (1,)), "log_metrics",
            noise=like_hosts(2006)),
    # Whether one that alone does what it does is slow at it nobody can tell; what the others wait for it is its gain.
    nobody("evaluated apart, for longer than a step", "uneven_work straggler", unlike_ranks.evaluated_apart,
           Fault("evaluate", 9 * MS, (4,)), is_gained=True, noise=like_hosts(2007)),
    # Rank 6 does score by rules for 0.2 ms, and seven wait for it.
    nobody("healthy, an encoder for two pipelines", "", unlike_ranks.fanned_out, noise=like_hosts(2016)),
    case_of("an encoder for two pipelines, a stage's hot GPU", unlike_ranks.fanned_out, Fault("throttle", 0, (2,), None, 1.4),
            _SAME, noise=like_hosts(2017)),
    nobody("an encoder for two pipelines is too slow", "pipeline_stages", unlike_ranks.fanned_out,
           Fault("encode", 16 * MS, (0,)), noise=like_hosts(2018)),
    # Of six steps a saving at the end is a hundredth.
    nobody("healthy, four ways", "", four_ways.four_ways, noise=unlike_hosts(2021)),
    case_of("four ways, a hot GPU", four_ways.four_ways, Fault("throttle", 0, (9,), None, 1.4), _SAME, noise=like_hosts(2022)),
    case_of("four ways, one pair's exchanges are slow", four_ways.four_ways, Fault("wire", 6 * MS, (4, 6)),
            "all-to-all among ranks 4 and 6", cause="transfer", noise=like_hosts(2024)),
    nobody("healthy, gradients a step late", "", four_ways.a_step_late, noise=like_hosts(2025)),
    case_of("gradients a step late, a hot GPU", four_ways.a_step_late, Fault("throttle", 0, (1,), None, 1.3), _SAME,
            noise=like_hosts(2026)),
    case_of("gradients a step late, garbage longer than the lead", four_ways.a_step_late, Fault("gc", 20 * MS, (3,), (4,)),
            "gc.collect", noise=like_hosts(2027)),
    nobody("ranks begin their first step apart", "usable_steps straggler", four_ways.begun_apart, others=(1, 2, 3),
           noise=like_hosts(2028)),
    nobody("ranks begin their first step apart, a hot GPU", "usable_steps straggler", four_ways.begun_apart,
           Fault("throttle", 0, (0,), None, 1.3), others=FOUR, noise=like_hosts(2029)),
    # The second lot.
    nobody("healthy, a large and a small model", "", two_models.two_sizes, noise=like_hosts(2101)),
    nobody("a large and a small model, a warm GPU that nobody waits for", "", two_models.two_sizes,
           Fault("throttle", 0, (6,), None, 1.15), noise=like_hosts(2102)),
    case_of("a large and a small model, a hot GPU of the small one", two_models.two_sizes, Fault("throttle", 0, (6,), None, 2.5),
            _SAME, noise=like_hosts(2103)),
    case_of("a large and a small model, a host of the large one", two_models.two_sizes, Fault("host", 6 * MS, (1,)),
            "log_metrics", noise=unlike_hosts(2104)),
    case_of("a slow link of an end stage on nodes, a warm GPU", on_nodes(two_models.slow_ends, 4), Fault("edge", 9 * MS, (7,)),
            "messages among ranks 6 and 7", says_ranks=(6, 7), cause="transfer",
            left=(Fault("throttle", 0, (1,), None, 1.1),), others=(1,), noise=_SURE),
    case_of("ranks begin their first step a little apart, a loader", four_ways.begun_apart, Fault("data", 5 * MS, (1,)), LOADER,
            apart_ns=3 * MS, others=(2, 3), noise=like_hosts(2115)),
    nobody("four ways, a node's slower hosts are hidden", "", on_nodes(four_ways.four_ways, 8),
           Fault("pace", 0, tuple(range(8, 16)), None, 6.0), noise=like_hosts(2118)),
    nobody("servers of parameters, one's host is slow", "", unlike_ranks.served, Fault("pace", 0, (4,), None, 60.0),
            noise=like_hosts(2123)),
    nobody("gradients a step late, garbage within the lead", "", four_ways.a_step_late, Fault("gc", 1 * MS, (1,), (4,)),
           others=(1,), noise=like_hosts(2126)),
)  # fmt: skip
