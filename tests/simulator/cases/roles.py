"""Jobs whose ranks do unlike things, and several faults in mixed layouts: each lot was committed before any report of it was seen."""

from tests.simulator.case import MS, Case, case_of, nobody
from tests.simulator.faults import Fault
from tests.simulator.jobs import unlike_ranks
from tests.simulator.noise import like_hosts, unlike_hosts

_SAME = "same kernels"

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
    # The second lot.
    nobody("servers of parameters, one's host is slow", "", unlike_ranks.served, Fault("pace", 0, (4,), None, 60.0),
            noise=like_hosts(2123)),
)  # fmt: skip
