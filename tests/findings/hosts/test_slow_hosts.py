"""What operators tell of a late rank: a host slow at what all do, work of its own."""

from types import SimpleNamespace

import pandas as pd
import pytest

from tests import once
from tests.simulator import workloads
from tests.simulator.analysed import analysed
from tests.simulator.faults import Fault
from tests.simulator.jobs import launches
from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.findings.hosts.slow_hosts import eager_hosts, slow_hosts
from traceanalyzer.findings.late.beside import more_calls, named, of_as_many_steps, own_work, slow_host
from traceanalyzer.findings.late.late_advice import advice
from traceanalyzer.findings.late.late_hosts import Unlike, with_advice


def result(columns, rows):
    return SimpleNamespace(to_frame=lambda: pd.DataFrame(rows, columns=columns))


def operators(*rows):
    """Rows of rank, operator, calls and host time, and of GPU operations, which are as many as calls without."""
    columns = ["rank", "operator", "calls", "host_self_ns", "gpu_ops"]
    return result(columns, [(*row, *row[2:3])[:5] if len(row) == 4 else row for row in rows])


ALIKE = [(0, "mm", 10, 150), (1, "mm", 10, 100), (0, "add", 5, 75), (1, "add", 5, 50)]


@pytest.mark.parametrize(
    ("rows", "times"),
    [
        (ALIKE, 1.5),
        ([(rank, name, calls, ns if rank else ns * 0.75) for rank, name, calls, ns in ALIKE], None),
        ([*ALIKE, (0, "log", 9, 100)], None),
        ([*ALIKE, (0, "log", 9, 20)], 1.5),
        ([*ALIKE, (0, "copy_", 1, 5), (1, "copy_", 1, 900)], 1.5),
        ([*ALIKE, (2, "mm", 10, 400), (2, "add", 5, 10)], 225 / 280),
        (ALIKE[::2], None),
        ([], None),
    ],
    ids=[
        "slower",
        "hardly",
        "does more",
        "does a little more",
        "the other waits",
        "the others' median",
        "no other rank",
        "no operator",
    ],
)
def test_a_host_is_slow_at_the_calls_that_all_make(rows, times):
    found = slow_host(operators(*rows), 0, UNLIKE.slow_times)
    if times is None or times < 1.2:
        assert found is None
        return
    assert found.times == pytest.approx(times)
    assert found.calls in (15, 16)
    assert found.rows["operator"].tolist() == ["mm", "add"], "most beyond the others first"


def test_of_a_few_operators_that_take_longer_each_is_told():
    rows = [(0, "mm", 10, 400), (1, "mm", 10, 100), (0, "add", 5, 60), (1, "add", 5, 50)]
    found = slow_host(operators(*rows), 0, UNLIKE.slow_times)
    assert (found.more_ns, found.most) == (310, {"mm": 300})


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
        "differ as much where nothing is wrong. With this one like rank 1's a mean step is 24.6 ms shorter; record "
        "again to see whether it is late again."
    )


@pytest.mark.parametrize(("what", "is_said"), [("range", True), ("operator", False)])
def test_a_host_that_is_late_in_a_range_of_all_may_be_slow_at_what_all_do_in_it(what, is_said):
    results = {**once.results("ddp")}
    results["episodes"] = Episodes(results["episodes"].table.assign(what=what, name="rollout"))
    names = ("headline", "steps", "idle", "episodes", "operators", "pipeline")
    said = [item.title for item in slow_hosts(*(results[name] for name in names))]
    assert any("takes 1.5 times as long" in title for title in said) == is_said


def test_own_work_is_what_no_other_runs():
    columns = ["rank", "operator", "shapes", "family", "calls", "gpu_ns", "tflops_per_s"]
    rows = [
        (0, "mm", "[[1, 2]]", "gemm", 1, 5, 1.0),
        (0, "mm", "[[3, 4]]", "gemm", 1, 9, 1.0),
        (1, "mm", "[[1, 2]]", "gemm", 1, 5, 1.0),
        (0, "all_reduce", "8 bytes", "communication", 1, 99, None),
    ]
    work = own_work(result(columns, rows), 0, [1])
    assert work["shapes"].tolist() == ["[[3, 4]]"]
    assert named(work.iloc[0]) == "mm of [3, 4]"
    assert named(work.iloc[0].replace("[[3, 4]]", "no list")) == "mm"


UNLIKE = Unlike(slow_times=1.2, busy_times=1.15)

