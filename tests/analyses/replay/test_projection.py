"""What a ring and a tree should cost, and a measured run on more ranks."""

import json

import pytest
from click.testing import CliRunner

from tests.samples import RUNNERS
from traceanalyzer.analyses.replay.projection import Links
from traceanalyzer.cli import cli

LINKS = Links(gbps=100, hop_ns=1000)


@pytest.mark.parametrize(
    ("collective", "ranks", "ring_ns"),
    [
        ("all_reduce", 2, 1e6 / 100 + 2 * 1000),  # 2(n-1)/n of a MB over 100 B/ns, 2(n-1) hops
        ("all_reduce", 4, 1.5e6 / 100 + 6 * 1000),
        ("all_gather", 4, 0.75e6 / 100 + 3 * 1000),
        ("broadcast", 8, 1e6 / 100 + 7 * 1000),
    ],
)
def test_a_ring(collective, ranks, ring_ns):
    assert LINKS.ring_ns(collective, 1e6, ranks) == pytest.approx(ring_ns)


def test_a_tree_wins_for_small_all_reduces_on_many_ranks():
    assert LINKS.tree_ns(8, 64) == pytest.approx(12_000.16)
    assert LINKS.expected_ns("all_reduce", 8, 64) == LINKS.tree_ns(8, 64) < LINKS.ring_ns("all_reduce", 8, 64)
    assert LINKS.expected_ns("all_reduce", 1e9, 4) == LINKS.ring_ns("all_reduce", 1e9, 4)


def projected(name, *more):
    return CliRunner().invoke(cli, ["tools", "project", str(RUNNERS / name), "--json", *more])


def test_more_ranks_cost_more_and_slower_networks_more_again():
    near, far = (json.loads(projected("pytorch_ddp", *more).output) for more in ((), ("--network", "5")))
    longest = [row["step_high_ns"] for row in near["expected"]["ranks"]]
    assert longest == sorted(longest)
    assert near["measured"]["ranks"] == 2
    assert all(row["step_low_ns"] <= row["step_high_ns"] for row in near["expected"]["ranks"])
    assert far["expected"]["ranks"][-1]["step_high_ns"] > longest[-1]
    state = {row["strategy"]: row["state_bytes"] for row in near["expected"]["strategies"]}
    assert state["ddp"] > state["zero1"] > state["zero2"] > state["zero3"] > 0
    assert any("weak scaling" in said for said in near["assumptions"])


def test_a_pipeline_is_refused():
    done = projected("pp_1f1b")
    assert done.exit_code
    assert "sends and receives" in f"{done.output} {done.exception}"
