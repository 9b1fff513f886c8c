"""Which of the doctor's inputs a folder holds."""

import shutil

import pytest

from tests.samples import SAMPLES
from traceanalyzer.cli import run
from traceanalyzer.doctor.inputs import Inputs, inputs_of
from traceanalyzer.errors import InputError

FOLDER = SAMPLES / "doctor"
DUMPS, LOG, TOPOLOGY = FOLDER / "rank1_never_came", FOLDER / "nccl_plain.log", FOLDER / "topo_2xH200_nvlink.txt"


def test_each_is_told_by_what_stands_in_it(tmp_path):
    shutil.copytree(DUMPS, tmp_path / "any")
    shutil.copy(LOG, tmp_path / "a")
    shutil.copy(TOPOLOGY, tmp_path / "b")
    assert inputs_of(tmp_path) == Inputs(tmp_path / "b", (tmp_path / "a",), tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "field"),
    [("x", '{"header": {}, "coll_perf": {}}', "monitors"), ("y", "XPU_TIMER_COMMON_HANG 0", "monitors"),
     ("z", '[{"profiling_name": "nccl:all_reduce"}]', "flight_recorder"), ("v", '{"pg_status": {}}', "flight_recorder")],
)  # fmt: skip
def test_records_of_other_tools(tmp_path, name, text, field):
    (tmp_path / name).write_text(text)
    assert inputs_of(tmp_path) == Inputs(**{field: (tmp_path / name,) if field == "monitors" else tmp_path})


def test_a_file_is_what_it_is():
    assert inputs_of(LOG) == Inputs(nccl_logs=(LOG,))
    assert inputs_of(TOPOLOGY) == Inputs(topo=TOPOLOGY)


@pytest.mark.parametrize("place", ["ddp", "absent"])
def test_what_holds_nothing_of_use_is_refused(place):
    with pytest.raises(InputError, match=place):
        inputs_of(SAMPLES / place)


def test_an_option_stands_before_what_the_folder_has(tmp_path, capsys):
    shutil.copytree(DUMPS, tmp_path / "any")
    shutil.copy(TOPOLOGY, tmp_path / "topo")
    assert run(["doctor", str(tmp_path), "--topo", str(FOLDER / "topo_8xH200_nvswitch.txt")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Rank 1 never called all-reduce number 6" in printed
    assert "All 8 GPUs reach each other" in printed
