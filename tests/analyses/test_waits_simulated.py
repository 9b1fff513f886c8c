"""Waits, offsets and stragglers of simulated jobs against what truly happened."""

import pandas as pd
import pytest

from tests.simulator import Capture, scenarios
from tests.simulator.analysed import analysed, true_waits
from tests.simulator.jobs import meshes

MS = 1_000_000

BOTH = ("exposed_comm", "stragglers")
"""Asked for together, also where one would do: a job is analysed once for what is asked in the same words."""

DAMAGED = Capture(dropped={1: (0,), 2: (11,)}, offset_ns={3: 2 * MS})
"""One event lost at the front of a rank, one in the middle of another, and a third with another clock."""


@pytest.fixture(scope="module", params=["kineto", pytest.param("nsys", marks=pytest.mark.thorough)])
def damaged(request):
    job = scenarios.ddp(8, slow_compute_ns={5: 300_000})
    return analysed(job, "call_waits", "clocks", "stragglers", how=DAMAGED, by=request.param)


def mixed(calls):
    """Instances whose calls are truly several collectives."""
    keys = calls.groupby("instance")["key"]
    return [*calls["instance"].unique()[keys.min().ne(keys.max())]]


def test_losses_change_no_other_wait(damaged):
    truth, results = damaged
    calls = true_waits(truth, results["call_waits"].to_frame(), DAMAGED)
    known = calls[calls["wait_ns"].notna()]
    assert len(known) == 8 * 30
    assert mixed(known) == [], "nothing is invented"
    # The shortest duration holds up to 3 µs of jitter of the ends.
    off = (known["wait_ns"] - known["true_wait_ns"]).abs()
    assert (off <= 0.01 * known["true_wait_ns"] + 3_000).all()
    by_rank = known.groupby("rank")[["wait_ns", "true_wait_ns"]].sum()
    assert ((by_rank["wait_ns"] - by_rank["true_wait_ns"]).abs() <= 0.01 * by_rank["true_wait_ns"]).all()


def test_offsets_are_found(damaged):
    frame = damaged[1]["clocks"].to_frame().set_index("rank")
    assert frame["offset_ns"].sub(pd.Series({3: 2 * MS}), fill_value=0).abs().max() < 50_000
    assert frame["is_significant"].tolist() == [rank == 3 for rank in range(8)]
    assert (frame["uncertainty_ns"] >= 30_000).all()


@pytest.mark.thorough
def test_both_profilers_give_the_same_waits():
    job = scenarios.ddp(4, slow_compute_ns={2: 400_000})
    kineto, nsys = (analysed(job, *BOTH, by=by)[1] for by in ("kineto", "nsys"))
    for name in BOTH:
        pd.testing.assert_frame_equal(kineto[name].to_frame(), nsys[name].to_frame())


@pytest.mark.parametrize(
    "how",
    [
        Capture(has_sequence=True, dropped={0: (3,)}),
        Capture(arguments="host"),
        Capture(arguments="none"),
        Capture(start_ns={0: 6 * MS, 1: 9 * MS}, end_ns={2: 28 * MS}, offset_ns={1: -3 * MS}),
        Capture(start_ns={0: 6 * MS}, has_sequence=True, offset_ns={1: 5_000 * MS}),
    ],
    ids=["sequence", "arguments on the host", "no arguments", "ranks start and stop elsewhere", "hosts seconds apart"],
)
def test_waits_whatever_is_recorded(how):
    truth, results = analysed(scenarios.ddp(4, steps=5, slow_compute_ns={2: 250_000}), "call_waits", how=how)
    calls = true_waits(truth, results["call_waits"].to_frame(), how)
    known = calls[calls["wait_ns"].notna()]
    assert len(known) >= 0.5 * len(calls)
    assert mixed(known) == []
    assert ((known["wait_ns"] - known["true_wait_ns"]).abs() <= 0.01 * known["true_wait_ns"] + 3_000).all()


@pytest.mark.parametrize(
    ("job", "rank", "cause", "operation"),
    [
        (scenarios.ddp(4, slow_compute_ns={2: 400_000}), 2, "compute", "extra_gemm"),
        (scenarios.ddp(4, slow_host_ns={2: 800_000}), 2, "host", "python_hook"),
        pytest.param(
            scenarios.ddp(2, slow_compute_ns={0: 400_000}), 0, "compute", "extra_gemm", marks=pytest.mark.thorough
        ),
        pytest.param(
            scenarios.hsdp(slow_compute_ns={5: 200_000}), 5, "compute", None, marks=pytest.mark.thorough
        ),  # the same kernels take longer
        pytest.param(
            scenarios.fed(slow_copy_ns={1: 3 * MS}),
            1,
            "copies",
            "Memcpy HtoD (Pinned -> Device)",
            marks=pytest.mark.thorough,
        ),
        (
            scenarios.fed(slow_data_ns={3: 3 * MS}),
            3,
            "data",
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        ),
    ],
    ids=["ddp, compute", "ddp, host", "two ranks", "hsdp", "copies", "data"],
)
def test_the_slow_rank_is_named_with_its_cause(job, rank, cause, operation):
    _, results = analysed(job, *BOTH)
    first = results["stragglers"].to_frame().iloc[0]
    assert (first["rank"], first["cause"], first["operation"]) == (rank, cause, operation)


@pytest.mark.thorough
def test_a_pipeline_waits_most_for_its_slow_stage():
    """No other rank does the same: the stage is late by its design, which the rule about pipelines says."""
    _, results = analysed(scenarios.pipeline(4, slow_compute_ns={2: 500_000}), "stragglers")
    first = results["stragglers"].to_frame().iloc[0]
    assert (first["rank"], first["waiting_ranks"]) == (2, 3)
    assert pd.isna(first["episode"])


@pytest.mark.thorough
def test_equal_ranks_make_no_finding():
    _, results = analysed(scenarios.ddp(4), "stragglers")
    assert (results["stragglers"].to_frame()["cost_pct"] < 2).all()


@pytest.mark.parametrize("slow", [{5: 60_000}, pytest.param({5: 150_000, 1: 20_000}, marks=pytest.mark.thorough)])
def test_a_mesh_without_process_groups_is_ambiguous_and_not_guessed(slow):
    # Tensor parallel rows beside each other: their calls look alike, and end together by chance.
    how = Capture(arguments="none")
    job = meshes.tensor_by_data(4, 2, slow_compute_ns=slow)
    truth, results = analysed(job, "call_waits", "clocks", how=how, by="nsys")
    frame = results["call_waits"].to_frame()
    assert frame.loc[frame["instance"].notna(), "is_ambiguous"].all()
    assert frame["wait_ns"].isna().all()
    assert results["clocks"].to_frame()["offset_ns"].isna().all()
    # With groups every wait is known, and right.
    truth, results = analysed(job, "call_waits")
    waits = true_waits(truth, results["call_waits"].table)
    assert waits["wait_ns"].notna().all()
    assert ((waits["wait_ns"] - waits["true_wait_ns"]).abs() < 10_000).all()
