"""Hosts by steps."""

import pandas as pd
import pytest

from traceanalyzer.analyses import overview
from traceanalyzer.analyses.blame.step_budget import OWN_PARTS, StepNeeds
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.report.page.heat import MOST_STEPS, host_heat


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
    return {"ranks": Ranks(ranks), "host_steps": overview.host_steps_across({}, StepNeeds(needs), Ranks(ranks))}


HOSTS = ["b0"] * 2 + ["b1"] * 2 + ["b2"] * 2


def test_the_slow_host_is_dark_in_the_step_in_which_it_is_slow():
    made = host_heat(results(HOSTS, lambda host, step: 124 if (host, step) == ("b1", 2) else 100))
    assert made.hosts == ("b0", "b1", "b2")
    assert [len(row.cells) for row in made.rows] == [0, 0, 1]
    (cell,) = made.rows[2].cells
    assert (cell.label, cell.opacity, round(cell.place)) == ("b1, step 2: +24.0 %, slowest rank 2", 1.0, 33)
    assert (made.rows[2].worst, round(made.rows[2].worst_pct)) == ("b1", 24)


def test_one_slow_rank_makes_its_host_dark_and_is_named_with_its_rack():
    ranks, needs = tables(HOSTS, lambda *_: 100)
    slow = needs.assign(compute_ns=needs["compute_ns"].where(needs["rank"] != 5, 150))
    made = host_heat(of_tables(ranks.assign(rack=list("aabbcc")), slow))
    assert [cell.label for row in made.rows for cell in row.cells] == [
        f"b2 (rack c), step {step}: +50.0 %, slowest rank 5" for step in range(3)
    ]


def test_of_many_steps_those_are_drawn_in_which_a_host_is_unlike():
    made = host_heat(results(HOSTS, lambda host, step: 150 if (host, step) == ("b2", 70) else 100, steps=80))
    assert (len(made.rows), made.left_out) == (MOST_STEPS, 80 - MOST_STEPS)
    assert 70 in [row.step for row in made.rows]


@pytest.mark.parametrize("hosts", [["b0"] * 4, [None] * 4])
def test_one_host_has_no_map(hosts):
    assert host_heat(results(hosts, lambda *_: 100)) is None
