"""The library: load, analyse, and the real captures' figures."""

import inspect
import json
import pickle
import subprocess
import sys

import pytest

import traceanalyzer as ta
from tests import once
from tests.builders import document, host, kernel, write
from tests.samples import RUNS, SAMPLES, sample
from traceanalyzer.analyses import ANALYSES
from traceanalyzer.cli import run


def test_a_file_without_gpu_work_beside_others_is_named_as_left_out(tmp_path):
    write(tmp_path / "rank0.json", document([kernel(0, 5)], rank=0))
    write(tmp_path / "helper.json", document([host(0, 5, name="aten::mm")], rank=0))
    traces = ta.load(tmp_path)
    assert [(trace.rank, len(trace.gpu_ops)) for trace in traces.ranks] == [(0, 1)]
    assert [item.what for item in traces.skipped] == ["helper.json"]


def test_a_rank_whose_gpu_was_not_recorded_is_named_so(tmp_path):
    write(tmp_path / "rank0.json", document([kernel(0, 5)], rank=0))
    launched = host(2, 1, name="cudaLaunchKernel", cat="cuda_runtime", correlation=1)
    write(tmp_path / "rank1.json", document([host(0, 5, name="aten::mm"), launched], rank=1))
    (left_out,) = ta.load(tmp_path).skipped
    assert left_out.what == "rank1.json"
    assert left_out.why.startswith("rank 1 has API calls but no kernels")


def test_figures_of_ddp():
    # From an independent computation over single events of the same files.
    assert ta.breakdown(sample("ddp")).rows() == [
        {"rank": 0, "window_ns": 200_219_528, "compute_ns": 49_958_284, "fused_ns": 0, "exposed_comm_ns": 5_982_479,
         "exposed_copy_ns": 1_414_337, "opaque_ns": 0, "idle_ns": 142_864_428, "comm_ns": 7_870_409,
         "overlap_pct": pytest.approx(23.99, abs=0.005)},
        {"rank": 1, "window_ns": 201_249_467, "compute_ns": 56_478_687, "fused_ns": 0, "exposed_comm_ns": 137_754_920,
         "exposed_copy_ns": 485_186, "opaque_ns": 0, "idle_ns": 6_530_674, "comm_ns": 165_262_391,
         "overlap_pct": pytest.approx(16.64, abs=0.005)},
    ]  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_parts_add_up_on_every_sample(run):
    for frame in (ta.breakdown(sample(run)).to_frame(), ta.steps(sample(run)).to_frame().dropna(subset="window_ns")):
        parts = frame[["compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"]].sum(axis=1)
        assert parts.tolist() == frame["window_ns"].tolist()


def test_collectives_of_a_pipeline_carry_their_peers_and_bytes():
    frame = ta.nccl(sample("pp")).to_frame()
    known = frame[frame["group"].notna()].set_index(["rank", "collective"])
    assert known.loc[(0, "send_recv"), "size_bytes"] == 10 * 2 * 1_572_864 * 4
    assert set(known.loc[0].index) == {"send_recv", "send", "recv"}


def test_uneven_all_to_all_is_told():
    frame = ta.calls(sample("moe")).to_frame()
    exchanges = frame[frame["collective"] == "all_to_all"]
    assert exchanges["arguments"].value_counts().to_dict() == {"kernel": 2 * 36, "inferred": 7 + 11}
    assert exchanges["is_uneven"].all()


def test_findings_are_those_of_the_report(tmp_path):
    assert run([str(SAMPLES / "moe"), "--format", "json", "--output", str(tmp_path), "--quiet"]) == 0
    reported = json.loads((tmp_path / "summary.json").read_text())["findings"]
    found = ta.find(sample("moe"))
    assert [(item.headline, item.caveat) for item in found] == [
        (item["headline"], item["caveat"] or "") for item in reported
    ]
    assert found


def test_steps_and_ranks_can_be_chosen():
    traces = ta.load(SAMPLES / "ddp", ranks=[1], steps="2:3")
    (row,) = ta.breakdown(traces).rows()
    assert (row["rank"], row["window_ns"]) == (1, 132_941_475)


def test_two_files_that_claim_one_rank(tmp_path):
    for name, lasts in (("a.json", 5), ("b.json", 6)):
        write(tmp_path / name, document([kernel(0, lasts)], rank=0))
    traces = ta.load(tmp_path)
    assert [trace.meta.files for trace in traces.ranks] == [("a.json",)]
    assert "claims rank 0, which another file of this run has already (a.json)" in traces.skipped[0].why
    assert traces.notes == ("1 of 2 ranks has no trace here: 1.",)


