"""The examples of docs/recording.md for training frameworks, as they stand there, where a framework is installed."""

import gzip
import json
import re

import pytest
import torch

from tests.runners.conftest import ROOT
from traceanalyzer.runners import traced

# Their warnings are theirs.
pytestmark = pytest.mark.filterwarnings("ignore")
SAMPLES = 80


def run_example(heading, **names):
    """Run the code block that follows **heading**."""
    page = (ROOT / "docs" / "recording.md").read_text()
    code = re.search(rf"\*\*{heading}\*\*\n\n```python\n(.*?)```", page, re.DOTALL)[1]
    exec(compile(code, heading, "exec"), {"traced": traced, **names})


def check(folder):
    """Four recorded steps, seven timed ones."""
    (trace,) = (folder / "rank_0").glob("*.pt.trace.json.gz")
    recorded = {event["name"] for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]}
    assert {name for name in recorded if name.startswith("ProfilerStep#")} == {
        f"ProfilerStep#{n}" for n in range(12, 16)
    }
    assert "Optimizer.step#AdamW.step" in recorded
    assert json.loads((folder / "run.json").read_text())["step_time_ns"]["unprofiled"]["n"] == 7


def test_lightning(tmp_path, monkeypatch):
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    monkeypatch.chdir(tmp_path)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def training_step(self, batch):
            return self.linear(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    loader = torch.utils.data.DataLoader(torch.ones(SAMPLES, 4), batch_size=2)
    run_example("Lightning", lightning=lightning, module=Module(), loader=loader)
    check(tmp_path / "profile/lightning")


def test_hugging_face_trainer(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    monkeypatch.chdir(tmp_path)
    config = transformers.GPT2Config(vocab_size=64, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    tokens = list(range(8))
    args = transformers.TrainingArguments(
        "out", per_device_train_batch_size=2, max_steps=30, report_to=[], use_cpu=True
    )
    run_example(
        "Hugging Face Trainer",
        transformers=transformers,
        model=transformers.GPT2LMHeadModel(config),
        args=args,
        data=[{"input_ids": tokens, "labels": tokens}] * SAMPLES,
    )
    check(tmp_path / "profile/hf")
