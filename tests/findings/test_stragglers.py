"""What is said of stragglers and of communication."""

import pandas as pd
import pytest

from tests.samples import sample
from tests.simulator import scenarios
from tests.simulator.analysed import analysed
from traceanalyzer.analyses import ANALYSES, run
from traceanalyzer.analyses.communication.collectives import Collectives
from traceanalyzer.findings.communication import little_overlap, low_bandwidth, many_small_collectives
from traceanalyzer.findings.in_turn import in_turn
from traceanalyzer.findings.stragglers import stragglers

NEEDED = (
    "stragglers", "exposed_comm", "waits", "steps", "breakdown",
    "pipeline", "pipelines", "kernels", "operators", "efficiency",
)  # fmt: skip


def said(job):
    _, results = analysed(job, *NEEDED)
    return stragglers(**results)


def of_sample(name, *names):
    assert set(names) <= set(ANALYSES)
    return run(sample(name).ranks, names)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("ddp", "Rank 0's host is late: rank 1 waits 42.6 ms a step for it inside all-reduce."),
        (
            "ddp_straggler",
            "Rank 1 computes 75.6 ms a step, rank 0 18.4 ms: rank 0 waits 56.4 ms a step for it inside all-reduce.",
        ),
        ("pp", "Rank 0 waits 57.3 ms a step for rank 1 inside send-recv."),
    ],
)
def test_who_is_late_and_who_waits(name, title):
    found = stragglers(**of_sample(name, *NEEDED))[0]
    assert found.title == title
    assert found.severity == "high"
    assert found.recommendation
    assert found.caveat
    start, end = found.interval_ns
    assert (end - start) in [row["window_ns"] for row in found.evidence], "the step of the longest wait"
    assert [(row["step"], row["rank"]) for row in found.evidence] == [(2, 0), (2, 1), (3, 0), (3, 1)]
    waits = [row["exposed_wait_ns"] for row in found.evidence]
    assert max(waits) == max(row["exposed_wait_ns"] for row in found.evidence if f"ank {row['rank']} waits" in title)


def test_names_are_those_that_people_use():
    found = {name: stragglers(**of_sample(name, *NEEDED))[0].recommendation for name in ("ddp", "ddp_straggler", "pp")}
    assert "CPU first, for its code does what the others' does" in found["ddp"], (
        "its host is slow at what both ranks do"
    )
    assert "ranks: nvjet 320×128 bf16, 54.8 ms" in found["ddp_straggler"]
    assert "Find what launches the work that no other rank does" in found["ddp_straggler"]
    assert "clocks" not in found["pp"], "stages of a pipeline have unequal work by design"


def test_waits_that_the_schedule_costs_anyway_are_not_said():
    found = stragglers(**of_sample("pp", *NEEDED))
    # Rank 1 waits 16 of 125 ms for rank 0: 12.8 %, where the schedule of two stages costs 20.
    assert [finding.title for finding in found] == ["Rank 0 waits 57.3 ms a step for rank 1 inside send-recv."]


def test_many_ranks_wait():
    title = said(scenarios.ddp(4, slow_compute_ns={2: 400_000}))[0].title
    assert title.startswith("Rank 2 computes ")
    assert ", the others' median " in title
    assert ": 3 ranks wait for it inside all-reduce, " in title


@pytest.mark.parametrize(
    ("slow_in", "who", "advice", "severity"),
    [
        (range(1), "in 1 of 3 steps 3 ranks wait", "Look at step 0 alone. It is the first of the capture", "low"),
        (range(1, 2), "in 1 of 3 steps 3 ranks wait", "Look at step 1 alone. Pin", "low"),
        (range(2), "in 2 of 3 steps 3 ranks wait", "Pin", "medium"),
        (range(4), "3 ranks wait", "Pin", "high"),
    ],
)
def test_a_wait_of_some_steps_is_not_told_of_every_step(slow_in, who, advice, severity):
    found = said(scenarios.fed(slow_copy_ns={2: 3_000_000}, slow_in=slow_in))[0]
    assert f": {who} for it inside all-reduce, " in found.title
    assert (" a step" in found.title) == (len(slow_in) == 4)
    assert found.recommendation.startswith(advice)
    assert found.severity == severity


def test_the_wait_is_that_of_the_affected_steps():
    _, results = analysed(scenarios.fed(slow_copy_ns={2: 3_000_000}, slow_in=range(1, 2)), *NEEDED)
    (row,) = results["stragglers"].to_frame().query("rank == 2").to_dict("records")
    waits = results["exposed_comm"].to_frame().query("step == 1 and rank == @row['cost_max_rank']")
    assert 0 < row["affected_wait_ns"] <= waits["exposed_wait_ns"].item()
    assert row["affected_wait_ns"] > 0.9 * row["cost_max_ns"] * row["steps"]
    assert f" {row['affected_wait_ns'] / 1e6:.3g} ms" in stragglers(**results)[0].title


@pytest.mark.parametrize(("ranks", "steps"), [(4, 9), (8, 9), (16, 6)])
def test_ranks_that_take_turns_are_one_finding(ranks, steps):
    _, results = analysed(scenarios.ddp(ranks, steps, in_turn_ns=2_000_000), *NEEDED)
    assert stragglers(**results) == []
    (found,) = in_turn(**{name: results[name] for name in NEEDED[:5]})
    late = min(ranks, steps - 1)
    assert found.title.startswith(f"{late} ranks compute longer than the others in turn")
    assert len(found.evidence) == late
    complete = results["exposed_comm"].to_frame().query("is_complete")
    waited = complete.groupby("rank")["exposed_wait_ns"].mean()
    assert found.gain_ns == pytest.approx(waited.max(), rel=0.05)
    # One of 2 ms in each step; the ranks wait for it unless it is their turn.
    assert found.gain_ns < 2_000_000


def test_two_late_steps_are_no_turns():
    _, results = analysed(scenarios.fed(slow_copy_ns={1: 3_000_000, 2: 2_000_000}, slow_in=range(1, 2)), *NEEDED)
    assert in_turn(**{name: results[name] for name in NEEDED[:5]}) == []


def test_equal_ranks_are_left_alone():
    assert said(scenarios.ddp(4)) == []
    _, results = analysed(scenarios.ddp(8, 9), *NEEDED)
    assert in_turn(**{name: results[name] for name in NEEDED[:5]}) == []


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
    _, results = analysed(scenarios.ddp(2, buckets=60, elements=1_000), "call_waits")
    (found,) = many_small_collectives(**results)
    assert "runs 60 all-reduces of at most 1 MiB a step" in found.title
    _, results = analysed(scenarios.ddp(2, buckets=60), "call_waits")
    assert many_small_collectives(**results) == []
