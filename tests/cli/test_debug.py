"""What `--debug` writes: enough to find a bug by, and nothing that says what was run."""

import gzip
import importlib
import json
import socket
from pathlib import Path

import pytest

from tests.builders import document, kernel, write
from tests.cli import job, typed
from traceanalyzer.cli import run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def broken(*_args, **_named):
    raise KeyError("secret_kernel")


def test_a_crash_is_told_too_and_no_file_of_others_is_replaced(monkeypatch, capsys):
    scale = importlib.import_module("traceanalyzer.scale")
    monkeypatch.setattr(scale, "summarise", broken)
    job("secret_folder")
    assert typed("secret_folder -o out --debug bug.json") == 70
    text = Path("bug.json").read_text()
    assert "secret" not in text
    assert json.loads(text)["crash"]["error"] == "KeyError"
    assert any(place.startswith("cli/report.py:") for place in json.loads(text)["crash"]["at"])
    assert "bug.json" in capsys.readouterr().err
    assert typed("secret_folder -o out --debug=bug.json") == 70  # one of its own gives way
    Path("notes.json").write_text("mine")
    assert typed("secret_folder -o out --debug notes.json") == 2
    assert Path("notes.json").read_text() == "mine"


@pytest.mark.filterwarnings("ignore::traceanalyzer.errors.PartFailedWarning")
def test_it_has_versions_timings_and_counts_and_no_names(tmp_path, monkeypatch):
    html = importlib.import_module("traceanalyzer.report.writers.html")
    monkeypatch.setattr(html, "tiles", broken)
    content = document([kernel(0, 5, name="secret_kernel")], rank=0, world_size=1, trace_id="secret_id")
    write(Path("secret_folder", "secret_file.json"), content)
    assert typed("secret_folder -o out --format html --debug bug.json -q") == 3
    text = Path("bug.json").read_text()
    told = json.loads(text)
    assert "secret" not in text
    assert str(tmp_path) not in text
    assert told["packages"]["pandas"]
    assert set(told["seconds"]) == {"read and analyse", "findings and gates", "other analyses", "write"}
    assert told["rows"]["breakdown"] == 1
    assert told["failures"][0]["error"] == "KeyError"
    assert any(place.startswith("report/") for place in told["failures"][0]["at"])


def texts(content):
    """All texts of a JSON value that are not keys."""
    inside = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return {content} if isinstance(content, str) else set().union(*map(texts, inside))


def test_no_text_of_a_real_capture_is_in_it():
    place = Path(__file__).parents[2] / "sample_traces" / "pytorch_ddp"
    held = set().union(*(texts(json.loads(gzip.decompress(file.read_bytes()))) for file in place.rglob("*.json.gz")))
    held |= texts(json.loads((place / "run.json").read_text()))
    assert len(held) > 300
    assert run([str(place), "-o", "out", "--format", "json", "--debug", "bug.json", "-q"]) == 0
    text = Path("bug.json").read_text()
    told = json.loads(text)
    assert not held & texts(told)
    own = {*told["rows"], *told}  # our tables' names
    assert not [one for one in held if len(one) > 8 and one in text and not any(one in name for name in own)]


def test_nothing_asks_the_network(monkeypatch):
    """Of Python's own sockets; strace saw none of the libraries'."""

    def asked(*_args, **_named):
        raise AssertionError("the network was asked")

    for name in ("connect", "connect_ex", "sendto", "bind"):
        monkeypatch.setattr(socket.socket, name, asked)
    monkeypatch.setattr(socket, "getaddrinfo", asked)
    job("in", ranks=2)
    for line in ("in -q -o out", "export in -q -o x.json", "query summary in"):
        assert typed(line + " --jobs 1") == 0
