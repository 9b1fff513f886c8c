"""What a model should take: arithmetic by hand, and runs that were measured."""

import pytest

import traceanalyzer as ta
from tests.samples import RUNNERS, of_each_kind
from traceanalyzer.job import run_info
from traceanalyzer.job.model_state import Model, completed, entries, needs


@pytest.mark.parametrize(
    ("strategy", "precision", "parameters", "gradients", "optimizer"),
    [
        # 7.5e9 parameters on 64 GPUs: the ZeRO paper's own example, 120, 31.4, 16.6 and 1.9 GB.
        ("ddp", "mixed", 15e9, 15e9, 90e9),
        ("zero1", "mixed", 15e9, 15e9, 90e9 / 64),
        ("zero2", "mixed", 15e9, 15e9 / 64, 90e9 / 64),
        ("zero3", "mixed", 15e9 / 64, 15e9 / 64, 90e9 / 64),
        ("ddp", "autocast", 30e9, 30e9, 60e9),
        ("ddp", "bf16", 15e9, 15e9, 30e9),
        ("offload", "mixed", 0, 0, 0),
    ],
)
def test_state(strategy, precision, parameters, gradients, optimizer):
    found = needs(Model(params=7_500_000_000, dp=64, strategy=strategy, precision=precision))
    assert (found.parameter_bytes, found.gradient_bytes, found.optimizer_bytes) == pytest.approx(
        (parameters, gradients, optimizer), abs=1
    )


@pytest.mark.parametrize("name", of_each_kind(["pytorch_ddp", "zero3", "pp_1f1b"]))
def test_estimates_of_recorded_runs_are_near(name):
    folder = RUNNERS / name
    known = run_info.thresholds(run_info.read(folder / "run.json"))
    traces = ta.load(folder)
    rows = ta.memory_fit(traces, trained_model=known["trained_model"], run_memory=known["run_memory"]).rows()
    (own,) = [row for row in rows if row["is_own"]]
    assert own["total_bytes"] == pytest.approx(own["measured_peak_bytes"], rel=0.2)
    assert own["fits"] == "yes"
    assert own["device_bytes"] > 140e9


def test_the_least_that_fits():
    told = completed(None, entries("params=7e9,layers=32,d_model=4096,seq=4096,batch=1,dp=8,gpu=80G,precision=mixed"))
    frame = ta.memory_fit(ta.load(RUNNERS / "pytorch_ddp"), trained_model=told).to_frame()
    plain = frame[(frame["tp"] == 1) & (frame["pp"] == 1)]
    fits = plain.set_index(["strategy", "checkpointing"])["fits"].to_dict()
    assert (fits["ddp", False], fits["zero3", False]) == ("no", "yes")
    (least,) = frame[frame["is_enough"]].to_dict("records")
    assert fits[least["strategy"], least["checkpointing"]] == "yes"
    assert "16 bits" in least["assumptions"]
