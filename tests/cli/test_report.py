"""The main command, as a user types it."""

import csv
import subprocess
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from tests.builders import NAMES, document, host, kernel, write
from tests.cli import job, summary, typed
from tests.samples import SAMPLES
from traceanalyzer.cli import run

DDP, MOE = (str(SAMPLES / name) for name in ("ddp", "moe"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_writes_page_csv_and_json(capsys):
    job("two", kernel(0, 5), kernel(3, 5, name=NAMES["comm"], stream=17))
    assert typed("--trace-dir two") == 0
    assert names("reports/two") == [".traceanalyzer.json", "summary.csv", "summary.html", "summary.json", "tables"]
    printed = capsys.readouterr().out
    assert "reports/two/summary.html" in printed
    assert "compute %" in printed


def test_thresholds_of_analyses_can_be_set():
    assert run([DDP, *["--output", "out", "--format", "csv", "--threshold", "bins=2"]]) == 0
    assert pd.read_csv("out/tables/gpu_utilization.csv")["rank"].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("silent_pc=3", "no threshold is called 'silent_pc'; did you mean silent_ns"),
        ("stream_role_pct", "write NAME=VALUE, the value a number"), ("stream_role_pct=nan", "stream_role_pct takes a number from 0 on, not nan"),
        ("bins=2.5", "write NAME=VALUE, the value a whole number"), ("hosts=3", "no threshold is called 'hosts'"),
    ],
)  # fmt: skip
def test_a_threshold_that_makes_no_sense_is_refused(capsys, limit, said):
    assert run([job("small"), "--threshold", limit]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_json_and_csv_say_the_same():
    assert run([DDP, *["-o", "out", "--format", "json", "--format", "csv"]]) == 0
    found = summary("out")
    assert list(found) == [
        "format_version", "label", "created", "version", "command", "run_info", "ranks", "results", "files", "tables", "doubted",
        "findings", "skipped", "notes", "memory_snapshots",
    ]  # fmt: skip
    assert (found["format_version"], found["label"], found["ranks"]) == (3, "ddp", [0, 1])
    with Path("out", "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row, expected in zip(rows, found["results"]["headline"], strict=True):
        assert row.pop("caveat") == ""
        assert row["basis"] == expected.pop("basis")
        assert {name: float(row[name]) for name in expected} == pytest.approx(expected)
        assert float(row["comm_pct"]) == pytest.approx(100 * expected["comm_ns"] / expected["window_ns"])
        assert float(row["all_reduce_ns"]) == pytest.approx(expected["comm_ns"], rel=0.01)
        assert int(row["all_reduce_calls"]) > 0
    assert len(pd.read_csv("out/tables/calls.csv")) == 85
    assert "calls" not in found["results"]


def test_parquet_holds_results_and_events():
    assert run([MOE, *["-o", "out", "--format", "parquet"]]) == 0
    ops = pd.read_parquet("out/events/gpu_ops/rank_1.parquet")
    assert pd.read_parquet("out/tables/breakdown.parquet")["rank"].tolist() == [0, 1]
    assert (ops["rank"] == 1).all()
    assert set(ops["step"].dropna()) == {1, 2, 3}
    assert not Path("out", "summary.html").exists()


def test_a_new_report_clears_only_its_own_tables():
    mine = [Path("out", "tables", "my_paper.csv"), Path("out", "events", "gpu_ops", "rank_notes.parquet")]
    job("job", ranks=2)
    assert typed("job -o out --format parquet") == 0
    for path in mine:
        path.write_text("mine")
    assert typed("job -o out --format parquet --ranks 0") == 0
    assert names("out/events/gpu_ops") == ["rank_0.parquet", "rank_notes.parquet"]
    before = names("out/tables")
    assert all(path.exists() for path in mine)
    assert typed("nowhere -o out") == 2
    assert names("out/tables") == before


def test_parquet_events_carry_the_ranks_of_the_report():
    for name, time in (("a", 10), ("b", 20)):
        write(Path("in", f"{name}.json"), document([kernel(time, 1), kernel(time + 1, 1, device=1)]))
    assert typed("in -o out --format parquet") == 0
    files = Path("out", "events", "gpu_ops").iterdir()
    starts = {path.stem: pd.read_parquet(path)["start_ns"].tolist() for path in files}
    assert starts == {"rank_0": [10_000], "rank_1": [11_000], "rank_2": [20_000], "rank_3": [21_000]}


ODD = ("\u00b21.json", "x\udcff.json", "a\x1b[31m.json", "100% \n.json")


def test_odd_file_names(capsys):
    for place, name in enumerate(ODD):
        write(Path("in", name), document([kernel(place, 5)]))
        write(Path("in", "not " + name), b"nonsense")
    assert typed("in -o out --format json") == 0
    assert "\x1b" not in "".join(capsys.readouterr())
    assert (summary("out")["ranks"], len(summary("out")["skipped"])) == ([0, 1, 2, 3], len(ODD))


def several_runs(*bad):
    """Three runs of one rank, a hundred seconds apart; those in `bad` hold nothing of PyTorch's."""
    for number in range(3):
        at = number * 100_000_000
        events = [host(at, 5, name="x", cat="other")] if number in bad else [kernel(at, 5)]
        write(Path("in", f"t{number}.json"), document(events, rank=0, world_size=1, base_ns=10**18))


def test_all_runs_of_a_folder_and_a_bad_one_does_not_hide_the_others(capsys):
    several_runs(0)
    assert typed("in --select all -o out --format json") == 2
    assert names("out") == ["run_1_20010909-014820", "run_2_20010909-015000"]
    assert "t0.json: a Chrome trace without PyTorch operators" in capsys.readouterr().err


def test_no_run_of_several_is_chosen_for_a_gate(capsys):
    several_runs()
    gate = ("--fail-on", "idle_pct > 99", "--format", "json")
    assert typed("in -o out", *gate) == 2
    assert "name one run, or add --select all: the folder holds 3 runs (t0, t1 and t2)" in capsys.readouterr().err
    assert typed("diff in/t0.json in -o out", *gate) == 2
    assert typed("in --select all -o out", *gate) == 0
    assert typed("in/t1.json -o one", *gate) == 0


def test_processes_give_the_same_figures():
    job("job", ranks=2)
    for jobs in "12":
        assert typed("job --format json", "-o", jobs, "--jobs", jobs) == 0
    assert summary("1")["results"] == summary("2")["results"]


def test_a_kind_of_kernels_changes_the_breakdown():
    job("job", kernel(0, 5, name=NAMES["comm"]))
    assert typed("job --kernel-kind compute=nccl -o out --format json") == 0
    (row,) = summary("out")["results"]["breakdown"]
    assert (row["comm_ns"], row["compute_ns"]) == (0, 5_000)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--trace-dir nowhere", "nowhere: no such folder"), ("good --output ''", "Invalid value for '--output'"),
        ("--trace-dir ''", "Invalid value for '--trace-dir': it is empty (an unset variable?)"),
        ("'' --steps last", "it is empty"), ("bad", "no traceEvents"), ("cut", "cut off before its first event"),
        ("empty", "no traces here; record them with torch.profiler or nsys (docs/recording.md)"),
        ("empty", ".nsys-rep files or their exports, .sqlite files or folders of Parquet"),
        ("database", "database/job.sqlite: not an SQLite database; export the report again"),
        ("--trace-file database/job.sqlite", "database/job.sqlite: not an SQLite database"),
        ("--trace-file database/notes.txt", "database/notes.txt: no trace; expected files of "),
        ("--trace-file nowhere.json", "no such file"), ("--steps x good", "--steps"),
        ("--steps 4:2 good", "--steps '4:2' is reversed: write 2:4"), ("--ranks 0,3-1 good", "3-1 is reversed; write 1-3"),
        ("--kernel-kind x good", "--kernel-kind"), ("--ranks 9 good", "this run has rank 0"),
        ("good --trace-dir good", "name the traces once"), ("--select all", "name the traces once"),
        ("good --nonsense", "No such option"), ("good --output good/rank0.json/x", "cannot be written"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_clear_line_and_code_2(capsys, line, message):
    job("good")
    Path("empty").mkdir()
    for place, content in (("bad/rank0.json", b"not json"), ("database/job.sqlite", b""), ("database/notes.txt", b"notes"),
                           ("cut/rank0.json", b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name"')):  # fmt: skip
        write(Path(place), content)
    assert typed(line) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_trace_without_gpu_operations_is_said(capsys):
    step = host(0, 9, name="ProfilerStep#3", cat="user_annotation")
    write(Path("in", "rank0.json"), document([step, host(1, 5, name="aten::mm")], rank=0))
    assert typed("in") == 0
    printed = capsys.readouterr().out
    assert "No GPU work was recorded: a CPU-only job" in printed
    assert "Work on the CPU, mean over ranks" in printed
    page = Path("reports", "in", "summary.html").read_text().replace("\u202f", " ")
    assert 'class="bar' not in page, "there is no picture of it"
    for said in ("no GPU work", "Work on the CPU", "Without GPU work nothing about it can be concluded",
                 "A step takes 9 µs: main thread 56% in aten::mm"):  # fmt: skip
        assert said in page


def test_a_bug_of_ours_is_code_70(monkeypatch, capsys):
    monkeypatch.setattr("traceanalyzer.scale.summarise", lambda *_a, **_k: 1 / 0)
    assert run([MOE]) == 70
    error = capsys.readouterr().err
    assert ("ZeroDivisionError" in error, "Traceback" in error) == (True, False)
    assert run([MOE, "--verbose"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_while_writing_leaves_no_half_report(monkeypatch):
    def interrupt(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("traceanalyzer.report.writers.tables.write_csv", interrupt)
    assert run([MOE, *["-o", "out", "--format", "html", "--format", "csv"]]) == 130
    assert not Path("out").exists()


def test_another_run_of_the_same_name_is_told_apart(tmp_path, capsys):
    job("a/ddp")
    job("b/ddp", kernel(0, 7))
    assert typed("a/ddp --format html") == typed("a/ddp --format csv") == 0
    assert {"summary.html", "summary.csv"} < {*names("reports/ddp")}
    assert "replaces" not in capsys.readouterr().out
    assert typed("b/ddp --format json") == 0
    assert names("reports/ddp") == [".traceanalyzer.json", "summary.json"]
    printed = " ".join(capsys.readouterr().out.split())
    assert f"reports/ddp held the report of {tmp_path}/a/ddp/rank0.json, which this one replaces" in printed


@pytest.mark.parametrize(("kept", "is_used"), [(0.7, True), pytest.param(0.3, False, marks=pytest.mark.thorough)])
def test_a_file_that_is_cut_off_gives_no_figures_of_steps(capsys, kept, is_used):
    """Its launches and operations lie behind all operators: what is left of them is of every step."""
    Path("job").mkdir()
    for place, rank in enumerate(sorted(Path(DDP).rglob("*.json.gz"))):
        packed = rank.read_bytes()
        Path("job", f"rank{place}.json.gz").write_bytes(packed if place else packed[: int(len(packed) * kept)])
    assert typed("job -o out --format json --format csv") == 0
    printed = " ".join(capsys.readouterr().out.split())
    headline = summary("out")["results"]["headline"]
    if is_used:
        assert [row["basis"] for row in headline] == ["whole capture", "whole capture"]
        steps = pd.read_csv("out/tables/steps.csv").dropna(subset="step")
        assert steps.groupby("rank")["is_complete"].any().tolist() == [False, True]
        assert "Trace cut off: rank 0." in printed
        said = ("GPU is idle", "GPU idles")
        assert not [words for words in said if words in printed], "nothing is concluded of what a cut file lacks"
    else:
        assert [row["rank"] for row in headline] == [1]
        assert "cut off before its first GPU operation" in printed


@pytest.mark.parametrize(("limit", "code"), [(-1, 1), pytest.param(200, 0, marks=pytest.mark.thorough)])
def test_a_reader_who_leaves_changes_no_exit_code(limit, code):
    words = [job("good"), *["-o", "out", "--format", "json", "--fail-on"], f"idle_pct > {limit}"]
    command = [sys.executable, "-m", "traceanalyzer", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == code
    assert summary("out")


def test_a_misspelt_command_is_told_from_a_folder(capsys):
    for line, said in (("dif a b", "did you mean diff?"), ("sumary a", "did you mean query summary?"),
                       ("gate a", "no folder is called 'gate'; commands are baseline,"), ("gate", "gate: no such folder")):  # fmt: skip
        assert typed(line) == 2
        assert said in capsys.readouterr().err
    Path("dif").mkdir()
    assert typed("dif") == 2
    assert "did you mean" not in capsys.readouterr().err


def test_a_demo_needs_nothing_and_says_what_next(capsys):
    assert typed("demo -o out") == 0
    printed = capsys.readouterr().out
    assert "Pipeline bubble:" in printed
    assert "analyze-traces diff" in printed
    assert Path("out", "summary.html").exists()


def test_the_longest_kernels_and_operators_are_printed_when_asked_for(capsys):
    assert run([MOE, *["--top", "3", "-o", "x", "--format", "md", "--format", "xlsx", "--format", "csv"]]) == 0
    printed = capsys.readouterr().out
    assert "Kernels and copies, mean over ranks, whole capture" in printed
    assert ("aten::" in printed, " inf " in printed) == (True, False)
    assert "| rank | step ms |" in Path("x", "summary.md").read_text()
    assert "| kernels | " in Path("x", "tables", "index.md").read_text()
    sheets = zipfile.ZipFile("x/summary.xlsx").read("xl/workbook.xml").decode()
    assert all(f'name="{name}"' in sheets for name in ("summary", "tables", "kernels", "headline"))
