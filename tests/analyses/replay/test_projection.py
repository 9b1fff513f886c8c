"""What a ring and a tree should cost, and a measured run on more ranks."""

import pytest
from click.testing import CliRunner

from tests import once
from tests.samples import RUNNERS
from traceanalyzer.analyses.replay.projection import NEEDED, Links, project
from traceanalyzer.cli import cli
from traceanalyzer.errors import InputError
from traceanalyzer.job.model_state import Model

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


def test_more_ranks_cost_more_and_slower_networks_more_again():
    results = once.results("pytorch_ddp", NEEDED)
    model = Model(params=100_000_000, layers=4, d_model=64, strategy="ddp")
    near, far = (project(results, [4, 8, 64], model=model, network_gbps=rate) for rate in (None, 5.0))
    longest = near.by_ranks["step_high_ns"].tolist()
    assert longest == sorted(longest)
    assert near.ranks == 2
    assert (near.by_ranks["step_low_ns"] <= near.by_ranks["step_high_ns"]).all()
    assert far.by_ranks["step_high_ns"].iloc[-1] > longest[-1]
    state = near.by_strategy.set_index("strategy")["state_bytes"]
    assert state["ddp"] > state["zero1"] > state["zero2"] > state["zero3"] > 0
    assert any("weak scaling" in said for said in near.assumptions)


def test_a_pipeline_is_refused():
    with pytest.raises(InputError, match="sends and receives"):
        project(once.results("pp_1f1b", NEEDED), [4])


def test_the_command_says_that_figures_are_expected():
    done = CliRunner().invoke(cli, ["tools", "project", str(RUNNERS / "pytorch_ddp"), "--to", "4"])
    assert done.exit_code == 0
    assert "Expected, not measured" in done.output
    assert "Assumes: " in done.output
