"""Who makes the others wait: only what is worth a row, and what nobody can measure."""

import pytest

from tests import once
from traceanalyzer.findings import shares
from traceanalyzer.report.page import sections
from traceanalyzer.report.words import split

NEEDED = ("time_parts", "stragglers", "headline", "steps", "exposed_comm", "idle", "call_waits", "instances")


@pytest.mark.parametrize(
    ("name", "ranks", "rest"),
    [
        ("ddp_straggler", [1], ""),
        pytest.param("pp", [1, 0], "", marks=pytest.mark.thorough),
        (
            "moe",
            [],
            "Where waits can be told from transfers, no rank makes another wait for 2 % of a step; tables/stragglers.csv has all.",
        ),
    ],
)
def test_stragglers_that_cost_too_little_are_counted_only(name, ranks, rest):
    result = once.results(name, ["stragglers"])["stragglers"]
    assert shares.costly(result)["rank"].tolist() == ranks
    assert shares.too_cheap(result) == rest


def test_ranks_whose_hosts_need_what_every_host_needs_are_acquitted():
    assert shares.acquitted(once.results("ddp_straggler", ["stragglers"])["stragglers"]) == ""
    cleared = once.results("ddp", ["stragglers"])["stragglers"]
    assert shares.costly(cleared).empty
    assert "wait for rank 0, whose host needs no longer for a step than hosts do where" in shares.acquitted(cleared)


def test_waits_that_cannot_be_measured_are_counted_and_weighed():
    results = once.results("moe", NEEDED)
    made = split(results)
    said = sections.not_measured(results, made)
    assert said.startswith("Not measured: waits in 72 all-to-alls (uneven all-to-all: its ranks do not wait alike); ")
    most = made.table["exposed_unmatched_ns"].max() / 1e6
    assert f"up to {most:.2f}\u202fms a step of exposed communication, on rank 1" in said
    calls = results["instances"].to_frame()
    apart = calls[calls["transfer_ns"].isna() & calls["step"].isin([1, 2, 3])]["skew_ns"].dropna()
    assert f"enters {len(apart)} of them {apart.sum() / made.steps / 1e6:.2f} ms a step after the first" in said
    assert sections.not_measured(once.results("ddp_straggler", NEEDED), split(results)) == ""
