"""Known kinds of jobs with faults that none of them had yet, two at once, few steps: committed before any report was seen."""

from tests.simulator.case import LOADER, MS, Case, Truth, case_of, nobody, several
from tests.simulator.faults import Fault, in_turn
from tests.simulator.jobs import (
    ahead,
    chances,
    cubes,
    data_parallel,
    moving,
    pipelines,
    recommenders,
    replicated_pipelines,
    sparse,
)
from tests.simulator.noise import like_hosts, unlike_hosts, with_noise

_SAME = "same kernels"

ACROSS: tuple[Case, ...] = (
    case_of("batches by tokens of unlike lengths, garbage once", moving.by_tokens, Fault("gc", 12 * MS, (0,), (3,)),
            "gc.collect", noise=like_hosts(1401)),
    # The tables of ranks 0 and 4 are the largest, by design.
    case_of("sharded tables, a hot GPU", recommenders.sharded_tables, Fault("throttle", 0, (6,), None, 1.35), _SAME,
            others=(0, 4), noise=like_hosts(1403)),
    several("sharded tables, garbage in turn", recommenders.sharded_tables, in_turn("gc", 7 * MS, (5, 2, 7, 0, 3, 6)),
            Truth((0, 2, 3, 5, 6, 7), "host", "gc.collect", others=(4,)), steps=6, noise=like_hosts(1404)),
    # No other stage loads: it is nobody's peer.
    nobody("a light first stage's loader", "data_loading", pipelines.light_first, Fault("data", 14 * MS, (0,)),
           is_gained=True, noise=like_hosts(1418)),
    case_of("transfers with a long tail, a hot GPU", chances.heavy_tailed, Fault("throttle", 0, (2,), None, 1.25), _SAME,
            noise=like_hosts(1420)),
    # Either alone saves half of what both do.
    several("few rows, a loader before another's products", sparse.few_rows,
            (Fault("data", 8 * MS, (0,)), Fault("compute", 4 * MS, (2,))), Truth((0, 2), "data and compute", LOADER),
            noise=like_hosts(1423)),
    case_of("experts in stages, a hot GPU in the last stage", cubes.experts_in_stages, Fault("throttle", 0, (6,), None, 1.35),
            _SAME, noise=like_hosts(1424)),
    case_of("leaders of nodes, a follower's loader", data_parallel.led, Fault("data", 8 * MS, (7,)), LOADER,
            noise=unlike_hosts(1427)),
    case_of("stages of two replicas, one stage copies in two steps", with_noise(replicated_pipelines.pp_dp, like_hosts(1431)),
            Fault("copy", 8 * MS, (4,), (1, 3)), "HtoD", steps=5),
    # The fifth lot.
    case_of("held over micro-batches, the last step is late", ahead.held_over, Fault("data", 9 * MS, (2,), (3,)), LOADER,
            has_gain=False, is_behind=True, noise=like_hosts(1511)),
)  # fmt: skip
