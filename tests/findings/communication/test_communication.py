"""What is said of communication."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from tests import once
from tests.findings.needed import needed_by
from tests.simulator import Capture, Group, Program, scenarios
from tests.simulator.analysed import analysed
from tests.simulator.jobs import data_parallel, gradients, other_libraries, reinforced, tensor_parallel
from tests.simulator.program import COMPUTE_STREAM
from tests.simulator.workloads import job_of, layer_of, optimizer
from traceanalyzer.analyses import ANALYSES
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.communication.call_waits import CallWaits
from traceanalyzer.analyses.communication.collectives import Collectives
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.findings.capture.unmatched import PARTNERS
from traceanalyzer.findings.communication.bandwidth import few_channels, low_bandwidth
from traceanalyzer.findings.communication.communication import little_overlap, many_small_collectives
from traceanalyzer.findings.communication.exposed_collective import (
    EXPOSED,
    _advice,
    _how_often,
    exposed_collective,
)
from traceanalyzer.findings.communication.own_kernels import is_of_own_kernels
from traceanalyzer.findings.tools import TORCH, XLA
from traceanalyzer.meaning.quantities import time_text

MS = 1_000_000


def of_sample(name, *names):
    assert set(names) <= set(ANALYSES)
    return once.results(name, names)


def test_little_overlap_is_told_where_data_moves():
    names = needed_by(little_overlap)
    assert little_overlap(**of_sample("ddp", *names)) == []
    _, results = analysed(scenarios.hsdp(), *names)
    assert little_overlap(**results) == []


def hidden_behind(host_ns, moved_ns=2 * MS, *, steps=4, has_steps=True):
    """What is said of a job that reduces after its compute, and whose hosts need so long before they launch it."""
    world = Group("0", (0, 1))

    def step(program: Program, _number: int) -> None:
        program.host(host_ns)
        made = program.kernel("gemm", 2 * MS)
        sent = program.collective("all_reduce", world, 10_000_000, moved_ns, after=(made,))
        program.kernel("adam", MS, after=(sent,))

    job = job_of(2, steps, step, (world,), jitter=0, ends_synced=not host_ns, has_steps=has_steps)
    _, results = analysed(job, *needed_by(little_overlap))
    return little_overlap(**results)


def test_overlap_is_worth_what_the_replay_says():
    (found,) = hidden_behind(0)  # three of five milliseconds compute
    assert found.gain_ns == pytest.approx(2 * MS, rel=0.1)
    assert f"With all of it hidden a mean step is at most {time_text(found.gain_ns)} shorter" in found.title
    assert "while no compute runs, most of it in all-reduces (0 % of communication is hidden)" in found.title


def test_of_two_collectives_alike_none_is_most_of_what_is_not_hidden():
    world = Group("0", (0, 1))

    def step(program: Program, _number: int) -> None:
        made = program.kernel("gemm", 2 * MS)
        for collective in ("all_reduce", "all_to_all"):
            made = program.collective(collective, world, 10_000_000, MS, after=(made,))

    _, results = analysed(job_of(2, 4, step, (world,), jitter=0), *needed_by(little_overlap))
    (found,) = little_overlap(**results)
    assert "while no compute runs (0 % of communication" in found.title


def test_what_horovod_exchanges_is_hidden_by_its_settings():
    names = needed_by(little_overlap)
    _, results = analysed(other_libraries.horovod(2, 3), *names, how=Capture(arguments="none"))
    (found,) = little_overlap(**results)
    assert "HOROVOD_FUSION_THRESHOLD" in found.recommendation


def test_slow_links_that_would_gain_most_of_it_take_it_in():
    (fast,), (slow,) = hidden_behind(0, moved_ns=MS // 4), hidden_behind(0)  # 20 MB at 80 and 10 GB/s of 450
    assert (fast.part_of, slow.part_of) == (None, "rate of links")


def test_of_a_capture_without_steps_it_is_of_the_capture():
    (found,) = hidden_behind(0, has_steps=False)
    assert re.search(r"of a [\d.]+ ms capture while .* hidden the capture is at most .* ms shorter", found.title)


def test_a_step_is_as_long_as_what_it_moves():
    (found,) = hidden_behind(0, moved_ns=9 * MS)
    assert found.gain_ns == pytest.approx(3 * MS, rel=0.1)  # of 12, 9 of which move data


def test_overlap_that_hosts_hide_is_worth_what_it_gains_without_them():
    (found,) = hidden_behind(20 * MS)
    assert (found.gain_ns, found.severity) == (0, "low")
    assert found.title.endswith(
        "a mean step is no shorter. Hosts decide a step's length: if they took no time, hiding it would make one of "
        "5.00 ms at most 2.00 ms shorter."
    )
    assert found.recommendation.startswith("Once hosts launch sooner, start ")
    assert hidden_behind(20 * MS, moved_ns=MS // 2) == [], "2 % of a step"
    (of_capture,) = hidden_behind(32 * MS, steps=8, has_steps=False)
    assert "Hosts decide the capture's length: if they took no time, hiding it would make its " in of_capture.title


def test_waits_are_not_low_bandwidth():
    assert low_bandwidth(**of_sample("ddp", "collectives", "calls", "replay", "places", "episodes", "call_waits")) == []


def test_slow_links_are():
    # 18 MB in 150 µs are 120 GB/s of an H200's 450.
    _, results = analysed(
        scenarios.ddp(2, elements=9_000_000), "collectives", "calls", "replay", "places", "episodes", "call_waits"
    )
    (found,) = low_bandwidth(**results)
    assert found.title.startswith("Large all-reduces, data parallel (ranks 0, 1), reach ")
    assert found.severity == "low"
    assert "shorter" not in found.title, "compute hides them"


def test_what_links_of_healthy_speed_would_win_is_replayed():
    world = Group("0", (0, 1))

    def step(program: Program, _number: int) -> None:
        made = program.kernel("gemm", 2 * MS)
        sent = program.collective("all_reduce", world, 10_000_000, 2 * MS, after=(made,))
        program.kernel("adam", MS, after=(sent,))

    _, results = analysed(
        job_of(2, 4, step, (world,), jitter=0), "collectives", "calls", "replay", "places", "episodes", "call_waits"
    )
    (found,) = low_bandwidth(**results)
    # 20 MB at 40 % of 450 GB/s take 0.11 ms.
    assert found.gain_ns == pytest.approx(1.89 * MS, rel=0.03)
    assert found.severity == "high"
    assert found.title.endswith(
        f"At 180 GB/s, which healthy jobs reach, a mean step is {found.gain_ns / MS:.3g} ms shorter."
    )


def test_collectives_that_are_slow_are_one_finding_with_the_gain_of_all():
    world = Group("0", (0, 1))

    def step(program: Program, _number: int) -> None:
        made = program.kernel("gemm", 2 * MS)
        for name, moved_ns in (("all_gather", MS), ("all_reduce", 2 * MS)):
            made = program.collective(name, world, 10_000_000, moved_ns, after=(made,))
        program.kernel("adam", MS, after=(made,))

    job = job_of(2, 4, step, (world,), jitter=0)
    (found,) = low_bandwidth(**analysed(job, *needed_by(low_bandwidth))[1])
    # 20 MB at 180 GB/s take 0.11 ms in the all-reduce; of the all-gather half of them are moved.
    assert found.gain_ns == pytest.approx((2 - 0.11 + 1 - 0.06) * MS, rel=0.03)
    assert re.fullmatch(
        r"Large all-reduces, group of 2 ranks \(0, 1\), reach 10 GB/s, 2 % of the links' 450 GB/s; "
        r"all-gathers, group of 2 ranks \(0, 1\), reach 10 GB/s, 2 % of the links' 450 GB/s\. At 180 GB/s, which "
        r"healthy jobs reach, with all of them a mean step is 2\.\d+ ms shorter\.",
        found.title,
    )
    assert {row["collective"] for row in found.evidence} == {"all_gather", "all_reduce"}
    (exposed,) = exposed_collective(**analysed(job, *needed_by(exposed_collective))[1])
    assert exposed.part_of == found.about


def test_groups_that_are_slow_alike_are_one_finding():
    _, results = analysed(
        scenarios.ddp(2, elements=9_000_000), "collectives", "calls", "replay", "places", "episodes", "call_waits"
    )
    table = results["collectives"].table.astype({"group": "object", "group_ranks": "object"})
    slower = table.assign(
        group="b", group_ranks="2,3", group_label="data parallel (ranks 2, 3)", transfer_ns=table["transfer_ns"] * 2
    )
    (found,) = low_bandwidth(
        Collectives(pd.concat([table, slower])),
        results["calls"],
        results["replay"],
        results["places"],
        results["episodes"],
        results["call_waits"],
    )
    assert "all-reduces of 2 groups, slowest data parallel (ranks 2, 3), reach " in found.title
    assert {row["group"] for row in found.evidence} == {"0", "b"}


@pytest.mark.parametrize(
    ("times", "differ", "said"),
    [(2, 1, "Ranks 10 and 11 (host b05) reach 60 GB/s, the others 119"), (1.05, 1, ""), (2, 16, "")],
    ids=["slower", "hardly slower", "no slower than calls differ"],
)
def test_ranks_whose_links_are_slower_than_the_others_are_named_as_the_host_that_they_are(times, differ, said):
    _, results = analysed(
        scenarios.ddp(2, elements=9_000_000), "collectives", "calls", "replay", "episodes", "call_waits"
    )
    table = results["collectives"].table.astype({"group": "object", "group_ranks": "object"})
    hosts = [(2 * host, 2 * host + 1) for host in range(8)]
    groups = [
        table.assign(
            group=f"{low}", group_ranks=f"{low},{high}", group_label=f"data parallel (ranks {low}, {high})",
            transfer_ns=(table["transfer_ns"] * (times if low == 10 else 1)).astype("Int64"),
        )
        for low, high in hosts
    ]  # fmt: skip
    rows = [(number, "host", f"host b0{number}", f"{low},{high}", 2) for number, (low, high) in enumerate(hosts)]
    places = Places(pd.DataFrame(rows, columns=list(Places.columns)))
    calls = results["call_waits"].table
    calls = calls.assign(
        transfer_ns=calls["transfer_ns"].where(calls["instance"] % 2 == 0, calls["transfer_ns"] * differ)
    )
    (found,) = low_bandwidth(
        Collectives(pd.concat(groups)),
        results["calls"],
        results["replay"],
        places,
        results["episodes"],
        CallWaits(calls),
    )
    assert ("look at their links first." in found.title) == bool(said)
    assert said in found.title


_OF_SMALL = tuple(needed_by(many_small_collectives))


def test_small_collectives_that_a_step_waits_for_are_told_however_few():
    """48 of 8 elements stand in the way; of the 24 larger ones none is told."""
    _, results = analysed(tensor_parallel.many_scales(), *_OF_SMALL)
    (found,) = many_small_collectives(**results)
    assert "runs 48 all-reduces of at most 1 MiB a step" in found.title
    assert found.gain_ns == pytest.approx(48 * 16_000, rel=0.15)  # and what their ends differ by


def test_small_collectives_of_decoding_are_no_gradients_to_be_joined_in_a_job_that_trains_too():
    _, results = analysed(reinforced.colocated(replicas=1, steps=2), *_OF_SMALL)
    (found,) = many_small_collectives(**results)
    assert "runs 48 all-reduces" in found.title
    assert "buckets" not in found.recommendation
    assert "fewer ranks in tensor parallelism" in found.recommendation


@pytest.mark.parametrize(
    ("phases", "is_joined"),
    [
        (["backward", "backward", "backward", "forward"], True),
        (["optimizer"], True),
        (["backward", "forward", "forward", "forward"], False),
        (["unattributed"], True),  # no call is known to be of gradients
    ],
)
def test_what_to_do_about_small_collectives_is_told_by_the_pass_that_calls_them(phases, is_joined):
    _, results = analysed(tensor_parallel.many_scales(), *_OF_SMALL)
    phase_of = results["call_phases"].table
    told = phase_of.assign(phase=[phases[place % len(phases)] for place in range(len(phase_of))])
    (found,) = many_small_collectives(**results | {"call_phases": replace(results["call_phases"], table=told)})
    assert found.recommendation.startswith("Put them into buckets") is is_joined


@pytest.mark.parametrize(
    "made",
    [{"elements": 1_000}, {"elements": 4_000_000}],
    ids=["beside compute", "large"],
)
def test_collectives_that_gain_nothing_or_are_large_are_no_news_however_many(made):
    _, results = analysed(scenarios.ddp(2, buckets=60, **made), *_OF_SMALL)
    assert many_small_collectives(**results) == []


@pytest.mark.parametrize(("layers", "is_said"), [(30, True), pytest.param(1, False, marks=pytest.mark.thorough)])
def test_the_collective_that_nothing_runs_beside_is_named(layers, is_said):
    _, results = analysed(
        gradients.serial(steps=4, layers=layers),
        *needed_by(exposed_collective),
    )
    found = exposed_collective(**results)
    assert len(found) == is_said
    for item in found:
        assert item.title.startswith(f"All-reduces ({layers} a step) run while nothing computes for ")
        assert item.gain_ns == pytest.approx(layers * 150_000, rel=0.1)


@pytest.mark.parametrize(("compute_ns", "is_said"), [(0, False), (200_000, False), (900_000, True)])
def test_a_benchmark_of_collectives_has_nothing_to_hide_them_behind(compute_ns, is_said):
    world = Group("0", (0, 1))

    def step(program: Program, _number: int) -> None:
        if compute_ns:
            layer_of(program, "aten::mm", "gemm", compute_ns, 9_000)
        for _ in range(10):
            program.collective("all_reduce", world, 64_000_000, 900_000, stream=COMPUTE_STREAM)

    _, results = analysed(job_of(2, 4, step, (world,), jitter=0), *needed_by(exposed_collective))
    assert bool(exposed_collective(**results)) is is_said


@pytest.mark.parametrize(
    ("phase", "dtypes", "expected"),
    [
        ("backward", ["float32", "float32"], "FSDP). Or reduce in 16 bits."),
        ("backward", ["bfloat16", "float32"], "FSDP)."),  # the small one is a loss
        ("backward", [None, None], "FSDP)."),
        ("forward", ["float32", "float32"], "in the group."),
    ],
)
def test_only_gradients_that_are_wide_are_to_be_reduced_in_bfloat16(phase, dtypes, expected):
    calls = pd.DataFrame({"dtype": dtypes, "size_bytes": [1 << 20, 4]})
    assert _advice("all_reduce", phase, calls, TORCH).endswith(expected)
    assert "latency_hiding" in _advice("all_reduce", phase, calls, XLA)
    assert _advice("all_to_all", phase, calls, TORCH).startswith("Exchange one half")


_UB = "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<4>(int, int)"
_NCCL = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize(
    ("names", "collective", "is_own"),
    [
        ([_UB, _NCCL], "reduce_scatter", True),
        ([_NCCL, _UB], "reduce_scatter", False),
        ([_UB], "all_reduce", False),
        ([], "all_reduce", False),
    ],
)
def test_kernels_that_are_no_library_s_of_collectives_are_told_by_their_time(names, collective, is_own):
    table = pd.DataFrame({"name": names, "total_ns": range(len(names), 0, -1)})
    assert is_of_own_kernels(Kernels(table), collective) is is_own
    advice = _advice(collective, None, pd.DataFrame({"dtype": [], "size_bytes": []}), TORCH, is_own=is_own)
    assert ("async_op" in advice) is not is_own


@pytest.mark.parametrize(
    ("names", "is_own"),
    [([_UB, _NCCL], True), ([_NCCL, _UB], False), (["gemm", _NCCL, _UB], False), ([], False)],
)
def test_of_all_communication_too(names, is_own):
    table = pd.DataFrame({"name": names, "total_ns": range(len(names), 0, -1)})
    assert is_of_own_kernels(Kernels(table)) is is_own


@pytest.mark.parametrize("kernel", ["", "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<2>(int, void**)"])
def test_products_in_parts_are_advised_to_be_cut_not_to_have_buckets(kernel):
    world = Group("0", (0, 1), "tp")

    def step(program: Program, _number: int) -> None:
        for _ in range(4):
            made = layer_of(program, "te_general_gemm", "gemm", 300_000, 9_000)
            program.collective("reduce_scatter", world, 8_000_000, 120_000, after=(made,), stream=COMPUTE_STREAM,
                               kernel=kernel)  # fmt: skip
        optimizer(program, ())

    _, results = analysed(job_of(2, 4, step, (world,), jitter=0), *needed_by(little_overlap))
    (found,) = little_overlap(**results)
    assert ("bucketed gradients" in found.recommendation) is not kernel.startswith("void")


def test_how_often_is_left_out_where_no_step_launched_any():
    assert _how_often(pd.DataFrame({"rank": []}), 3, "a step") == ""
    assert _how_often(pd.DataFrame({"rank": [0, 0, 0, 1]}), 2, "a step") == " (1.5 a step)"


def test_steps_that_alone_hold_a_collective_are_named():
    """Parameters that are averaged in every third step only."""
    _, results = analysed(
        data_parallel.averaging(),
        *needed_by(exposed_collective),
    )
    (found,) = exposed_collective(**results)
    assert found.steps == (2, 5)
    assert "of each of steps 2 and 5, and hardly in others" in found.title
    assert found.is_of_ideal


def test_a_collective_that_is_quick_in_other_steps_is_a_fault_and_no_ideal():
    world = Group("0", (0, 1))

    def step(program: Program, number: int) -> None:
        made = program.kernel("gemm", 2 * MS)
        sent = program.collective("all_reduce", world, 1_000_000, (20 if number == 2 else 1) * MS, after=(made,))
        program.kernel("adam", MS, after=(sent,))

    names = needed_by(exposed_collective)
    (found,) = exposed_collective(**analysed(job_of(2, 6, step, (world,)), *names)[1])
    assert (found.steps, found.is_of_ideal) == ((2,), False)


@pytest.mark.parametrize(
    ("elements", "part_of"),
    [(9_000_000, "rate of links"), pytest.param(300_000_000, "exposed communication", marks=pytest.mark.thorough)],
)
def test_a_slow_collective_that_nothing_runs_beside_is_one_cause(elements, part_of):
    """Of 18 and of 600 MB, in 2 ms: links carry 0.45 MB a µs."""
    world = Group("0", (0, 1))

    def step(program: Program, _number: int) -> None:
        made = program.kernel("gemm", 2 * MS)
        sent = program.collective("all_reduce", world, elements, 2 * MS, after=(made,))
        program.kernel("adam", MS, after=(sent,))

    names = needed_by(exposed_collective)
    (found,) = exposed_collective(**analysed(job_of(2, 3, step, (world,)), *names)[1])
    assert found.part_of == part_of


@pytest.mark.parametrize(("grids", "expected"), [(["1x1x1"], 1), (["1x1x1", "24x1x1"], None), ([None], None)])
def test_few_channels_are_told_by_the_grid(grids, expected):
    calls = pd.DataFrame({"collective": "all_reduce", "group": "0", "grid": grids})
    assert few_channels(SimpleNamespace(table=calls), "all_reduce", "0") == expected
    assert few_channels(SimpleNamespace(table=calls), "all_reduce", "1") is None


def test_small_collectives_of_few_steps_are_counted_there_and_timed_in_a_mean_step():
    def step(program: Program, number: int) -> None:
        program.kernel("gemm", MS)
        for _ in range(60 if number % 3 == 2 else 0):
            program.collective("all_reduce", world, 1000, 50_000)

    world = Group("0", (0, 1))
    _, results = analysed(job_of(2, 7, step, (world,), jitter=0), *_OF_SMALL)
    (found,) = many_small_collectives(**results)
    assert "runs 60 all-reduces of at most 1 MiB in each of " in found.title
    assert " of a mean step. If small collectives" in found.title
    assert found.gain_ns < 60 * 50_000 / 2


@pytest.mark.parametrize(("missing", "part_of"), [((), EXPOSED), ((1,), PARTNERS)])
def test_what_may_be_a_wait_for_ranks_that_are_not_here_is_part_of_what_is_said_of_these(missing, part_of):
    names = needed_by(exposed_collective)
    _, results = analysed(gradients.serial(ranks=2, steps=3), *names, how=Capture(missing=missing))
    (found,) = exposed_collective(**results)
    assert found.part_of == part_of
