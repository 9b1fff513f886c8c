"""What operators tell of a late rank: a host slow at what all do, work of its own."""

import pytest

from tests import once
from tests.simulator import workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import launches
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.findings.hosts.slow_hosts import eager_hosts, slow_hosts


def test_of_two_hosts_nobody_can_tell_whether_one_is_slow():
    results = once.results("ddp", ["headline", "steps", "idle", "episodes", "operators", "pipeline"])
    (found,) = slow_hosts(**results)
    table = results["operators"].to_frame().dropna(subset="calls")
    by_operator = table.pivot_table(index="operator", columns="rank", values="host_self_ns", aggfunc="sum")
    sums = table.groupby("rank")[["calls"]].sum().assign(
        host_self_ns=by_operator[by_operator[1] <= 2 * by_operator[0]].sum())  # fmt: skip
    assert sums["calls"][0] == sums["calls"][1]
    ratio = sums["host_self_ns"][0] / sums["host_self_ns"][1]
    assert found.title == (
        f"Rank 0's host makes the same {sums['calls'][0]:,} operator calls as rank 1's in the capture and "
        f"takes {ratio:.2g} times as long for them. Two hosts alone do not tell whether one of them is slow: they can "
        "differ as much where nothing is wrong. With this one like rank 1's a mean step is 23.8 ms shorter; record "
        "again to see whether it is late again."
    )


@pytest.mark.parametrize(("what", "is_said"), [("range", True), ("operator", False)])
def test_a_host_that_is_late_in_a_range_of_all_may_be_slow_at_what_all_do_in_it(what, is_said):
    results = {**once.results("ddp")}
    results["episodes"] = Episodes(results["episodes"].table.assign(what=what, name="rollout"))
    names = ("headline", "steps", "idle", "episodes", "operators", "pipeline")
    said = [item.title for item in slow_hosts(*(results[name] for name in names))]
    assert any("takes 1.5 times as long" in title for title in said) == is_said


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (
            launches.graphed(faults=(Fault("eager", 0, (2,)),)),
            ["Rank 2 launches none of its operations as CUDA graphs, the others 98 %."],
        ),
        (workloads.ddp(4, 4, (Fault("host", 6_000_000, (2,)),)), []),
    ],
    ids=["eager", "late by something else"],
)
def test_a_late_host_that_launches_no_graphs_where_the_others_do_is_told_so(job, said):
    _, results = analysed(job, "episodes", "launches")
    assert [each.title for each in eager_hosts(**results)] == said
    assert eager_hosts(**results, eager_graphs_pct=-1.0) == []
