"""`traced` around a user's own loop."""

import gzip
import json

import pytest
import torch

from traceanalyzer.runners import ProfileConfig, traced


def test_traced_writes_a_trace_and_run_json(tmp_path):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with traced(tmp_path / "mine", profile=ProfileConfig(wait=6, warmup=1, active=2), tokens_per_step=100) as loop:
        for _ in range(12):
            with loop.range("forward"):
                loss = model(torch.ones(2, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loop.step(loss)

    (trace,) = (tmp_path / "mine/rank_0").iterdir()
    names = [event["name"] for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]]
    assert names.count("forward") == 2
    run = json.loads((tmp_path / "mine/run.json").read_text())
    assert (run["strategy"], run["world_size"], run["model"]) == ("mine", 1, None)
    assert run["step_time_ns"]["unprofiled"]["n"] == 3
    assert run["tokens_per_s"] > 0
    assert len(run["losses"]) == 12
    assert run["losses"][-1] < run["losses"][0]


PROFILE = ProfileConfig(wait=2, warmup=1, active=2)


def loop_of(steps, place, error=None, **more):
    with traced(place, profile=PROFILE, **more) as loop:
        for _ in range(steps):
            torch.ones(2) + 1
            loop.step()
        if error:
            raise error
    return json.loads((place / "run.json").read_text())


def test_a_loop_that_ends_before_the_recording_begins_is_warned_of(tmp_path):
    with pytest.warns(
        RuntimeWarning, match=r"nothing was recorded: the loop took 2 steps, .* after 3 \(wait 2, warmup 1"
    ):
        run = loop_of(2, tmp_path)
    assert run["status"] == "ok"
    assert not list(tmp_path.glob("rank_0/*"))


def test_what_was_recorded_is_said(tmp_path, capsys):
    loop_of(9, tmp_path / "whole")
    assert capsys.readouterr().out == f"traced: 2 steps → {tmp_path}/whole/rank_<r>/\n"
    loop_of(4, tmp_path / "cut")
    assert capsys.readouterr().out == f"traced: 1 step of 2, the loop ended → {tmp_path}/cut/rank_<r>/\n"


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError("at /home/me/x.py"), "failed"), (torch.OutOfMemoryError("CUDA out of memory"), "oom")],
)
def test_an_exception_leaves_the_trace_and_a_run_json_that_says_how_it_ended(error, status, tmp_path):
    (tmp_path / "run.json").write_text('{"strategy": "of an earlier run"}')
    with pytest.raises(type(error)):
        loop_of(5, tmp_path, error, strategy="mine")
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["strategy"], run["status"]) == ("mine", status)
    assert run["error"].startswith(type(error).__name__)
    assert "/home/me" not in run["error"]
    assert len(list(tmp_path.glob("rank_0/*.json.gz"))) == 1


def test_a_rank_that_its_framework_started_writes_a_folder_of_its_own(tmp_path, monkeypatch):
    """Lightning gives the processes that it starts a local rank, and no rank."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with traced(tmp_path, profile=PROFILE) as loop:
        for _ in range(6):
            torch.ones(2) + 1
            loop.step()
    assert [path.name for path in tmp_path.iterdir()] == ["rank_1"]
