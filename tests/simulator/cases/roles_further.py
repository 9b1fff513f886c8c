"""Ranks that do unlike things, further: short captures, other profilers, once and in turn; committed before any report was seen."""

from tests.simulator.capture import Capture
from tests.simulator.case import LOADER, MS, Case, case_of, on_nodes
from tests.simulator.faults import Fault
from tests.simulator.jobs import unlike_ranks
from tests.simulator.noise import like_hosts

_SAME = "same kernels"

_PAYLOADS = Capture(has_payloads=True)

ROLES_FURTHER: tuple[Case, ...] = (
    # Captures.
    case_of("evaluated apart, a loader, the last two steps recorded", unlike_ranks.evaluated_apart, Fault("data", 7 * MS, (3,)),
            LOADER, steps=6, first=4, noise=like_hosts(2210)),
    case_of("servers, a worker's loader, ranges alone", unlike_ranks.served, Fault("data", 8 * MS, (0,)), LOADER, how=_PAYLOADS,
            by="nsys", noise=like_hosts(2211)),
    # The last lot.
    case_of("servers of three workers, one logs", unlike_ranks.served, Fault("host", 6 * MS, (1,)), "log_metrics", workers=3,
            noise=like_hosts(2301)),
    case_of("evaluated apart on eight, one trains on a hot GPU", unlike_ranks.evaluated_apart, Fault("throttle", 0, (5,), None, 1.35),
            _SAME, trainers=7, noise=like_hosts(2302)),
    case_of("an encoder for two pipelines, a stage logs", unlike_ranks.fanned_out, Fault("host", 9 * MS, (3,)), "log_metrics",
            noise=like_hosts(2308)),
    case_of("servers on two nodes, clocks drift, a worker's hot GPU", on_nodes(unlike_ranks.served, 3), Fault("throttle", 0, (3,), None, 1.4),
            _SAME, how=Capture(offset_ns=dict.fromkeys((3, 4, 5), 9 * MS), drift=dict.fromkeys((3, 4, 5), 2e-5)),
            noise=like_hosts(2310)),
)  # fmt: skip
