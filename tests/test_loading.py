"""The library: load, analyse, and the real captures' figures."""

import subprocess
import sys

import pandas as pd
import pytest

import traceanalyzer as ta
from tests.builders import document, host, kernel, write
from tests.samples import RUNS, SAMPLES, sample
from traceanalyzer.analyses import ANALYSES
from traceanalyzer.loading import notes_of
from traceanalyzer.model import RankMeta


def test_figures_of_ddp():
    # From an independent computation over single events of the same files.
    assert ta.breakdown(sample("ddp")).rows() == [
        {"rank": 0, "window_ns": 200_219_528, "compute_ns": 49_958_284, "exposed_comm_ns": 5_982_479,
         "exposed_copy_ns": 1_414_337, "idle_ns": 142_864_428, "comm_ns": 7_870_409, "overlapped_comm_ns": 1_887_930,
         "overlap_pct": pytest.approx(23.99, abs=0.005)},
        {"rank": 1, "window_ns": 201_249_467, "compute_ns": 56_478_687, "exposed_comm_ns": 137_754_920,
         "exposed_copy_ns": 485_186, "idle_ns": 6_530_674, "comm_ns": 165_262_391, "overlapped_comm_ns": 27_507_471,
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


def test_results_are_tables_in_a_notebook():
    result = ta.breakdown(sample("ddp"))
    assert "<table" in result._repr_html_()
    assert isinstance(result.to_frame(), pd.DataFrame)
    assert "Breakdown" in repr(result)


def test_steps_and_ranks_can_be_chosen():
    traces = ta.load(SAMPLES / "ddp", ranks=[1], steps="2:3")
    (row,) = ta.breakdown(traces).rows()
    assert (row["rank"], row["window_ns"]) == (1, 132_938_723)


def test_two_files_that_claim_one_rank(tmp_path):
    for name in ("a.json", "b.json"):
        write(tmp_path / name, document([kernel(0, 5)], rank=0))
    traces = ta.load(tmp_path)
    assert [trace.meta.files for trace in traces.ranks] == [("a.json",)]
    assert "claims rank 0" in traces.skipped[0].why
    assert traces.notes == ("1 of 2 ranks has no trace here: 1.",)


def test_guessed_numbers_move_on_instead_of_colliding(tmp_path):
    write(tmp_path / "a.json", document([kernel(0, 5), kernel(0, 5, device=1)]))
    write(tmp_path / "b.json", document([kernel(0, 5)]))
    assert [trace.rank for trace in ta.load(tmp_path).ranks] == [0, 1, 2]


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
    for name, rank in zip(names, ranks, strict=True):
        content = document([kernel(0, 5)], rank=rank)
        write(tmp_path / name, dict(reversed(content.items())) if is_after else content)
    traces = ta.load(tmp_path)
    assert any("order of files" in note for note in traces.notes) == is_guessed
    if is_after:
        assert {trace.meta.files[0]: trace.rank for trace in traces.ranks} == {"a.json": 1, "b.json": 0}


def test_captures_of_different_times_are_no_job():
    assert any("do not overlap in time" in note for note in sample("streams").notes)
    assert not any("do not overlap in time" in note for note in sample("ddp").notes)


@pytest.mark.parametrize(
    ("start_s", "world_size", "is_apart"),
    [(0, 2, False), (50, 2, False), (3600, 2, True), (50, None, True), (0, None, False)],
)
def test_captures_of_different_times_are_said_whatever_they_state(start_s, world_size, is_apart):
    metas = {
        rank: RankMeta(rank, "distributedInfo", ("x",), "kineto", world_size=world_size,
                       capture_start_ns=start, capture_end_ns=start + 10**9)
        for rank, start in [(0, 0), (1, start_s * 10**9)]
    }  # fmt: skip
    assert any("do not overlap in time" in note for note in notes_of(metas)) == is_apart


def test_a_damaged_file_leaves_the_others(tmp_path):
    write(tmp_path / "rank0.json", document([kernel(0, 5)], rank=0))
    write(tmp_path / "rank1.json", b'{"traceEvents": [{"ph": "X"')
    traces = ta.load(tmp_path)
    assert [trace.rank for trace in traces.ranks] == [0]
    assert traces.skipped[0].what.endswith("rank1.json")


def test_ranks_that_nobody_asked_for_are_not_missing():
    assert ta.load(SAMPLES / "moe", ranks="1").notes == ()
    assert ta.load(SAMPLES / "moe", ranks="1,5").notes == ("1 of 2 ranks has no trace here: 5.",)


def test_a_vast_world_size_is_no_loop(tmp_path):
    write(tmp_path / "rank0.json", document([kernel(0, 5)], rank=0, world_size=300_000_000))
    (note,) = ta.load(tmp_path).notes
    assert note.startswith("299,999,999 of 300,000,000 ranks have no trace here: 1, 2,")


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
    [({"ranks": "a"}, "--ranks"), ({"ranks": [7]}, "this run has ranks 0, 1"),
        ({"ranks": "0-30000000"}, "ranks go up to"), ({"steps": "x"}, "--steps"),
     ({"kind": ["x"]}, "--kind")],
)  # fmt: skip
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ta.TraceAnalyzerError, match=message):
        ta.load(SAMPLES / "moe", **options)


def test_unknown_analysis():
    with pytest.raises(ta.UsageError, match="breakdown"):
        ta.analyse(sample("moe"), "nonsense")
    with pytest.raises(AttributeError):
        _ = ta.nonsense
    assert set(ANALYSES) <= set(dir(ta))


def test_importing_loads_nothing_heavy():
    code = "import sys, traceanalyzer; print([m for m in ('pandas', 'numpy', 'click', 'jinja2', 'torch') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
