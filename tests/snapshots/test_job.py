"""Snapshots without traces: how the run ended, gates on its memory, what would fit."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.snapshots.builders import History, write
from tests.snapshots.test_snapshots import MB, examined, leak
from traceanalyzer.cli import run
from traceanalyzer.cli.snapshots import memory_beside
from traceanalyzer.job.model_state import Model
from traceanalyzer.job.run_info import RunInfo
from traceanalyzer.report.snapshots import page
from traceanalyzer.snapshots import OutOfMemory, deciding, find_snapshots, sentences
from traceanalyzer.snapshots.comparison import job_of

ERROR = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 MiB. GPU 0 has a total capacity of 6.00 GiB of which"
SHAPE = {"layers": 4, "d_model": 512, "seq": 512, "batch": 8, "vocab": 1000}


def folder(tmp_path, ranks=(0, 1), **told):
    for rank in ranks:
        write(tmp_path / f"rank{rank}_snapshot.pickle", leak().snapshot())
    (tmp_path / "run.json").write_text(json.dumps({"world_size": 2, **told}))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("ranks", "gate", "code", "said"),
    [
        ((0, 1), "peak_allocated_gib > 70", 0, "PASSED"),
        ((0, 1), "peak_allocated_bytes > 70e6 @ any rank", 1, "FAILED"),
        ((0,), "peak_allocated_gib > 70", 5, "1 of 2 ranks is missing (1)"),
        ((0, 1), "idle_pct > 5", 5, "CANNOT BE JUDGED"),
    ],
)
def test_gates(tmp_path, monkeypatch, capsys, ranks, gate, code, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    assert run([folder(tmp_path / "in", ranks), "-o", "out", "--fail-on", gate]) == code
    assert said in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "out" / "gate.xml").exists()


def test_a_snapshot_without_history_passes_no_gate_on_its_peak(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bare = leak().snapshot() | {"device_traces": [[], []]}
    write(tmp_path / "rank0_snapshot.pickle", bare)
    assert run(["rank0_snapshot.pickle", "-o", "out", "--fail-on", "peak_allocated_gib > 70"]) == 5
    told = json.loads((tmp_path / "out" / "memory.json").read_text())
    assert told["snapshots"][0]["peak_bytes"] is None
    assert told["verdict"][0].startswith(
        "Rank 0 held 54.5 MB when its snapshot was written; what it held before is unknown"
    )
    assert "Who holds the peak" not in (tmp_path / "out" / "memory.html").read_text()


def test_files_that_do_not_say_their_rank_pass_no_gate(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a.pickle", "b.pickle"):
        write(tmp_path / name, leak().snapshot())
    assert run([".", "-o", "out", "--fail-on", "peak_allocated_gib > 70"]) == 2
    assert "say the rank in the files' names" in capsys.readouterr().err


def test_how_it_ended_and_the_gpu_of_the_message(tmp_path):
    info = RunInfo(status="oom", error=ERROR, world_size=2)
    job = job_of([examined(tmp_path, leak())], info, None)
    assert job.sentences == (f"The run ran out of memory, as its run.json says: {ERROR}.",)
    (row,) = job.memory.rows()
    assert (row["rank"], row["device_bytes"]) == (3, 6 << 30)
    assert row["headroom_bytes"] == (6 << 30) - (1 << 30)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"params": 20_000_000, "strategy": "ddp"}, "memory beyond it is not the model's"),
        (
            {"params": 600_000_000, "strategy": "ddp"},
            "6.44 GB: zero2 at a micro-batch of 8 needs 3.63 GB and would fit.",
        ),
        ({"params": 600_000_000}, "By estimate zero2 at a micro-batch of 8 needs"),
        ({"params": 10**12, "strategy": "ddp"}, "no other setting that is looked at fits"),
    ],
)
def test_what_it_should_take(tmp_path, model, said):
    job = job_of([examined(tmp_path, leak())], None, Model(**SHAPE, dp=8, gpu=6 << 30, **model))
    assert said in job.sentences[0]


def test_a_file_that_cannot_be_read_keeps_none_of_the_others_from_the_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    place = folder(tmp_path / "in")
    whole = (tmp_path / "in" / "rank1_snapshot.pickle").read_bytes()
    (tmp_path / "in" / "rank1_snapshot.pickle").write_bytes(whole[: len(whole) // 2])
    assert run([place, "-o", "out"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Rank 0 peaks at" in printed
    assert "Skipped: " in printed
    assert "rank1_snapshot.pickle" in printed.replace(" ", "")
    assert "rank1_snapshot.pickle" in (tmp_path / "out" / "memory.html").read_text()
    assert run([place, "-o", "out", "--fail-on", "peak_allocated_gib > 70"]) == 5
    (tmp_path / "in" / "rank0_snapshot.pickle").unlink()
    assert run([place, "-o", "out"]) == 2


def test_no_history_is_not_a_peak(tmp_path):
    assert History().snapshot()
    one = examined(tmp_path, leak())
    assert one.has_history
    assert "peaks at 71.3 MB" in sentences([one])[2]
    assert one.peak_bytes == 68 * MB


def test_ranks_are_a_table_and_only_those_that_decide_are_open(tmp_path):
    one = examined(tmp_path, leak())
    made = [
        replace(one, snapshot=replace(one.snapshot, rank=rank), peak_bytes=one.peak_bytes + (rank == 7))
        for rank in range(12)
    ]
    made[3] = replace(made[3], oom=OutOfMemory(1, 4 * MB, None, "model.py:7 in forward", 0, 0, 0))
    assert deciding(made) == {3: "failed first", 7: "highest peak"}
    html = page(made, "job")
    ranks = html[html.index('<section id="ranks"') : html.index("</section>", html.index('<section id="ranks"'))]
    rows = [re.sub("<[^>]+>", "", row) for row in re.findall(r"<tr><td>(.*?)</td>", ranks)]
    assert rows[:3] == ["rank 3 failed first", "rank 7 highest peak", "rank 0"]
    assert len(rows) == 12
    assert {*re.findall(r'href="#s(\d+)"', ranks)} == {*map(str, range(12))}
    parts = re.findall(r'<details class="rank"( open)?><summary><h2 id="s(\d+)-title">', html)
    assert [number for is_open, number in parts if is_open] == ["3", "7"]
    assert parts[2:] == [("", str(place)) for place in range(12) if place not in (3, 7)]
    assert html.count("<details") == html.count("</details>")
    assert "The 10 other ranks" in html


def test_only_ranks_that_are_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    place = folder(tmp_path / "in")
    assert run([place, "-o", "out", "--ranks", "1", "--fail-on", "peak_allocated_gib > 70"]) == 0
    assert [one["rank"] for one in json.loads((tmp_path / "out" / "memory.json").read_text())["snapshots"]] == [1]
    assert run([place, "-o", "out", "--ranks", "7"]) == 2
    assert "no memory snapshot is of the ranks" in capsys.readouterr().err


def test_that_snapshots_are_left_out_is_said(tmp_path):
    own, other = (
        SimpleNamespace(label=label, captures=[SimpleNamespace(path=tmp_path / label / "trace.json")]) for label in "ab"
    )
    for place in ("a/rank0.pickle", "b/rank0.pickle", "rank1.pickle"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        write(tmp_path / place, leak().snapshot())
    found = find_snapshots(tmp_path)
    examined, told = memory_beside(found, own, [own, other])
    assert [one.snapshot.path for one in examined] == [tmp_path / "a/rank0.pickle"]
    left = f"{tmp_path / 'b/rank0.pickle'} and {tmp_path / 'rank1.pickle'}"
    assert told[-1].startswith(f"Skipped: {left} (the runs of these snapshots are another or unknown;")
    assert not any("Skipped" in one for one in memory_beside(found[:1], own, [own, other])[1])
    examined, told = memory_beside(found[1:2], own, [own, other])
    assert (examined, len(told)) == ((), 1)
    assert "(the run of this snapshot is another or unknown;" in told[0]
    assert memory_beside([], own, [own, other]) == ((), ())
