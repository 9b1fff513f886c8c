"""The step without the profiler, from what frameworks log beside traces."""

import json

import pytest

from traceanalyzer.errors import UsageError
from traceanalyzer.job.run_info import KEY, known_step, logged_memory, logged_step

MS = 1_000_000
LINE = (
    "[rank{rank}]:[titan] 2026-11-27 14:10:{s:02},{ms:03} - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss: 1.0\n"
)


def of_titan(step_ms, rank=0, steps=6):
    moments = [1000 + step_ms * step for step in range(steps)]
    return "".join(LINE.format(rank=rank, s=at // 1000, ms=at % 1000, step=step) for step, at in enumerate(moments))


def test_lines_of_torchtitan_above_its_folder_of_captures(tmp_path):
    capture = tmp_path / "profile_traces" / "iteration_5"
    capture.mkdir(parents=True)
    slow = LINE.format(rank=0, s=9, ms=0, step=6)
    (tmp_path / "log.txt").write_text(of_titan(159) + of_titan(400, rank=1) + slow, encoding="utf-8")
    assert round(logged_step(capture).ns / MS) == 159
    assert known_step({}, capture)[1] == ("Step without the profiler: 159 ms, from log.txt.",)


def test_memory_of_torchtitans_lines(tmp_path):
    line = LINE.format(rank=1, s=1, ms=0, step=1)
    lines = "".join(
        line.replace("loss: 1.0", f"loss: 1.0  grad_norm: 2.0  memory: {gib}GiB(60.50%)  tps: 7")
        for gib in (63.04, 84.59, 2.1)
    )
    capture = tmp_path / "profile_traces" / "iteration_5"
    capture.mkdir(parents=True)
    (tmp_path / "log.txt").write_text(lines, encoding="utf-8")
    assert logged_memory(capture) == {"run_memory": {1: {"peak_reserved_bytes": round(84.59 * 2**30)}}}
    assert logged_memory(tmp_path / "profile_traces") == {}


def test_torchtitans_structured_log(tmp_path):
    (tmp_path / "structured_logs").mkdir()
    records = [{"log_type_name": f"step_{end}", "step": step, "time_us": 50_000 * step} for step in range(1, 6)
               for end in ("start", "end")]  # fmt: skip
    text = "\n".join(map(json.dumps, records)) + '\n{"log_type_name": "step_start", "st'
    (tmp_path / "structured_logs" / "rank0.jsonl").write_text(text, encoding="utf-8")
    assert logged_step(tmp_path).ns == 50 * MS


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trainer_state.json", {"log_history": [{"step": 3}, {"step": 60, "train_runtime": 6.0}]}),
        ("all_results.json", {"train_runtime": 6.0, "train_steps_per_second": 10}),
    ],
)
def test_files_of_hugging_faces_trainer(tmp_path, name, content):
    (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    assert logged_step(tmp_path).ns == 100 * MS


def test_what_the_user_gives_comes_before_run_json_and_logs(tmp_path):
    (tmp_path / "all_results.json").write_text('{"train_runtime": 6.0, "train_steps_per_second": 10}', encoding="utf-8")
    assert known_step({KEY: 5}, tmp_path, 31.5)[0] == {KEY: 31_500_000}
    assert known_step({KEY: 5}, tmp_path)[0] == {KEY: 5}
    with pytest.raises(UsageError, match="--unprofiled-step"):
        known_step({}, tmp_path, -1)


def test_other_files_tell_nothing(tmp_path):
    (tmp_path / "log.txt").write_text("[titan] started\n", encoding="utf-8")
    (tmp_path / "trainer_state.json").write_text("[1, 2", encoding="utf-8")
    assert logged_step(tmp_path) is None
    assert known_step({}, tmp_path) == ({}, ())


def test_memory_of_the_trainers_results(tmp_path):
    """As `TrainerMemoryTracker` writes it: the counter before, what each stage added, and its peak above its end."""
    results = {"before_init_mem_gpu": 0, "init_mem_gpu_alloc_delta": 500_000_000, "init_mem_gpu_peaked_delta": 0,
               "train_mem_gpu_alloc_delta": 1_500_000_000, "train_mem_gpu_peaked_delta": 30_000_000_000}  # fmt: skip
    (tmp_path / "all_results.json").write_text(json.dumps(results | {"train_runtime": 12.5}))
    peak = {"run_memory": {0: {"peak_allocated_bytes": 32_000_000_000}}}
    assert logged_memory(tmp_path) == logged_memory(tmp_path / "profile") == peak
    (tmp_path / "all_results.json").write_text(json.dumps(results | {"before_init_mem_gpu": "much"}))
    assert logged_memory(tmp_path) == {}
