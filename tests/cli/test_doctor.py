"""The doctor's command, as a user types it."""

import io
import json
import os
import stat

import pytest

from tests.cli import typed
from tests.doctor.builders import SYS_TOPOLOGY, log
from tests.samples import SAMPLES
from traceanalyzer.cli import run

FOLDER = SAMPLES / "doctor"


def test_prints_what_is_wrong(tmp_path, capsys):
    (tmp_path / "topo.txt").write_text(SYS_TOPOLOGY)
    (tmp_path / "nccl.log").write_text(log())
    assert run(["doctor", "--topo", str(tmp_path / "topo.txt"), "--nccl-log", str(tmp_path / "nccl.log")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "high Suspected P2P failure" in printed
    assert "NIC2 (mlx5_bond_0)" in printed


def test_json_and_page(tmp_path, capsys):
    out = tmp_path / "out"
    named = {"flight-recorder": "rank1_never_came", "nccl-log": "nccl_plain.log", "topo": "topo_8xH200_nvswitch.txt"}
    inputs = [word for option, name in named.items() for word in (f"--{option}", str(FOLDER / name))]
    assert typed("doctor --json -o", str(out), *inputs) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["diagnoses"][0]["rule"] == "rank_never_came"
    assert told["tables"]["topology"][0]["GPU1"] == "NV18"
    assert told == json.loads((out / "doctor.json").read_text())
    page = (out / "doctor.html").read_text()
    assert "Rank 1 never called all-reduce number 6" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_standard_input(monkeypatch, capsys):
    text = (FOLDER / "topo_2xH200_nvlink.txt").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert typed("doctor --topo -") == 0
    assert "All 2 GPUs reach each other over NVLink" in " ".join(capsys.readouterr().out.split())


def test_run_calls_nvidia_smi(tmp_path, monkeypatch, capsys):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n[ \"$*\" = 'topo -m' ] && cat {FOLDER / 'topo_2xH200_nvlink.txt'}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin{os.pathsep}/usr/bin")
    assert typed("doctor --run") == 0
    assert "NV18" in capsys.readouterr().out


@pytest.mark.parametrize(("given", "said"), [
    ([], "nothing to examine"), (["--topo", "garbage"], "no topology matrix"), (["--nccl-log", "garbage"], "NCCL_DEBUG=INFO"),
    (["--flight-recorder", "garbage"], "no dump"), (["--inspector", "garbage"], "no record of NCCL Inspector"),
    (["--topo", "absent"], "No such file"), (["--topo", "-", "--nccl-log", "-"], "can be read only once"), (["--run"], "not on the PATH"),
])  # fmt: skip
def test_what_cannot_be_read_is_one_line(tmp_path, monkeypatch, capsys, given, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "garbage").write_bytes(b"\xff\xfenothing of use\n")
    assert typed("doctor", *given) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error
