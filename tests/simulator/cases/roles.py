"""Jobs whose ranks do unlike things, and several faults in mixed layouts: each lot was committed before any report of it was seen."""

from dataclasses import replace

from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import FOUR, HEALTHY, LOADER, MS, Case, Truth, case_of, nobody, on_nodes, several
from tests.simulator.faults import Fault
from tests.simulator.jobs import four_ways, two_models, unlike_ranks
from tests.simulator.noise import Noise, like_hosts, unlike_hosts, with_noise
from tests.simulator.program import Job

_SAME = "the same kernels take"

_SURE = Noise(2112, 0.2, 0.03, 0.0)
"""Both ends of a message take as long: noise is drawn for each, which of long ones is more than their ends differ by."""


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
    # The second lot.
    nobody("healthy, a large and a small model", "", two_models.two_sizes, noise=like_hosts(2101)),
    nobody("a large and a small model, a warm GPU that nobody waits for", "", two_models.two_sizes,
           Fault("throttle", 0, (6,), None, 1.15), noise=like_hosts(2102)),
    case_of("a large and a small model, a hot GPU of the small one", two_models.two_sizes, Fault("throttle", 0, (6,), None, 2.5),
            _SAME, noise=like_hosts(2103)),
    case_of("a large and a small model, a host of the large one", two_models.two_sizes, Fault("host", 6 * MS, (1,)),
            "log_metrics", noise=unlike_hosts(2104)),
    nobody("healthy, one learner", "", two_models.one_learner, noise=like_hosts(2105)),
    case_of("one learner, an actor's games are slower", two_models.one_learner, Fault("env", 5 * MS, (2,)), "games.py",
            cause="host", noise=like_hosts(2106)),
    # That its host holds it up for 1.9 ms more is not told: the actors' hosts do for longer, by design.
    nobody("one learner, its host logs", "Rank 0 computes", two_models.one_learner, Fault("host", 7 * MS, (0,)), others=(0,),
           noise=like_hosts(2107)),
    nobody("healthy, an encoder before a decoder", "", two_models.speech, noise=like_hosts(2108)),
    case_of("an encoder before a decoder, a decoder's hot GPU", two_models.speech, Fault("throttle", 0, (7,), None, 1.35), _SAME,
            noise=like_hosts(2109)),
    case_of("an encoder before a decoder, an encoder's loader", two_models.speech, Fault("data", 7 * MS, (1,)), LOADER,
            noise=unlike_hosts(2110)),
    case_of("an encoder before a decoder, a decoder's links", two_models.speech, Fault("tplink", 5 * MS, (2, 3)),
            "all-reduce among ranks 2 and 3", cause="transfer", noise=like_hosts(2111)),
    case_of("a slow link of an end stage", two_models.slow_ends, Fault("edge", 8 * MS, (3,)), "messages among ranks 2 and 3",
            says_ranks=(2, 3), cause="transfer", noise=_SURE),
    case_of("a slow link of an end stage on nodes, a warm GPU", on_nodes(two_models.slow_ends, 4), Fault("edge", 9 * MS, (7,)),
            "messages among ranks 6 and 7", says_ranks=(6, 7), cause="transfer",
            left=(Fault("throttle", 0, (1,), None, 1.1),), others=(1,), noise=_SURE),
    nobody("ranks begin their first step a little apart", "", four_ways.begun_apart, apart_ns=3 * MS, others=(1, 2, 3),
           noise=like_hosts(2114)),
    case_of("ranks begin their first step a little apart, a loader", four_ways.begun_apart, Fault("data", 5 * MS, (1,)), LOADER,
            apart_ns=3 * MS, others=(2, 3), noise=like_hosts(2115)),
    nobody("healthy, kernels scatter widely, clocks apart", "", with_noise(usual.fsdp, Noise(2116, 0.4, 0.2, 0.25)), steps=10,
           ranks=8, how=Capture(offset_ns={2: 9 * MS, 5: -4 * MS})),
    case_of("two slow hosts and a warm GPU, hosts unlike", with_noise(usual.ddp, unlike_hosts(2117)), Fault("host", 6 * MS, (2, 5)),
            "log_metrics", left=(Fault("throttle", 0, (7,), None, 1.2),), others=(7,)),
    nobody("four ways, a node's slower hosts are hidden", "", on_nodes(four_ways.four_ways, 8),
           Fault("pace", 0, tuple(range(8, 16)), None, 6.0), noise=like_hosts(2118)),
    case_of("four ways, a hot GPU, another rank's file is missing", four_ways.four_ways, Fault("throttle", 0, (9,), None, 1.4),
            _SAME, how=Capture(missing=(2,)), has_gain=False, noise=like_hosts(2119)),
    case_of("four ways, slow exchanges before a warm GPU", four_ways.four_ways, Fault("wire", 7 * MS, (12, 14)),
            "all-to-all among ranks 12 and 14", cause="transfer", left=(Fault("throttle", 0, (3,), None, 1.15),), others=(3,),
            noise=like_hosts(2120)),
    nobody("fed by a rank whose file is missing", "4", unlike_ranks.fed_by_a_rank, Fault("decode", 8 * MS, (4,)),
           how=Capture(missing=(4,)), noise=like_hosts(2121)),
    case_of("evaluated apart, its file is missing, a loader", unlike_ranks.evaluated_apart, Fault("data", 7 * MS, (2,)), LOADER,
            how=Capture(missing=(4,)), has_gain=False, noise=like_hosts(2122)),
    nobody("servers of parameters, one's host is slow", "", unlike_ranks.served, Fault("pace", 0, (4,), None, 60.0),
            noise=like_hosts(2123)),
    case_of("servers of six workers, a node of them is capped", on_nodes(unlike_ranks.served, 3), Fault("throttle", 0, (3, 4, 5), None, 1.35),
            _SAME, workers=6, noise=like_hosts(2124)),
    nobody("gradients a step late, a loader in two steps", "", four_ways.a_step_late, Fault("data", 16 * MS, (2,), (2, 5)), others=(2,), noise=like_hosts(2125)),
    nobody("gradients a step late, garbage within the lead", "", four_ways.a_step_late, Fault("gc", 1 * MS, (1,), (4,)),
           others=(1,), noise=like_hosts(2126)),
    case_of("saved by a rank for longer than two steps", unlike_ranks.saved_by_a_rank, Fault("write", 16 * MS, (4,)),
            "save", cause="host", steps=8, noise=like_hosts(2127)),
    case_of("one rank is recorded from a later step on, a loader", with_noise(usual.fsdp, like_hosts(2128)),
            Fault("data", 6 * MS, (1,)), LOADER, ranks=4, steps=7, how=Capture(start_ns={3: 32 * MS}), has_gain=False),
)  # fmt: skip
