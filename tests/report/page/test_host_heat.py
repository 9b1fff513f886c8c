"""Hosts by steps."""

import pandas as pd

from traceanalyzer.analyses import overview
from traceanalyzer.analyses.blame.step_budget import OWN_PARTS, StepNeeds
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.report.page.heat import host_heat


def results(hosts, compute_ns, steps=3):
    return of_tables(*tables(hosts, compute_ns, steps))


def tables(hosts, compute_ns, steps=3):
    rows = [
        {"rank": rank, "step": step, "is_partial": False, "compute_ns": compute_ns(host, step)}
        for rank, host in enumerate(hosts) for step in range(steps)
    ]  # fmt: skip
    needs = pd.DataFrame(rows).assign(**dict.fromkeys([*OWN_PARTS[1:], "exposed_transfer_ns"], 0))
    ranks = pd.DataFrame({"rank": range(len(hosts)), "host": hosts})
    return ranks, needs


def of_tables(ranks, needs):
    return {"ranks": Ranks(ranks), "host_steps": overview.host_steps_across(StepNeeds(needs), Ranks(ranks))}


HOSTS = ["b0"] * 2 + ["b1"] * 2 + ["b2"] * 2


def test_the_slow_host_is_dark_in_the_step_in_which_it_is_slow():
    made = host_heat(results(HOSTS, lambda host, step: 124 if (host, step) == ("b1", 2) else 100))
    assert made.hosts == ("b0", "b1", "b2")
    assert [len(row.cells) for row in made.rows] == [0, 0, 1]
    (cell,) = made.rows[2].cells
    assert (cell.label, cell.opacity, round(cell.place)) == ("b1, step 2: +24.0 %, slowest rank 2", 1.0, 33)
    assert (made.rows[2].worst, round(made.rows[2].worst_pct)) == ("b1", 24)
