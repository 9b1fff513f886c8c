"""Jobs of other libraries and of Megatron, with the truth beside them."""

from tests.simulator import library_jobs as jobs
from tests.simulator import megatron
from tests.simulator.case import LOADER, MS, Case, Truth, case_of
from tests.simulator.faults import Fault

LIBRARY_CASES: tuple[Case, ...] = (
    Case("deepep, even", lambda faults: jobs.deep_ep(faults=faults), (),
         Truth(says="Next to nothing overlaps: .* more that may be data or waiting")),
    case_of("deepep, one rank, compute", jobs.deep_ep, Fault("compute", 3 * MS, (1,)), "mm"),
    case_of("deepep, one rank, host", jobs.deep_ep, Fault("host", 4 * MS, (2,)), "log_metrics"),
    case_of("decoding, one rank, compute", jobs.decoding, Fault("compute", 1 * MS, (0,)), "mm"),
    case_of("decoding, one rank, host", jobs.decoding, Fault("host", 2 * MS, (3,)), "log_metrics"),
    case_of("decoding, one rank, loader", jobs.decoding, Fault("data", 2 * MS, (1,)), LOADER),
    Case("megatron, interleaved", lambda _: megatron.interleaved(), (),
         Truth(says="more in collectives among its stages .14 % expected of 6 stages on 3 ranks and 6 microbatches")),
)  # fmt: skip
