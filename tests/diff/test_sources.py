import dataclasses
import json

import pandas as pd
import pytest

import traceanalyzer as ta
from tests.builders import document, host, kernel, write
from tests.samples import SAMPLES
from traceanalyzer.diff import compare
from traceanalyzer.diff.sources import BASELINES, SourceOptions, read_side, read_sides, save_baseline
from traceanalyzer.errors import InputError

OPTIONS = SourceOptions()


def trace(folder, rank=0, *, steps=3, partial=(), size=1, at=0, length=10):
    """A rank whose steps launch one kernel each; `partial` steps launch one that is lost."""
    events = []
    for number in range(steps):
        start = 100 * number
        events += [
            host(start, 99, name=f"ProfilerStep#{number}", cat="user_annotation"),
            host(start + 1, 1, name="cudaLaunchKernel", cat="cuda_runtime", correlation=number + 1),
            kernel(start + 5, length, correlation=number + 1),
        ]
        if number in partial:
            events.append(host(start + 3, 1, name="cudaLaunchKernel", cat="cuda_runtime", correlation=900 + number))
    write(folder / f"rank{rank}.json", document(events, rank=rank, world_size=size, base_ns=10**18 + at))
    return folder


def test_steps_are_those_that_every_rank_completed(tmp_path):
    trace(tmp_path, 0, steps=5, partial=[1], size=2)
    trace(tmp_path, 1, steps=5, size=2)
    (capture,) = read_side(str(tmp_path), OPTIONS).captures
    assert capture.steps == (0, 3, 4)
    assert capture.is_exact
    assert capture.tables["kernels"]["calls"].tolist() == [3, 3]  # not rank 1's step 1


def test_repeats_by_plus_and_by_all_runs(tmp_path):
    for number in range(2):
        trace(tmp_path / "runs" / str(number), at=number * 10**12, length=10 + number)
    parts = "+".join(str(tmp_path / "runs" / str(number)) for number in range(2))
    side = read_side(f"ours={parts}", OPTIONS)
    assert (side.label, len(side.captures)) == ("ours", 2)
    everything = read_side(str(tmp_path / "runs"), dataclasses.replace(OPTIONS, all_runs=True))
    assert len(everything.captures) == 2
    assert len(read_side(str(tmp_path / "runs"), OPTIONS).captures) == 1


def test_traces_in_memory_are_in_no_folder(monkeypatch):
    monkeypatch.chdir(SAMPLES)
    traces = ta.load("ddp")
    assert [side.label for side in read_sides([[traces], "ddp"], OPTIONS)] == ["ddp", "ddp (2)"]


def test_a_baseline_is_the_run_that_was_saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    side = read_side(str(SAMPLES / "ddp"), OPTIONS)
    assert save_baseline("main", side) == BASELINES / "main.json"
    saved = read_side("baseline:main", OPTIONS)
    assert (saved.label, saved.first.source) == ("main", "baseline")
    made = compare([saved, side])
    assert made.is_empty
    assert {table.analysis for table in made.tables["ddp"]} >= {"nccl", "kernels", "kernel_operations"}


def test_a_summary_gives_figures_but_no_tables_of_its_whole_capture(tmp_path, monkeypatch):
    from traceanalyzer.cli import run

    monkeypatch.chdir(tmp_path)
    for name, more in (("whole", []), ("steps", ["--steps", "2:4"])):
        assert run([str(SAMPLES / "ddp"), "--output", name, "--format", "json", "-q", *more]) == 0
    traces = read_side(str(SAMPLES / "ddp"), OPTIONS)
    whole, steps = (read_side(f"{name}={name}/summary.json", OPTIONS) for name in ("whole", "steps"))
    assert [whole.first.is_exact, steps.first.is_exact] == [False, True]
    assert "is of a whole capture" in whole.first.notes[-1]
    made = compare([traces, whole, steps])
    assert made.tables["whole"] == []
    step_ns = made.metrics[made.metrics["metric"] == "step_ns"]
    assert step_ns["change"].tolist() == [0, 0, 0]
    assert set(made.tables["steps"][0].frame["status"]) == {"SAME"}
    calls = made.metrics[made.metrics["metric"] == "comm_calls"].set_index("run")["value"]
    assert pd.isna(calls["whole"])
    assert calls["steps"] == calls["ddp"] == 14


def test_run_json_beside_traces_is_read_and_a_bad_one_is_a_note(tmp_path):
    trace(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"strategy": "ddp", "batch": {"tokens_per_step": 64}, "new": 1}))
    capture = read_side(str(tmp_path), OPTIONS).first
    assert (capture.info.strategy, capture.info.tokens_per_step, capture.notes) == ("ddp", 64, ())
    (tmp_path / "run.json").write_text("{")
    capture = read_side(str(tmp_path), OPTIONS).first
    assert capture.info is None
    assert "not a run.json that can be used" in capture.notes[0]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "no such folder"),
        ("baseline:none", "no such baseline; there are none"),
        ("x=nowhere", "no such folder"),
    ],
)
def test_sources_that_are_not_there(tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        read_side(source, OPTIONS)


@pytest.mark.parametrize("content", ["{}", "[]", '{"captures": [{}]}', '{"captures": [{"format": "traceanalyzer-capture", "format_version": 99}]}'])  # fmt: skip
def test_a_baseline_that_is_none(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    BASELINES.mkdir(parents=True)
    (BASELINES / "bad.json").write_text(content)
    with pytest.raises(InputError, match="make it again"):
        read_side("baseline:bad", OPTIONS)


@pytest.mark.parametrize(
    ("table", "row", "said"),
    [
        ("breakdown", {"rank": "é"}, r"breakdown: .*`int.*, got `str` - at `\$\[0\].rank`"),
        ("breakdown", {"rank": 0.5}, "got `float`"),
        ("breakdown", {"rank": 0, "idle_ns": 1e30}, "Expected `float` < 9.2"),
        ("breakdown", {}, "names no rank"),
        ("kernels", {"rank": 0, "name": 1}, "got `int`"),
    ],
)
def test_figures_and_texts_that_no_table_holds_are_refused(tmp_path, table, row, said):
    content = {"format_version": 1, "label": "x", "results": {table: [row]}}
    (tmp_path / "s.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=said):
        read_side(str(tmp_path / "s.json"), OPTIONS)
