"""`traced` around a user's own loop."""

import gzip
import json

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
