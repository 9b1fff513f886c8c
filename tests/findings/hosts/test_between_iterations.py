"""Engines that have nothing to do: whether for want of requests or for scheduling them is not known."""

import pandas as pd
import pytest

from tests.findings.needed import needed_by
from tests.simulator.analysed import analysed
from tests.simulator.jobs import serving
from traceanalyzer.analyses.phases.micro_steps import Iterations
from traceanalyzer.findings.basis import Basis
from traceanalyzer.findings.hosts.idle import short_kernels
from traceanalyzer.findings.hosts.launch_bound import advice_between, host_bound, is_between, launch_bound_iterations

NEEDED = (*needed_by(host_bound), *needed_by(short_kernels))


def told(**options):
    _, results = analysed(serving.in_bursts(**options), *dict.fromkeys(NEEDED))
    return host_bound(**{name: results[name] for name in needed_by(host_bound)})


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_engine_without_requests_is_not_said_to_be_late(ranks):
    (found,) = told(ranks=ranks, iterations=13)
    both = " both GPUs have no work at times:" if ranks == 2 else ""
    assert found.title.startswith(f"In steps 5 and 11{both} rank ")
    assert "a step while no iteration is under way, most of it while its host is in queue.py(154): get (" in found.title
    assert (found.severity, found.gain_ns, found.steps) == ("medium", None, (5, 11))
    assert "vllm:num_requests_waiting)" in found.recommendation
    assert "Shorten" not in found.recommendation


def test_it_is_told_of_a_mean_step_where_every_one_waits():
    (found,) = told(iterations=8, every=1, wait_ns=4_000_000)
    assert found.title.startswith("Both GPUs have no work at times: rank ")
    assert " % of a step, while no iteration is under way, most of that while" in found.title


def test_an_engine_that_marks_no_iterations_is_told_of_its_hosts():
    (found,) = told(iterations=8, every=4, is_marked=False)
    assert "before work that has not been launched yet" in found.title
    assert "CUDA graphs for" not in found.recommendation  # it replays them
    assert "between its CUDA graphs" in found.recommendation


def iterations(between_ns, rank=0, name="step[DECODE bs=4]"):
    rows = {
        "rank": rank,
        "step": [0, 1],
        "name": name,
        "phase": "decode",
        "between_ns": between_ns,
        "blocked_ns": 0,
        "is_complete": True,
    }
    figures = {"window_ns": 1_000, "idle_ns": 400, "operations": 90, "graph_operations": 0,
               "prefills": 0, "prefill_tokens": 0, "decodes": 4, "decode_tokens": 4}  # fmt: skip
    return Iterations(pd.DataFrame(rows | figures))


@pytest.mark.parametrize(
    ("between_ns", "rank", "is_so"), [([240, 240], 0, True), ([200, 200], 0, False), ([400, 400], 1, False)]
)
def test_most_of_the_time_has_to_lie_between_iterations(between_ns, rank, is_so):
    basis = Basis(2, (0, 1), pd.Series({0: 2_000}))
    assert is_between(iterations(between_ns, rank), 0, 400.0, basis) is is_so


def test_without_an_engine_nothing_lies_between():
    assert not is_between(Iterations(pd.DataFrame()), 0, 400.0, Basis(2, (0, 1), pd.Series({0: 2_000})))


@pytest.mark.parametrize(("between_ns", "is_said"), [(239, True), (241, False)])
def test_what_lies_between_iterations_is_no_matter_of_launches(between_ns, is_said):
    assert bool(launch_bound_iterations(iterations(between_ns))) is is_said


def test_each_engine_is_asked_by_its_own_metric():
    assert "(SGLang: sglang:num_queue_reqs)" in advice_between("more", iterations([1, 1]))


@pytest.mark.parametrize(("graph_operations", "is_said"), [(49, True), (50, False)])
def test_kernels_of_graphs_are_not_launched_one_by_one(graph_operations, is_said):
    _, results = analysed(serving.decoded(ranks=1, steps=3), *dict.fromkeys((*needed_by(short_kernels),)))
    launches = results["launches"]
    table = launches.table.assign(operations=100, graph_operations=graph_operations)
    under = table.columns[table.columns.str.contains("under_10us")][0]
    made = type(launches)(table.assign(**{under: table["operations"]}))
    assert bool(short_kernels(**results | {"launches": made})) is is_said
