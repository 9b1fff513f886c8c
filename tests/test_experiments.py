"""The studies' sets of runs: each can be started, on whatever GPUs there are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runners need torch")

from tests.runners.conftest import ROOT
from traceanalyzer.runners.options import parse
from traceanalyzer.runners.strategies import strategy_named

sys.path.insert(0, str(ROOT / "experiments"))
import run as studies
import waiting
from sets import SETS, Hardware, forecasts
from waiting import Waiting, discard

HARDWARE = [Hardware(2, 139.8), Hardware(4, 139.8), Hardware(8, 79.2), Hardware(2, 24), Hardware(2, 0, is_cpu=True)]


@pytest.mark.parametrize("hardware", HARDWARE, ids=str)
@pytest.mark.parametrize("name", SETS)
def test_every_run_of_a_set_fits_its_strategy(name, hardware):
    runs = SETS[name](hardware)
    assert len({run.folder for run in runs}) == len(runs)
    for run in runs:
        config = parse(["--strategy", run.strategy, *run.arguments])
        strategy_named(run.strategy).check(config, run.ranks or hardware.gpus)


@pytest.mark.parametrize("hardware", HARDWARE[:4], ids=str)
def test_data_parallel_runs_of_a_train_on_equally_many_samples_a_gpu(hardware):
    configs = [parse(["--strategy", run.strategy, *run.arguments]) for run in SETS["A"](hardware)]
    samples = {c.batch * c.accumulate for c in configs if strategy_named(c.strategy).is_data_parallel}
    assert len(samples) == 1


def test_a_repeat_has_another_seed_and_folder_and_is_only_timed():
    (run,) = (run for run in SETS["B"](HARDWARE[0]) if run.label == "single")
    again = run.repeated(2)
    assert (again.label, again.folder) == ("single", "single_seed2")
    assert parse(["--strategy", again.strategy, *again.arguments]).profile.profiler == "none"


@pytest.mark.parametrize("hardware", HARDWARE, ids=str)
@pytest.mark.parametrize("name", SETS)
def test_forecasts_are_of_runs_of_the_set(name, hardware):
    labels = {run.label for run in SETS[name](hardware)}
    assert {label for each in forecasts(name, hardware.gpus) for label in (each.before, each.after)} <= labels


# As begin.py, without PyTorch: reads its byte and leaves the rest of its arguments.
STAND_IN = """
import os, pathlib, sys
if not os.read(0, 1):
    sys.exit(1)
target = pathlib.Path(sys.argv[1])
target.mkdir()
(target / "run.json").write_text("{}")
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A folder of runs whose processes only wait and leave an empty run.json."""
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.setattr(waiting, "BEGIN", tmp_path / "stand_in.py")
    return tmp_path / "runs"


def test_a_run_loaded_ahead_does_nothing_until_it_may_begin(stand_in):
    run = Waiting.load(stand_in / "a", [str(stand_in / "a")], ranks=1)
    with pytest.raises(subprocess.TimeoutExpired):
        run.process.wait(0.3)
    assert not run.folder.exists()
    run.begin()
    assert run.outcome(300)[0] == "ok"
    assert (run.folder / "run.json").exists()


def test_a_run_that_is_not_wanted_leaves_nothing(stand_in):
    run = Waiting.load(stand_in / "a", [str(stand_in / "a")], ranks=1)
    discard(run)
    assert run.process.poll() is not None
    assert list(stand_in.iterdir()) == []


def test_a_run_whose_starter_is_gone_ends_by_itself(stand_in):
    run = Waiting.load(stand_in / "a", [str(stand_in / "a")], ranks=1)
    run.process.stdin.close()
    assert run.process.wait(300) == 1
    assert not run.folder.exists()


@pytest.mark.thorough
def test_two_ranks_begin_with_a_byte_each(tmp_path):
    options = "--strategy pytorch_ddp --device cpu --profiler none --warmup 0 --steps 1 --batch 1 --out"
    run = Waiting.load(tmp_path / "ddp", [*options.split(), str(tmp_path / "ddp")], ranks=2)
    run.begin()
    assert run.outcome(100)[0] == "ok", (tmp_path / "ddp.log").read_text()
    assert json.loads((tmp_path / "ddp/run.json").read_text())["world_size"] == 2


def test_what_left_no_trace_is_not_compared(tmp_path, monkeypatch):
    def record(name, *, status="ok", file="capture.pt.trace.json.gz", ranks=2):
        (tmp_path / name / "rank_1").mkdir(parents=True)
        (tmp_path / name / "rank_1" / file).touch()
        facts = {"model": {"layers": 2}, "status": status, "world_size": ranks}
        (tmp_path / name / "run.json").write_text(json.dumps(facts))

    for name in ("pytorch_zero3", "pytorch_ddp"):
        record(name)
    record("pytorch_ddp_batch64", status="oom", file="memory_snapshot.pickle")
    record("timed", file="nothing")
    compared = []
    monkeypatch.setattr(
        studies.subprocess,
        "run",
        lambda command, **_: compared.extend(command) or subprocess.CompletedProcess([], 0, "said"),
    )
    said = studies._compare(tmp_path, tmp_path / "out")
    assert [Path(word).name for word in compared if str(tmp_path) in word] == ["pytorch_ddp", "pytorch_zero3", "out"]
    assert said.startswith("said")
    assert said.endswith("pytorch_ddp_batch64, timed.")
