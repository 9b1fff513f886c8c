"""What a rank's step needs more than its peers'."""

import pandas as pd
import pytest

from traceanalyzer.analyses.blame.lateness import with_excess
from traceanalyzer.analyses.blame.step_needs import PARTS


def needs(host_ns, needed_ns):
    """Steps of two ranks, of 100 ns each: idle for their hosts, and what launching takes these."""
    rows = [
        {"rank": rank, "step": step, "host_ns": host_ns[rank][step], "needed_host_ns": needed_ns[rank][step]}
        for rank in range(2)
        for step in range(len(host_ns[rank]))
    ]
    table = pd.DataFrame(rows).assign(peers="all", is_partial=False, exposed_transfer_ns=0)
    table = table.assign(begin_ns=table["step"] * 100, end_ns=table["step"] * 100 + 100)
    rest = {part: 0 for part in PARTS if part != "host_ns"}
    return table.assign(**rest).astype({"needed_host_ns": "Int64"})


@pytest.mark.parametrize(
    ("host_ns", "needed_ns", "excess_ns"),
    [
        ([[50], [0]], [[60], [34]], [26, -50]),
        ([[50], [0]], [[60], [60]], [0, -50]),
        ([[50], [0]], [[60], [70]], [0, -50]),
        ([[20], [0]], [[60], [10]], [20, -20]),
        ([[50], [0]], [[None], [None]], [50, -50]),
        # the GPU idles a step later
        ([[0, 50], [0, 0]], [[90, 30], [30, 30]], [0, 50, 0, -50]),
    ],
    ids=["partly", "as slow behind a wait", "slower behind a wait", "wholly", "not known", "the step before"],
)
def test_a_host_is_late_by_what_launching_takes_it_more(host_ns, needed_ns, excess_ns):
    assert with_excess(needs(host_ns, needed_ns))["excess_ns"].tolist() == excess_ns
