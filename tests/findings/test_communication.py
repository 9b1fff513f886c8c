"""What is said of communication."""

import pandas as pd

from tests import once
from tests.simulator import scenarios
from tests.simulator.analysed import analysed
from traceanalyzer.analyses import ANALYSES
from traceanalyzer.analyses.communication.collectives import Collectives
from traceanalyzer.findings.communication import little_overlap, low_bandwidth, many_small_collectives


def of_sample(name, *names):
    assert set(names) <= set(ANALYSES)
    return once.results(name, names)


def test_little_overlap_is_told_where_data_moves():
    assert little_overlap(**of_sample("ddp", "headline", "exposed_comm")) == []
    _, results = analysed(scenarios.hsdp(), "headline", "exposed_comm")
    assert little_overlap(**results) == []


def test_waits_are_not_low_bandwidth():
    assert low_bandwidth(**of_sample("ddp", "collectives")) == []


def test_slow_links_are():
    # 18 MB in 150 µs are 120 GB/s of an H200's 450.
    _, results = analysed(scenarios.ddp(2, elements=9_000_000), "collectives")
    (found,) = low_bandwidth(**results)
    assert found.title.startswith("Large all-reduces, data parallel (ranks 0, 1), reach ")


def test_groups_that_are_slow_alike_are_one_finding():
    _, results = analysed(scenarios.ddp(2, elements=9_000_000), "collectives")
    table = results["collectives"].table.astype({"group": "object", "group_ranks": "object"})
    slower = table.assign(
        group="b", group_ranks="2,3", group_label="data parallel (ranks 2, 3)", transfer_ns=table["transfer_ns"] * 2
    )
    (found,) = low_bandwidth(Collectives(pd.concat([table, slower])))
    assert "all-reduces of 2 groups, slowest data parallel (ranks 2, 3), reach " in found.title
    assert {row["group"] for row in found.evidence} == {"0", "b"}


def test_many_small_collectives():
    _, results = analysed(scenarios.ddp(2, buckets=60, elements=1_000), "call_waits", "headline", "steps")
    (found,) = many_small_collectives(**results)
    assert "runs 60 all-reduces of at most 1 MiB a step" in found.title
    _, results = analysed(scenarios.ddp(2, buckets=60), "call_waits", "headline", "steps")
    assert many_small_collectives(**results) == []


def test_small_collectives_that_take_next_to_nothing_of_a_step_are_no_news():
    _, results = analysed(
        scenarios.ddp(2, buckets=60, elements=1_000, slow_compute_ns={0: 20_000_000, 1: 20_000_000}),
        "call_waits", "headline", "steps",
    )  # fmt: skip
    assert many_small_collectives(**results) == []
