"""Jobs whose ranks do unlike things, and several faults in mixed layouts: each lot was committed before any report of it was seen."""

from dataclasses import replace

from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import FOUR, HEALTHY, LOADER, MS, Case, Truth, case_of, nobody, several
from tests.simulator.faults import Fault
from tests.simulator.jobs import four_ways, unlike_ranks
from tests.simulator.noise import Noise, like_hosts, unlike_hosts, with_noise
from tests.simulator.program import Job

_SAME = "the same kernels take"


def _uneven_nodes(**options: object) -> Job:
    """Sharded over a node of four GPUs and one of two."""
    plain = usual.fsdp(6, **options)  # type: ignore[arg-type]
    return replace(plain, hosts=("big",) * 4 + ("small",) * 2)


ROLES: tuple[Case, ...] = (
    # The first lot.
    nobody("healthy, servers of parameters", HEALTHY, unlike_ranks.served, noise=like_hosts(2001)),
    case_of("servers of parameters, a worker's hot GPU", unlike_ranks.served, Fault("throttle", 0, (2,), None, 1.4), _SAME,
            noise=like_hosts(2002)),
    case_of("servers of parameters, one applies for longer", unlike_ranks.served, Fault("apply", 4 * MS, (5,)), "adam",
            cause="compute", noise=like_hosts(2003)),
    case_of("servers of parameters, a worker's loader in two steps", unlike_ranks.served, Fault("data", 9 * MS, (1,), (1, 3)),
            LOADER, noise=unlike_hosts(2004)),
    nobody("healthy, evaluated apart", "", unlike_ranks.evaluated_apart, noise=unlike_hosts(2005)),
    case_of("evaluated apart, a trainer logs", unlike_ranks.evaluated_apart, Fault("host", 6 * MS, (1,)), "log_metrics",
            noise=like_hosts(2006)),
    # Whether one that alone does what it does is slow at it nobody can tell; what the others wait for it is its gain.
    nobody("evaluated apart, for longer than a step", "Rank 4 computes", unlike_ranks.evaluated_apart,
           Fault("evaluate", 9 * MS, (4,)), is_gained=True, noise=like_hosts(2007)),
    nobody("healthy, fed by a rank", "", unlike_ranks.fed_by_a_rank, noise=like_hosts(2008)),
    nobody("fed by a rank that decodes for longer than a step", "Rank 4 computes", unlike_ranks.fed_by_a_rank,
           Fault("decode", 8 * MS, (4,)), is_gained=True, noise=like_hosts(2009)),
    case_of("fed by a rank whose loader is slow", unlike_ranks.fed_by_a_rank, Fault("data", 9 * MS, (4,)), LOADER,
            noise=unlike_hosts(2010)),
    case_of("fed by a rank, a trainer's hot GPU", unlike_ranks.fed_by_a_rank, Fault("throttle", 0, (0,), None, 1.3), _SAME,
            noise=unlike_hosts(2011)),
    # Rank 6 does score by rules for 0.2 ms, and seven wait for it.
    nobody("healthy, models apart", "", unlike_ranks.models_apart, others=(6,), noise=like_hosts(2012)),
    case_of("models apart, an actor's hot GPU", unlike_ranks.models_apart, Fault("throttle", 0, (2,), None, 1.4), _SAME,
            noise=like_hosts(2013)),
    case_of("models apart, rules of the one that scores", unlike_ranks.models_apart, Fault("rules", 6 * MS, (6,)),
            "score_rules", cause="host", noise=like_hosts(2014)),
    case_of("models apart, an actor collects garbage once", unlike_ranks.models_apart, Fault("gc", 12 * MS, (3,), (2,)),
            "gc.collect", others=(6,), noise=unlike_hosts(2015)),
    nobody("healthy, an encoder for two pipelines", "", unlike_ranks.fanned_out, noise=like_hosts(2016)),
    case_of("an encoder for two pipelines, a stage's hot GPU", unlike_ranks.fanned_out, Fault("throttle", 0, (2,), None, 1.4),
            _SAME, noise=like_hosts(2017)),
    nobody("an encoder for two pipelines is too slow", "Stage 0 .rank 0. computes", unlike_ranks.fanned_out,
           Fault("encode", 16 * MS, (0,)), noise=like_hosts(2018)),
    # Of six steps a saving at the end is a hundredth.
    nobody("healthy, saved by a rank", "", unlike_ranks.saved_by_a_rank, steps=8, noise=like_hosts(2019)),
    case_of("saved by a rank, a trainer's loader", unlike_ranks.saved_by_a_rank, Fault("data", 6 * MS, (2,)), LOADER,
            noise=unlike_hosts(2020)),
    nobody("healthy, four ways", "", four_ways.four_ways, noise=unlike_hosts(2021)),
    case_of("four ways, a hot GPU", four_ways.four_ways, Fault("throttle", 0, (9,), None, 1.4), _SAME, noise=like_hosts(2022)),
    case_of("four ways, an expert of a stage has more tokens", four_ways.four_ways, Fault("tokens", 5 * MS, (4,)), "grouped_mm",
            cause="compute", noise=like_hosts(2023)),
    case_of("four ways, one pair's exchanges are slow", four_ways.four_ways, Fault("wire", 6 * MS, (4, 6)),
            "all-to-all among ranks 4 and 6", cause="transfer", noise=like_hosts(2024)),
    nobody("healthy, gradients a step late", "", four_ways.a_step_late, noise=like_hosts(2025)),
    case_of("gradients a step late, a hot GPU", four_ways.a_step_late, Fault("throttle", 0, (1,), None, 1.3), _SAME,
            noise=like_hosts(2026)),
    case_of("gradients a step late, garbage longer than the lead", four_ways.a_step_late, Fault("gc", 20 * MS, (3,), (4,)),
            "gc.collect", noise=like_hosts(2027)),
    nobody("ranks begin their first step apart", "tep 0 is a warm-up", four_ways.begun_apart, others=(1, 2, 3),
           noise=like_hosts(2028)),
    nobody("ranks begin their first step apart, a hot GPU", "tep 0 is a warm-up", four_ways.begun_apart,
           Fault("throttle", 0, (0,), None, 1.3), others=FOUR, noise=like_hosts(2029)),
    case_of("a slow host before a warm GPU", usual.tp_dp, Fault("host", 8 * MS, (1,)), "log_metrics",
            left=(Fault("throttle", 0, (6,), None, 1.2),), others=(6,), tensor=2),
    case_of("scattered kernels beside a warm GPU", with_noise(usual.ddp, Noise(2031, 0.2, 0.12, 0.1)),
            Fault("throttle", 0, (2,), None, 1.3), _SAME, steps=8, ranks=4, has_gain=False),
    case_of("a node's clocks drift, a host of another logs", with_noise(usual.fsdp, like_hosts(2032)),
            Fault("host", 6 * MS, (1,)), "log_metrics", how=Capture(drift=dict.fromkeys((4, 5, 6, 7), 2e-4))),
    case_of("two ranks share a GPU, no host names", with_noise(usual.tp_dp, like_hosts(2033)),
            Fault("throttle", 0, (2, 3), None, 1.8), _SAME, tensor=2, data=4),
    several("two slow hosts and a warm GPU", usual.fsdp, (Fault("host", 6 * MS, (1, 5)), Fault("throttle", 0, (3,), None, 1.25)),
            Truth((1, 5), "host", "log_metrics", others=(3,)), left=(Fault("throttle", 0, (3,), None, 1.25),)),
    case_of("uneven nodes, the small one's power is capped", _uneven_nodes, Fault("throttle", 0, (4, 5), None, 1.35), _SAME),
)  # fmt: skip