WORK = SimpleNamespace(
    table=pd.DataFrame(
        [(0, "main", "generate", 200), (1, "main", "generate", 100), (0, "main", "save", 50)],
        columns=["rank", "role", "name", "host_ns"],
    )
)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("generate", "Find why generate, which all ranks run, takes rank 0 longer (it makes 2 times as many operator calls as "),
        ("save", "Take save out of the step on rank 0"),
        ("DistributedDataParallel.forward", "Find why rank 0 launches more (most of it mm: "),
    ],
)  # fmt: skip
def test_a_range_that_all_are_in_is_not_to_be_taken_out_of_the_step(name, said):
    row = {"ranks": "0", "cause": "host", "name": name, "what": "range", "same_work_ratio": None, "place": None}
    rows = [(0, "mm", 20, 200), (1, "mm", 10, 100)]
    assert advice(with_advice(row, operators(*rows), WORK, UNLIKE)).startswith(said)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(0, "nms", 10, 900), (1, "nms", 10, 90)], "Find why nms, which all ranks run, takes rank 0 longer."),
        ([(0, "nms", 10, 900, 0), (1, "nms", 9, 90, 9)], "Let the GPU do what rank 0's CPU alone computes (nms)"),
        ([(0, "nms", 10, 900, 0), (1, "mm", 10, 90)], "Let the GPU do what rank 0's CPU alone computes (nms)"),
        ([(0, "nms", 10, 900, 0), (1, "nms", 10, 90, 0)], "Find why nms, which all ranks run, takes rank 0 longer."),
        ([(0, "nms", 10, 900), (1, "nms", 2, 90)], "Take nms out of the step on rank 0"),
    ],
    ids=["all run it", "on the CPU alone", "it alone, on the CPU", "all on the CPU", "more often"],
)
def test_what_to_do_about_an_operator_is_what_other_ranks_do_with_it(rows, said):
    row = {"ranks": "0", "cause": "host", "name": "nms", "what": "operator", "same_work_ratio": None, "place": None}
    assert advice(with_advice(row, operators(*rows), WORK, UNLIKE)).startswith(said)


ALL = [(rank, "mm", 10, 150 if rank < 2 else 100) for rank in range(4)]


LATE = {"cause": "host", "name": None, "same_work_ratio": None, "is_in_every_step": True, "place": None}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (ALL, "Ranks 0 and 1 make the same calls as the others, so look at their CPU"),
        ([(rank, name, 2 * calls if rank < 2 else calls, ns) for rank, name, calls, ns in ALL],
         "Find why ranks 0 and 1 launch more (most of it mm: 20 calls in the capture, the others' 10)"),
        ([(rank, name, 2 * calls if rank < 1 else calls, ns) for rank, name, calls, ns in ALL], "Compare what these hosts"),
        ([(rank, name, calls, 100 if rank else 150) for rank, name, calls, ns in ALL], "Compare what these hosts launch"),
    ],
    ids=["slower", "more", "more on one of them", "slower on one of them"],
)  # fmt: skip
def test_of_several_late_hosts_it_is_said_where_it_holds_for_each(rows, said):
    row = {"ranks": "0,1", **LATE}
    assert advice(with_advice(row, operators(*rows), WORK, UNLIKE)).startswith(said)


def test_who_makes_as_many_calls_is_named_beside_the_rank():
    rows = [(rank, "mm", {0: 200, 1: 199, 2: 100, 3: 90}[rank], 100) for rank in range(4)]
    busy = more_calls(operators(*rows), 0, UNLIKE.busy_times)
    assert (busy.ranks, busy.calls, busy.others_calls) == ((0, 1), 200, 95)
    assert more_calls(operators(*rows[:2]), 0, UNLIKE.busy_times) is None


@pytest.mark.parametrize(("recorded", "kept"), [((3, 3), {0, 1}), ((3, 2), {0}), ((2, 3, 3), {1, 2}), ((0, 0), {0, 1})])
def test_a_rank_of_which_fewer_steps_were_recorded_is_no_measure_of_calls(recorded, kept):
    made = Operators(pd.DataFrame({"rank": range(len(recorded)), "operator": "mm", "calls": 10}))
    steps = pd.DataFrame([(rank, step) for rank, many in enumerate(recorded) for step in range(many)])
    by_step = steps.set_axis(["rank", "step"], axis=1) if len(steps) else steps
    assert {*of_as_many_steps(made, by_step).table["rank"]} == kept


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (ALIKE, "Rank 0 makes the same calls as the others, so look at its CPU"),
        ([(0, "aten::mm", 20, 150), (1, "aten::mm", 10, 75)],
         "Find why rank 0 launches more (most of it aten::mm: 20 calls in the capture, rank 1's 10)"),
        ([(0, "mm", 10, 100), (1, "mm", 10, 100)], "Compare what these hosts launch with the others"),
    ],
    ids=["slower", "more", "alike"],
)  # fmt: skip
def test_what_to_do_about_a_late_host_is_what_its_operators_tell(rows, said):
    row = {"ranks": "0", **LATE}
    assert advice(with_advice(row, operators(*rows), WORK, UNLIKE)).startswith(said)


def test_what_autograd_itself_takes_is_not_to_be_taken_out_of_the_step():
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    row = {
        "ranks": "0",
        "cause": "host",
        "name": node,
        "same_work_ratio": None,
        "is_in_every_step": True,
        "place": None,
    }
    assert "hooks of gradients" in advice(with_advice(row, operators(), WORK, UNLIKE))


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
