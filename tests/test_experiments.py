"""The studies' sets of runs: each can be started, on whatever GPUs there are."""

import sys

import pytest

pytest.importorskip("torch", reason="the runners need torch")

from tests.runners.conftest import ROOT
from traceanalyzer.runners.options import parse
from traceanalyzer.runners.strategies import strategy_named

sys.path.insert(0, str(ROOT / "experiments"))
from sets import SETS, Hardware

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
