"""Ranks that do unlike things, further: short captures, other profilers, once and in turn; committed before any report was seen."""

from tests.simulator import workloads as usual
from tests.simulator.capture import Capture
from tests.simulator.case import FOUR, LOADER, MS, Case, Truth, case_of, nobody, on_nodes, several
from tests.simulator.faults import Fault, in_turn
from tests.simulator.jobs import four_ways, gpus, two_models, unlike_ranks
from tests.simulator.noise import Noise, like_hosts, unlike_hosts, with_noise
from tests.simulator.spoiled import without_steps

_SAME = "the same kernels take"

_PAYLOADS = Capture(has_payloads=True)

ROLES_FURTHER: tuple[Case, ...] = (
    # Lone roles, in some steps.
    case_of("evaluated apart, slower in two steps", unlike_ranks.evaluated_apart, Fault("evaluate", 14 * MS, (4,), (2, 4)), "conv",
            cause="compute", steps=7, noise=like_hosts(2202)),
    case_of("fed by a rank, its loader in two steps", unlike_ranks.fed_by_a_rank, Fault("data", 16 * MS, (4,), (1, 4)), LOADER,
            steps=7, noise=unlike_hosts(2203)),
    case_of("fed by a rank, its GPU throttled from a step on", unlike_ranks.fed_by_a_rank, Fault("throttle", 0, (4,), (3, 4, 5, 6), 3.0),
            "", cause="compute", steps=7, noise=like_hosts(2204)),
    case_of("models apart, rules take longer in two steps, clocks apart", unlike_ranks.models_apart,
            Fault("rules", 14 * MS, (6,), (1, 3)), "score_rules", cause="host", steps=6, others=(6,),
            how=Capture(offset_ns={2: 7 * MS, 6: -4 * MS}, drift={5: 4e-5}), noise=like_hosts(2205)),
    several("models apart, actors collect garbage in turn", unlike_ranks.models_apart, in_turn("gc", 8 * MS, (0, 2, 1, 3, 0, 2)),
            Truth(FOUR, "host", "gc.collect", others=(6,)), steps=6, noise=like_hosts(2206)),
    # Captures.
    case_of("models apart, an actor's hot GPU, no steps", unlike_ranks.models_apart, Fault("throttle", 0, (1,), None, 1.5), _SAME,
            has_gain=False, others=(6,), noise=like_hosts(2207), spoil=without_steps(*range(8))),
    case_of("models apart, a critic's host, the scorer's file is missing", unlike_ranks.models_apart, Fault("host", 9 * MS, (5,)),
            "log_metrics", has_gain=False, how=Capture(missing=(6,)), noise=like_hosts(2208)),
    case_of("evaluated apart, a trainer's hot GPU, ranges alone", unlike_ranks.evaluated_apart, Fault("throttle", 0, (1,), None, 1.4),
            _SAME, how=_PAYLOADS, by="nsys", noise=like_hosts(2209)),
    case_of("evaluated apart, a loader, the last two steps recorded", unlike_ranks.evaluated_apart, Fault("data", 7 * MS, (3,)),
            LOADER, steps=6, first=4, noise=like_hosts(2210)),
    case_of("servers, a worker's loader, ranges alone", unlike_ranks.served, Fault("data", 8 * MS, (0,)), LOADER, how=_PAYLOADS,
            by="nsys", noise=like_hosts(2211)),
    nobody("healthy, models apart, no steps", "", unlike_ranks.models_apart, others=(6,), noise=like_hosts(2212),
           spoil=without_steps(*range(8))),
    # Two ranks.
    # Each waits for the other: what the learner computes, and the games of the actor.
    nobody("healthy, a learner and an actor", "Rank 0 computes", two_models.one_learner, actors=1, others=(1,), noise=like_hosts(2213)),
    # Said of every step: what its games take in the others is held against the learner, too.
    several("a learner and an actor, its games are slower in two steps", two_models.one_learner,
            (Fault("env", 12 * MS, (1,), (1, 3)),), Truth((1,), "host", "games.py", has_gain=False), actors=1,
            noise=like_hosts(2214)),
    # Unlike models.
    case_of("a large and a small model, throttled from a step on", two_models.two_sizes,
            Fault("throttle", 0, (2,), (3, 4, 5, 6), 1.4), _SAME, steps=7, noise=like_hosts(2215)),
    nobody("an encoder before a decoder, the encoder is too large", "tage 0", two_models.speech, encoder_ns=800_000,
           noise=like_hosts(2216)),
    case_of("an encoder before a decoder, garbage once, clocks apart", two_models.speech, Fault("gc", 12 * MS, (6,), (2,)),
            "gc.collect", how=Capture(offset_ns={4: 8 * MS, 5: 8 * MS, 6: 8 * MS, 7: 8 * MS}), noise=unlike_hosts(2217)),
    # Meetings of faults.
    case_of("a slow link and a late loader elsewhere", two_models.slow_ends, Fault("data", 9 * MS, (4,)), LOADER,
            left=(Fault("edge", 3 * MS, (2,)),), others=(1, 2), noise=Noise(2218, 0.2, 0.03, 0.0)),
    case_of("four ways, garbage once before slow exchanges", four_ways.four_ways, Fault("gc", 20 * MS, (13,), (2,)), "gc.collect",
            left=(Fault("wire", 2 * MS, (4, 6)),), others=(4, 6), steps=5, noise=like_hosts(2219)),
    case_of("two nodes, one is capped, a host of the other logs", on_nodes(with_noise(usual.fsdp, like_hosts(2220)), 4),
            Fault("host", 6 * MS, (1,)), "log_metrics", left=(Fault("throttle", 0, (4, 5, 6, 7), None, 1.2),), others=(4, 5, 6, 7)),
    case_of("a GPU gets hotter while another's host collects garbage", gpus.heated, Fault("heat", 0, (5,), tuple(range(2, 8))), _SAME, cause="compute",
            left=(Fault("gc", 3 * MS, (0,), (4,)),), others=(0,), has_gain=False),
    case_of("scattered kernels in four ways, a warm GPU", four_ways.four_ways, Fault("throttle", 0, (6,), None, 1.35), _SAME,
            has_gain=False, noise=Noise(2222, 0.3, 0.1, 0.15)),
    # The start of the first recorded step comes first, by a bound of 2.2 ms; the GPU is said behind it, with 1.9 ms.
    nobody("a GPU of a rank that begins late is warm", "In step 0 ranks 2 and 3", four_ways.begun_apart,
           Fault("throttle", 0, (2,), None, 1.3), apart_ns=2 * MS, steps=6, others=(1, 2, 3), noise=unlike_hosts(2223)),
    nobody("healthy, uneven starts, clocks drift", "", four_ways.begun_apart, apart_ns=1 * MS, steps=6, others=(1, 2, 3),
           how=Capture(drift={1: 1e-4, 3: -1e-4}), noise=unlike_hosts(2224)),
    # The last lot.
    case_of("servers of three workers, one logs", unlike_ranks.served, Fault("host", 6 * MS, (1,)), "log_metrics", workers=3,
            noise=like_hosts(2301)),
    case_of("evaluated apart on eight, one trains on a hot GPU", unlike_ranks.evaluated_apart, Fault("throttle", 0, (5,), None, 1.35),
            _SAME, trainers=7, noise=like_hosts(2302)),
    case_of("fed by a rank, a trainer logs in two steps", unlike_ranks.fed_by_a_rank, Fault("host", 9 * MS, (2,), (1, 3)),
            "log_metrics", steps=6, noise=unlike_hosts(2303)),
    case_of("saved by a rank, a trainer's hot GPU", unlike_ranks.saved_by_a_rank, Fault("throttle", 0, (1,), None, 1.4), _SAME, steps=7,
            noise=like_hosts(2304)),
    case_of("models apart, a critic's hot GPU for long", unlike_ranks.models_apart, Fault("throttle", 0, (4,), None, 2.2), _SAME,
            others=(6,), noise=like_hosts(2305)),
    nobody("models apart, a critic's warm GPU that nobody waits for", "", unlike_ranks.models_apart,
           Fault("throttle", 0, (5,), None, 1.15), others=(6,), noise=like_hosts(2306)),
    case_of("a large and a small model, garbage of the small one once", two_models.two_sizes, Fault("gc", 14 * MS, (7,), (2,)),
            "gc.collect", noise=unlike_hosts(2307)),
    case_of("an encoder for two pipelines, a stage logs", unlike_ranks.fanned_out, Fault("host", 9 * MS, (3,)), "log_metrics",
            noise=like_hosts(2308)),
    case_of("an encoder before a decoder on nodes, one is capped", on_nodes(two_models.speech, 4),
            Fault("throttle", 0, (4, 5, 6, 7), None, 1.3), _SAME, noise=like_hosts(2309)),
    case_of("servers on two nodes, clocks drift, a worker's hot GPU", on_nodes(unlike_ranks.served, 3), Fault("throttle", 0, (3,), None, 1.4),
            _SAME, how=Capture(offset_ns=dict.fromkeys((3, 4, 5), 9 * MS), drift=dict.fromkeys((3, 4, 5), 2e-5)),
            noise=like_hosts(2310)),
    case_of("four ways on two nodes, a loader, clocks apart", on_nodes(four_ways.four_ways, 8), Fault("data", 9 * MS, (6,)), LOADER,
            how=Capture(offset_ns=dict.fromkeys(range(8, 16), -6 * MS)), noise=like_hosts(2311)),
    case_of("gradients a step late, garbage of two in unlike steps", four_ways.a_step_late, Fault("gc", 25 * MS, (0,), (3,)),
            "gc.collect", left=(Fault("gc", 6 * MS, (2,), (5,)),), others=(2,), has_gain=False, noise=like_hosts(2312)),
)  # fmt: skip
