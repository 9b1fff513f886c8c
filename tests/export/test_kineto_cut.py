"""A cut of a PyTorch-profiler trace gives the same figures for its steps, and does not identify the machine."""

import gzip
import json

import pytest

import traceanalyzer as ta
from tests.builders import document, host, kernel, write
from tests.samples import SAMPLES
from traceanalyzer.cli import run as command
from traceanalyzer.export.kineto_cut import scrubbed

FIGURES = ("breakdown", "idle", "operators", "kernels", "exposed_comm", "call_waits")


def read(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


@pytest.mark.parametrize(
    ("name", "steps"), [("ddp", "last"), pytest.param("fsdp_full", "2", marks=pytest.mark.thorough)]
)
def test_the_cut_steps_have_the_figures_that_they_had(name, steps, tmp_path):
    assert command(["export", str(SAMPLES / name), "--kineto", "--steps", steps, "-o", str(tmp_path / "cut")]) == 0
    before = ta.analyse(ta.load(SAMPLES / name, steps=steps), *FIGURES[:4])
    after = ta.analyse(ta.load(tmp_path / "cut", steps=steps), *FIGURES[:4])
    for figure in FIGURES[:4]:
        assert after[figure].to_frame().equals(before[figure].to_frame()), figure


def test_it_is_smaller_and_holds_the_chosen_ranks_only(tmp_path):
    assert command(["export", str(SAMPLES / "ddp"), "--kineto", "--steps", "last", "--ranks", "1",
                    "-o", str(tmp_path)]) == 0  # fmt: skip
    (path,) = tmp_path.iterdir()
    assert path.name == "rank_1.pt.trace.json.gz"
    (whole,) = (read(file) for file in SAMPLES.glob("ddp/*1*.json.gz"))
    cut = read(path)
    assert 0.2 < len(cut["traceEvents"]) / len(whole["traceEvents"]) < 0.7
    known = {json.dumps(event, sort_keys=True) for event in whole["traceEvents"]}
    assert all(json.dumps(event, sort_keys=True) in known for event in cut["traceEvents"])
    arrows = [event for event in cut["traceEvents"] if event.get("cat") == "fwdbwd"]
    assert arrows
    assert {e["id"] for e in arrows if e["ph"] == "s"} == {e["id"] for e in arrows if e["ph"] == "f"}


def test_environment_host_and_folders_are_left_behind(tmp_path):
    frame = host(1, 3, name="/home/someone/secret/train.py(12): step", cat="python_function")
    content = document(
        [kernel(0, 5), frame, host(2, 1, name="torch/nn/modules/module.py(3): call")], rank=0, world_size=1
    )
    content |= {"hostname": "node-17", "environment": {"TOKEN": "x"}, "traceName": "/home/someone/a.json"}
    content["distributedInfo"] |= {"hostname": "node-17", "master_addr": "10.0.0.1"}
    write(tmp_path / "in" / "rank0.json", content)
    assert command(["export", str(tmp_path / "in"), "--kineto", "-o", str(tmp_path / "cut")]) == 0
    path = tmp_path / "cut" / "rank_0.pt.trace.json.gz"
    text = gzip.decompress(path.read_bytes()).decode()
    assert [word for word in ("node-17", "TOKEN", "someone", "10.0.0.1") if word in text] == []
    names = [event["name"] for event in read(path)["traceEvents"]]
    assert names == ["gemm", "train.py(12): step", "torch/nn/modules/module.py(3): call"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (b'"/usr/lib/python3/threading.py(1): run"', b'"threading.py(1): run"'),
        (b'"C:/jobs/x/train.py"', b'"train.py"'),
        (b'"nn/modules/module.py(3): f"', b'"nn/modules/module.py(3): f"'),
        (b'"void f<a/b/c>(x)"', b'"void f<a/b/c>(x)"'),
        (b'"8 MB/s at 3/4"', b'"8 MB/s at 3/4"'),
        (b'"python /home/me/a/b.py --out /data/x/y"', b'"python b.py --out y"'),
        (b'"plain"', b'"plain"'),
    ],
)
def test_of_paths_the_file_names_stay(text, left):
    assert scrubbed(text) == left


def test_other_formats_and_damaged_files_are_refused_with_a_reason(tmp_path, capsys):
    assert command(["export", str(SAMPLES / "nsys_ddp"), "--kineto", "-o", str(tmp_path / "a")]) == 2
    assert "cuts traces of the PyTorch profiler" in capsys.readouterr().err
    whole = next(SAMPLES.glob("ddp/*0*.json.gz"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rank0.json").write_bytes(gzip.decompress(whole.read_bytes())[:2_000_000])
    assert command(["export", str(tmp_path / "in"), "--kineto", "-o", str(tmp_path / "b")]) == 2
    assert "damaged" in capsys.readouterr().err
    assert not list((tmp_path / "b").glob("*"))
