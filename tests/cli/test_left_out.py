"""What commands that write no report say of runs, ranks and files that they leave out."""

import json
import shutil
from pathlib import Path

import pytest

from tests.builders import document, kernel, write
from tests.cli import typed
from traceanalyzer.cli import DONE, USAGE_OR_INPUT
from traceanalyzer.cli import run as command

CAPTURES = Path(__file__).parents[1] / "captures"

COMMANDS = [["export", "-o", "x.pftrace"], ["export", "--kineto", "-o", "cut"], ["what-if", "--copy", "free"]]


@pytest.fixture
def half(tmp_path, monkeypatch):
    """A job of two ranks: one file is of two bytes."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "job"
    folder.mkdir()
    shutil.copy(CAPTURES / "moe" / "rank0.json.gz", folder)
    (folder / "rank1.json.gz").write_bytes(b"\x1f\x8b")
    return str(folder)


@pytest.mark.parametrize("line", COMMANDS, ids=["export", "cut", "what-if"])
def test_files_and_runs_that_are_left_out_are_said(line, half, capsys):
    assert command([*line, half]) == DONE
    said = capsys.readouterr().out
    assert "Note: Skipped " in said
    assert "rank1.json.gz: nothing can be unpacked" in said
    assert command([*line, str(CAPTURES / "streams")]) == DONE
    assert "Note: The folder holds 4 other runs (broadcast1, " in capsys.readouterr().out


def test_missing_ranks_and_cut_files_are_said_of_an_export(half, capsys):
    whole = (CAPTURES / "moe" / "rank0.json.gz").read_bytes()
    Path(half, "rank0.json.gz").write_bytes(whole[:20_000])
    assert command(["export", half, "-o", "x.pftrace"]) == DONE
    said = capsys.readouterr().out
    assert "Note: The file of rank 0 is cut off." in said
    assert "Note: 1 of 2 ranks has no trace here: 1." in said


def test_events_without_a_time_are_said_of_an_export(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "rank0.json", document([kernel(0, 5), kernel(float("nan"), 5)], rank=0, world_size=1))
    assert typed("export in -o x.pftrace") == DONE
    assert (
        "Note: 1 event of rank 0 could not be read, or has a time that cannot be; left out." in capsys.readouterr().out
    )


def test_what_if_has_them_in_json_and_replays_one_run(half, capsys):
    assert command(["what-if", "--copy", "free", "--json", half]) == DONE
    assert any("rank1.json.gz" in note for note in json.loads(capsys.readouterr().out)["notes"])
    assert command(["what-if", "--copy", "free", "--select", "all", half]) == USAGE_OR_INPUT
    assert "one run is replayed at a time" in capsys.readouterr().err


@pytest.mark.parametrize("how", [[], ["--json"]], ids=["words", "JSON"])
def test_comparisons_of_trees_say_them_beside_what_they_print(half, capsys, how):
    assert command(["tools", "tree-diff", half, str(CAPTURES / "moe"), *how]) == DONE
    said = capsys.readouterr()
    assert "Note: job: Skipped " in (said.err if how else said.out)
    assert json.loads(said.out) == [] if how else "The trees are the same" in said.out