@pytest.mark.parametrize(
    ("names", "ranks", "is_after", "is_guessed"),
    [
        (["b.json", "a.json"], [None, None], False, True),
        (["b.json", "a.json"], [0, 1], False, False),
        (["b.json", "a.json"], [0, 1], True, False),
        (["rank1.json", "rank0.json"], [None, None], False, False),
        (["a.json"], [None], False, False),
    ],
    ids=["nothing says", "head says", "tail says", "path says", "one file"],
)
def test_numbers_by_file_order_are_said(tmp_path, names, ranks, is_after, is_guessed):
    for place, (name, rank) in enumerate(zip(names, ranks, strict=True)):
        content = document([kernel(place, 5)], rank=rank)
        write(tmp_path / name, dict(reversed(content.items())) if is_after else content)
    traces = ta.load(tmp_path)
    assert any("order of files" in note for note in traces.notes) == is_guessed
    if is_after:
        assert {trace.meta.files[0]: trace.rank for trace in traces.ranks} == {"a.json": 1, "b.json": 0}


def test_a_damaged_file_leaves_the_others(tmp_path):
    write(tmp_path / "rank0.json", document([kernel(0, 5)], rank=0))
    write(tmp_path / "rank1.json", b'{"traceEvents": [{"ph": "X"')
    traces = ta.load(tmp_path)
    assert [trace.rank for trace in traces.ranks] == [0]
    assert traces.skipped[0].what.endswith("rank1.json")


def test_a_rank_without_the_steps_asked_for_leaves_the_others(tmp_path):
    for rank, name in enumerate(("ProfilerStep#3", "warmup")):
        events = [host(0, 9, name=name, cat="user_annotation"), host(1, 1, name="cudaLaunchKernel", cat="cuda_runtime", correlation=5),
                  kernel(10, 5, correlation=5)]  # fmt: skip
        write(tmp_path / f"rank{rank}.json", document(events, rank=rank))
    traces = ta.load(tmp_path, steps="3")
    assert [trace.rank for trace in traces.ranks] == [0]
    assert (traces.skipped[0].what, "no such step" in traces.skipped[0].why) == ("rank 1", True)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"ranks": "a"}, "--ranks"), ({"ranks": [7]}, "this run has ranks 0 and 1"),
        ({"ranks": "0-30000000"}, "--ranks .* numbers go up to"), ({"steps": "x"}, "--steps"),
     ({"kind": ["x"]}, "--kernel-kind"), ({"ranks": 1.5}, "--ranks"), ({"steps": None}, "--steps")],
)  # fmt: skip
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ta.TraceAnalyzerError, match=message):
        ta.load(SAMPLES / "moe", **options)


@pytest.mark.parametrize(
    ("source", "message"),
    [([], "this list is empty"), (None, "a list of traces: not None"), (["a.json", 3], "not 3"), (b"x", "not b'x'")],
)
def test_what_is_no_source(source, message):
    with pytest.raises(ta.UsageError, match=message):
        ta.load(source)


def test_one_number_or_rule_needs_no_list():
    traces = ta.load(SAMPLES / "moe", ranks=1, steps=2, kind="compute=nccl")
    ((rank, window),) = ((trace.rank, trace.window) for trace in traces.ranks)
    assert (rank, window.steps) == (1, (2,))
    assert ta.load(SAMPLES / "moe", ranks=1, steps=[1, 2]).ranks[0].window.steps == (1, 2)
    assert ta.breakdown(traces).rows()[0]["comm_ns"] == 0


@pytest.mark.parametrize("name", ANALYSES)
def test_an_analysis_is_a_function_that_says_what_it_gives(name):
    function = getattr(ta, name)
    result = once.results("moe")[name]
    assert (function.__name__, pickle.loads(pickle.dumps(function))) == (name, function)
    assert function.__doc__.startswith(type(result).meaning())
    assert all(f"    {column}: " in function.__doc__ for column in result.columns)
    assert inspect.signature(function).return_annotation is type(result)


def test_thresholds_are_named_checked_and_passed_on():
    assert inspect.signature(ta.gaps).parameters["idle_short_ns"].default == 5000
    assert "idle_short_ns: 5000" in ta.gaps.__doc__
    assert len(ta.gaps(sample("ddp"), idle_short_ns=100_000)) < len(ta.gaps(sample("ddp")))
    with pytest.raises(ta.UsageError, match="'nosuch'; did you mean idle_short_ns, idle_launch_ns"):
        ta.gaps(sample("moe"), nosuch=3)
    with pytest.raises(ta.UsageError, match="breakdown takes none"):
        ta.breakdown(sample("moe"), nosuch=3)


def test_a_path_is_not_traces():
    with pytest.raises(ta.UsageError, match="not traces in memory: 'profile/ddp'; read them first"):
        ta.breakdown("profile/ddp")


def test_importing_loads_nothing_heavy():
    code = "import sys, traceanalyzer; print([m for m in ('pandas', 'numpy', 'click', 'jinja2', 'torch') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
