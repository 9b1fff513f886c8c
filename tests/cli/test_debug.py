"""What `--debug` writes: enough to find a bug by, and nothing that says what was run."""

import importlib
import json

import pytest

from tests.builders import document, kernel, write
from traceanalyzer.cli import run


def broken(*_args, **_named):
    raise KeyError("secret_kernel")


def test_a_crash_is_told_too_and_no_file_of_others_is_replaced(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scale = importlib.import_module("traceanalyzer.scale")
    monkeypatch.setattr(scale, "summarise", broken)
    write(tmp_path / "secret_folder" / "secret_file.json", document([kernel(0, 5)], rank=0, world_size=1))
    assert run(["secret_folder", "-o", "out", "--debug", "bug.json"]) == 70
    text = (tmp_path / "bug.json").read_text()
    assert "secret" not in text
    assert json.loads(text)["crash"]["error"] == "KeyError"
    assert any(place.startswith("cli/report.py:") for place in json.loads(text)["crash"]["at"])
    assert "bug.json" in capsys.readouterr().err
    assert run(["secret_folder", "-o", "out", "--debug=bug.json"]) == 70  # one of its own gives way
    (tmp_path / "notes.json").write_text("mine")
    assert run(["secret_folder", "-o", "out", "--debug", "notes.json"]) == 2
    assert (tmp_path / "notes.json").read_text() == "mine"


@pytest.mark.filterwarnings("ignore::traceanalyzer.failures.PartFailedWarning")
def test_it_has_versions_timings_and_counts_and_no_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    html = importlib.import_module("traceanalyzer.report.writers.html")
    monkeypatch.setattr(html.tiles, "tiles", broken)
    content = document([kernel(0, 5, name="secret_kernel")], rank=0, world_size=1, trace_id="secret_id")
    write(tmp_path / "secret_folder" / "secret_file.json", content)
    assert run(["secret_folder", "-o", "out", "--format", "html", "--debug", "bug.json", "-q"]) == 3
    text = (tmp_path / "bug.json").read_text()
    told = json.loads(text)
    assert "secret" not in text
    assert str(tmp_path) not in text
    assert told["packages"]["pandas"]
    assert set(told["seconds"]) == {"read and analyse", "findings and gates", "write"}
    assert told["rows"]["breakdown"] == 1
    assert told["failures"][0]["error"] == "KeyError"
    assert any(place.startswith("report/") for place in told["failures"][0]["at"])
