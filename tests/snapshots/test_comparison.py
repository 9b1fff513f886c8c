"""Two runs' snapshots: what of the peak is more or less, by category and by line, adds up to its change."""

import json

import pytest

from tests.snapshots.builders import STATE, History, write
from tests.snapshots.test_snapshots import MB, leak
from traceanalyzer.cli import run
from traceanalyzer.snapshots import change, compared, examine_snapshot, read_snapshot


def runs(tmp_path, *histories):
    """A folder for each run, of two ranks with the same history."""
    for at, history in enumerate(histories):
        (tmp_path / f"run{at}").mkdir()
        for rank in (0, 1):
            write(tmp_path / f"run{at}" / f"rank{rank}_snapshot.pickle", history.snapshot())
    return [
        [examine_snapshot(read_snapshot(path)) for path in sorted((tmp_path / f"run{at}").iterdir())]
        for at in range(len(histories))
    ]


def test_changes_add_up_to_that_of_the_peak(tmp_path):
    base, other = runs(tmp_path, leak(steps=6), leak(steps=9))
    table = compared(base, other).query("rank == 1").set_index(["of", "name"])["change_bytes"]
    assert table["peak", "peak"] == 24 * MB
    assert table["category"].sum() == table["site"].sum() == 24 * MB
    assert table["category"].to_dict() == {"activations": 24 * MB, "optimizer state": 0}
    told = list(change(base, other).sentences)
    assert told[1:] == []
    assert told[0] == (
        "Rank 0's peak goes from 71.3 MB to 96.5 MB: activations +25.2 MB; model.py:7 in forward, from train.py:20 in "
        "<module> +25.2 MB. (Rank 1: the same.)"
    )


def test_the_same_peak_of_other_things_is_said(tmp_path):
    other = History()
    other.alloc(4 * MB, STATE)
    other.alloc(64 * MB)
    base, other = runs(tmp_path, leak(steps=6), other)
    told = change(base, other[:1]).sentences
    assert told[0].startswith("Rank 0's peak is 71.3 MB, as it was: model.py:7 in forward")
    assert "model.py:9 in forward, from train.py:20 in <module> −16.8 MB" in told[0]
    assert told[1] == "Only the base run has a snapshot of rank 1."


def test_diff_of_folders_that_have_snapshots_only(tmp_path, monkeypatch, capsys):
    runs(tmp_path, leak(steps=6), leak(steps=9))
    monkeypatch.chdir(tmp_path)
    assert run(["diff", "run0", "run1", "--output", "out"]) == 0
    assert "Rank 0's peak goes from 71.3 MB to 96.5 MB" in capsys.readouterr().out
    lines = (tmp_path / "out" / "memory.csv").read_text().splitlines()
    assert '"run1","snapshots",0,"peak","peak",71303168,96468992,25165824' in lines
    page = (tmp_path / "out" / "memory.html").read_text()
    assert "run1 against run0: memory" in page
    assert 'data-v="25165824">+25.2<' in page
    assert run(["diff", "run0", "run0", "--output", "itself"]) == 0
    assert "Rank 0's peak is 71.3 MB, as it was." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gate", "code", "said"),
    [
        ("peak_allocated_gib > 70", 0, "PASSED"),
        pytest.param("peak_allocated_bytes +3% significant", 4, "INCONCLUSIVE", marks=pytest.mark.thorough),
        ("peak_alocated_bytes > 1", 2, "did you mean peak_allocated_bytes"),
    ],
)
def test_gates_on_folders_that_have_snapshots_only(tmp_path, monkeypatch, capsys, gate, code, said):
    runs(tmp_path, leak(steps=6), leak(steps=9))
    monkeypatch.chdir(tmp_path)
    assert run(["diff", "run0", "run1", "-o", "out", "--format", "json", "--fail-on", gate]) == code
    printed = capsys.readouterr()
    assert said in " ".join((printed.out + printed.err).split())
    assert (tmp_path / "out" / "gate.xml").exists() == (code != 2)


def test_each_gate_that_does_not_pass_says_why(tmp_path, monkeypatch, capsys):
    runs(tmp_path, leak(steps=6), leak(steps=9))
    monkeypatch.chdir(tmp_path)
    growth = "peak_allocated_bytes +3%"
    gates = ("peak_allocated_bytes > 90e6 @ any rank", growth, f"{growth} significant", "step_ms +3%")
    words = [word for gate in gates for word in ("--fail-on", gate)]
    assert run(["diff", "run0", "run1", "-o", "out", "--format", "json", *words]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert all(
        said in printed
        for said in (
            "violated by 2 of 2",
            "changed by +35.29%",
            "INCONCLUSIVE run1: ",
            "CANNOT BE JUDGED run1: step_ms",
        )
    )


def test_gates_do_not_pass_what_they_do_not_see(tmp_path, monkeypatch, capsys):
    runs(tmp_path, leak(steps=6), leak(steps=6))
    monkeypatch.chdir(tmp_path)
    compared = ["diff", "run0", "run1", "-o", "out", "--fail-on", "peak_allocated_bytes +3%"]
    assert run(compared) == 0
    for at in (0, 1):
        (tmp_path / f"run{at}" / "run.json").write_text(json.dumps({"world_size": 3}))
    assert run(compared) == 5
    assert "1 of 3 ranks is missing (2)" in " ".join(capsys.readouterr().out.split())
    whole = (tmp_path / "run1" / "rank1_snapshot.pickle").read_bytes()
    (tmp_path / "run1" / "rank1_snapshot.pickle").write_bytes(whole[: len(whole) // 2])
    assert run(compared) == 2
