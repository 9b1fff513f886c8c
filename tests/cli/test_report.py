"""The main command, as a user types it."""

import csv
import json
import subprocess
import sys
import zipfile

import pandas as pd
import pytest

from tests.builders import NAMES, document, host, kernel, write
from tests.samples import SAMPLES
from traceanalyzer.cli import cli, run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def small(tmp_path):
    """A job of one kernel, for what does not depend on what a trace holds."""
    write(tmp_path / "small" / "rank0.json", document([kernel(0, 5)], rank=0, world_size=1))
    return "small"


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def test_writes_page_csv_and_json(tmp_path, capsys):
    kernels = [kernel(0, 5), kernel(3, 5, name=NAMES["comm"], stream=17)]
    write(tmp_path / "two" / "rank0.json", document(kernels, rank=0, world_size=1))
    assert run(["two"]) == 0
    folder = tmp_path / "reports" / "two"
    assert {path.name for path in folder.iterdir()} == {
        "summary.html", "summary.csv", "summary.json", "tables", ".traceanalyzer.json",
    }  # fmt: skip
    printed = capsys.readouterr().out
    assert "reports/two/summary.html" in printed
    assert "Overlap %" in printed


def test_limits_of_rules_and_of_analyses_can_be_set(tmp_path):
    asked = ["--threshold", "late_gain_pct=1000", "--threshold", "bins=2"]
    assert run([str(SAMPLES / "ddp"), "--output", "out", "--format", "json", *asked]) == 0
    made = summary(tmp_path / "out")
    assert "late_ranks" not in {finding["id"] for finding in made["findings"]}
    assert [row["rank"] for row in made["results"]["gpu_utilization"]] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("silent_pc=3", "no threshold is called 'silent_pc'; did you mean silent_pct"),
        ("silent_pct", "write NAME=VALUE, the value a number"),
        ("silent_pct=nan", "write NAME=VALUE, the value a number"),
        ("bins=2.5", "write NAME=VALUE, the value a whole number"),
        ("hosts=3", "no threshold is called 'hosts'"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(small, capsys, limit, said):
    assert run([small, "--threshold", limit]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_json_and_csv_say_the_same(tmp_path):
    assert run([str(SAMPLES / "ddp"), "--output", "out", "--format", "json", "--format", "csv"]) == 0
    found = summary(tmp_path / "out")
    assert list(found) == [
        "format_version", "label", "created", "version", "command", "run_info", "ranks", "results", "files", "tables", "doubted",
        "findings", "skipped", "notes", "memory_snapshots",
    ]  # fmt: skip
    assert (found["format_version"], found["label"], found["ranks"]) == (3, "ddp", [0, 1])
    with (tmp_path / "out" / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row, expected in zip(rows, found["results"]["breakdown"], strict=True):
        assert row.pop("caveat") == ""
        assert {name: float(value) for name, value in row.items()} == pytest.approx(expected)
    calls = pd.read_csv(tmp_path / "out" / "tables" / "calls.csv")
    assert len(calls) == 85
    assert "calls" not in found["results"]


def test_parquet_holds_results_and_events(tmp_path):
    assert run([str(SAMPLES / "moe"), "--output", "out", "--format", "parquet"]) == 0
    breakdown = pd.read_parquet(tmp_path / "out" / "tables" / "breakdown.parquet")
    ops = pd.read_parquet(tmp_path / "out" / "events" / "gpu_ops" / "rank_1.parquet")
    assert breakdown["rank"].tolist() == [0, 1]
    assert (ops["rank"] == 1).all()
    assert set(ops["step"].dropna()) == {1, 2, 3}
    assert not (tmp_path / "out" / "summary.html").exists()


def test_a_new_report_clears_only_its_own_tables(tmp_path):
    mine = [
        tmp_path / "out" / "tables" / "my_paper.csv",
        tmp_path / "out" / "events" / "gpu_ops" / "rank_notes.parquet",
    ]
    for rank in (0, 1):
        write(tmp_path / "job" / f"rank{rank}.json", document([kernel(0, 5)], rank=rank, world_size=2))
    assert run(["job", "--output", "out", "--format", "parquet"]) == 0
    for path in mine:
        path.write_text("mine")
    assert run(["job", "--output", "out", "--format", "parquet", "--ranks", "0"]) == 0
    assert sorted(path.name for path in (tmp_path / "out" / "events" / "gpu_ops").iterdir()) == [
        "rank_0.parquet",
        "rank_notes.parquet",
    ]
    assert all(path.exists() for path in mine)


def test_nothing_is_removed_when_nothing_can_be_analysed(tmp_path, small):
    assert run([small, "--output", "out", "--format", "csv"]) == 0
    before = sorted(path.name for path in (tmp_path / "out" / "tables").iterdir())
    assert run(["nowhere", "--output", "out"]) == 2
    assert sorted(path.name for path in (tmp_path / "out" / "tables").iterdir()) == before


def test_parquet_events_carry_the_ranks_of_the_report(tmp_path):
    for name, time in (("a", 10), ("b", 20)):
        events = [kernel(time, 1), kernel(time + 1, 1, device=1)]
        write(tmp_path / "in" / f"{name}.json", document(events))
    assert run(["in", "--output", "out", "--format", "parquet"]) == 0
    starts = {
        int(path.stem.removeprefix("rank_")): pd.read_parquet(path)["start_ns"].tolist()
        for path in (tmp_path / "out" / "events" / "gpu_ops").iterdir()
    }
    assert starts == {0: [10_000], 1: [11_000], 2: [20_000], 3: [21_000]}


ODD = ("\u00b21.json", "x\udcff.json", "a\x1b[31m.json", "100% \n.json")


def test_odd_file_names(tmp_path, capsys):
    for place, name in enumerate(ODD):
        write(tmp_path / "in" / name, document([kernel(place, 5)]))
        write(tmp_path / "in" / ("not " + name), b"nonsense")
    assert run(["in", "--output", "out", "--format", "json"]) == 0
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    found = summary(tmp_path / "out")
    assert (found["ranks"], len(found["skipped"])) == ([0, 1, 2, 3], len(ODD))


def several_runs(tmp_path, *, bad):
    """Three runs of one rank, a hundred seconds apart; those in `bad` hold nothing of PyTorch's."""
    for number in range(3):
        at = number * 100_000_000
        events = [host(at, 5, name="x", cat="other")] if number in bad else [kernel(at, 5)]
        write(tmp_path / "in" / f"t{number}.json", document(events, rank=0, world_size=1, base_ns=10**18))


def test_all_runs_of_a_folder_and_a_bad_one_does_not_hide_the_others(tmp_path, capsys):
    several_runs(tmp_path, bad=[0])
    assert run(["in", "--select", "all", "--output", "out", "--format", "json"]) == 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "run_1_20010909-014820",
        "run_2_20010909-015000",
    ]
    assert "t0.json: a Chrome trace without PyTorch operators" in capsys.readouterr().err


def test_no_run_of_several_is_chosen_for_a_gate(tmp_path, capsys):
    several_runs(tmp_path, bad=[])
    gate = ["--fail-on", "idle_pct > 99"]
    assert run(["in", *gate, "--output", "out"]) == 2
    assert "name one run, or add --select all: the folder holds 3 runs (t0, t1, t2)" in capsys.readouterr().err
    assert run(["diff", "in/t0.json", "in", *gate, "--output", "out"]) == 2
    assert run(["in", "--select", "all", *gate, "--output", "out", "--format", "json"]) == 0
    assert run(["in/t1.json", *gate, "--output", "one", "--format", "json"]) == 0


def test_processes_give_the_same_figures(tmp_path):
    for rank in (0, 1):
        write(tmp_path / "job" / f"rank{rank}.json", document([kernel(0, 5 + rank)], rank=rank, world_size=2))
    for jobs in ("1", "2"):
        assert run(["job", "--jobs", jobs, "--output", jobs, "--format", "json"]) == 0
    assert summary(tmp_path / "1")["results"] == summary(tmp_path / "2")["results"]


def test_a_kind_rule_changes_the_breakdown(tmp_path):
    write(tmp_path / "job" / "rank0.json", document([kernel(0, 5, name=NAMES["comm"])], rank=0, world_size=1))
    assert run(["job", "--kernel-kind", "compute=nccl", "--output", "out", "--format", "json"]) == 0
    (row,) = summary(tmp_path / "out")["results"]["breakdown"]
    assert (row["comm_ns"], row["compute_ns"]) == (0, 5_000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace-dir", "nowhere"], "nowhere: no such folder"),
        (["--trace-dir", ""], "Invalid value for '--trace-dir': it is empty (an unset variable?)"),
        (["", "--steps", "last"], "it is empty"),
        (["good", "--output", ""], "Invalid value for '--output'"),
        (["empty"], "no traces here; record them with torch.profiler or nsys (README: How to record traces)"),
        (["empty"], ".nsys-rep files or their exports, .sqlite files or folders of Parquet"),
        (["database"], "database/job.sqlite: not an SQLite database; export the report again"),
        (["--trace-file", "database/job.sqlite"], "database/job.sqlite: not an SQLite database"),
        (["--trace-file", "database/notes.txt"], "database/notes.txt: no trace; expected .json"),
        (["--trace-file", "nowhere.json"], "no such file"),
        (["bad"], "no traceEvents"),
        (["cut"], "cut off before its first event"),
        (["--steps", "x", "good"], "--steps"),
        (["--steps", "4:2", "good"], "--steps '4:2' is reversed: write 2:4"),
        (["--ranks", "0,3-1", "good"], "3-1 is reversed; write 1-3"),
        (["--kernel-kind", "x", "good"], "--kernel-kind"),
        (["--ranks", "9", "good"], "this run has rank 0"),
        (["good", "--trace-dir", "good"], "name the traces once"),
        (["--select", "all"], "name the traces once"),
        (["good", "--nonsense"], "No such option"),
        (["good", "--output", "good/rank0.json/x"], "cannot be written"),
    ],
)
def test_a_mistake_is_one_clear_line_and_code_2(tmp_path, capsys, arguments, message):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "bad" / "rank0.json", b"not json")
    write(tmp_path / "database" / "job.sqlite", b"")
    write(tmp_path / "database" / "notes.txt", b"notes")
    write(tmp_path / "cut" / "rank0.json", b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name"')
    write(tmp_path / "good" / "rank0.json", document([kernel(0, 5)], rank=0, world_size=1))
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_trace_without_gpu_operations_is_said(tmp_path, capsys):
    step = host(0, 9, name="ProfilerStep#3", cat="user_annotation")
    write(tmp_path / "in" / "rank0.json", document([step, host(1, 5, name="aten::mm")], rank=0))
    assert run(["in"]) == 0
    printed = capsys.readouterr().out
    assert "what the CPUs do (no GPU work in this capture)" in printed
    assert printed.lower().count("no gpu work") == 2, "above the table, and why"
    assert "The main thread is longest in aten::mm: 5 µs a step." in printed.replace("\u202f", " ")
    page = (tmp_path / "reports" / "in" / "summary.html").read_text()
    assert "1 rank, no GPU work" in page
    assert "Work on the CPU" in page
    assert "A step takes 9 µs on the host. The main thread is in aten::mm for 56 %" in page.replace("\u202f", " ")
    assert 'class="bar' not in page, "there is no picture of it"
    assert "No rule reached its threshold" not in page
    assert "Without GPU work no rule about it can hold" in page


def test_a_bug_of_ours_is_code_70(monkeypatch, capsys):
    monkeypatch.setattr("traceanalyzer.scale.summarise", lambda *_a, **_k: 1 / 0)
    assert run([str(SAMPLES / "moe")]) == 70
    error = capsys.readouterr().err
    assert "ZeroDivisionError" in error
    assert "Traceback" not in error
    assert run([str(SAMPLES / "moe"), "--verbose"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_while_writing_leaves_no_half_report(tmp_path, monkeypatch):
    def interrupt(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("traceanalyzer.report.writers.tables.write_csv", interrupt)
    assert run([str(SAMPLES / "moe"), "--output", "out", "--format", "html", "--format", "csv"]) == 130
    assert not (tmp_path / "out").exists()


def test_another_run_of_the_same_name_is_told_apart(tmp_path, capsys):
    for place, length in (("a", 5), ("b", 7)):
        content = document([kernel(0, length)], rank=0, world_size=1)
        write(tmp_path / place / "ddp" / "rank0.json", content)
    out = tmp_path / "reports" / "ddp"
    assert run(["a/ddp", "--format", "html"]) == 0
    assert run(["a/ddp", "--format", "csv"]) == 0
    assert {"summary.html", "summary.csv"} < {path.name for path in out.iterdir()}
    assert "replaces" not in capsys.readouterr().out
    assert run(["b/ddp", "--format", "json"]) == 0
    assert {path.name for path in out.iterdir()} == {"summary.json", ".traceanalyzer.json"}
    printed = " ".join(capsys.readouterr().out.split())
    assert f"reports/ddp held the report of {tmp_path}/a/ddp/rank0.json, which this one replaces" in printed


def test_every_command_has_help_and_an_example():
    for name, command in cli.commands.items():
        assert command.help, name
        assert command.get_short_help_str(), name


def test_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "traceanalyzer.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert "analyze-traces" in done.stdout


@pytest.mark.thorough
def test_a_gate_does_not_pass_without_the_rank_that_was_skipped(tmp_path, capsys):
    write(tmp_path / "job" / "rank0.json", document([kernel(0, 5)], rank=0))
    write(tmp_path / "job" / "rank1.json", b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name"')
    gate = ["--fail-on", "idle_pct > 5 @ any rank", "--format", "json"]
    assert run(["job", *gate]) == 1
    printed = capsys.readouterr().out
    assert "NOT AVAILABLE" in printed
    assert "rank1.json: cut off" in printed
    assert run(["job", *gate, "--ranks", "0"]) == 0


@pytest.mark.parametrize(("kept", "is_used"), [(0.7, True), pytest.param(0.3, False, marks=pytest.mark.thorough)])
def test_a_file_that_is_cut_off_gives_no_figures_of_steps(tmp_path, capsys, kept, is_used):
    """Its launches and operations lie behind all operators: what is left of them is of every step."""
    for place, rank in enumerate(sorted((SAMPLES / "ddp").rglob("*.json.gz"))):
        packed = rank.read_bytes()
        write_raw(tmp_path / "job" / f"rank{place}.json.gz", packed if place else packed[: int(len(packed) * kept)])
    assert run(["job", "--output", "out", "--format", "json", "--format", "csv"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    headline = summary(tmp_path / "out")["results"]["headline"]
    if is_used:
        assert [row["basis"] for row in headline] == ["whole capture", "whole capture"]
        steps = pd.read_csv(tmp_path / "out" / "tables" / "steps.csv").dropna(subset="step")
        assert not steps.loc[steps["rank"] == 0, "is_complete"].any()
        assert steps.loc[steps["rank"] == 1, "is_complete"].any()
        assert "Rank 0's file is cut off" in printed
        assert (printed.count("with it GPU operations of any step"), printed.count("figures with care")) == (1, 1)
        said = ("GPU is idle", "GPU idles")
        assert not [words for words in said if words in printed], "nothing is concluded of what a cut file lacks"
    else:
        assert [row["rank"] for row in headline] == [1]
        assert "cut off before its first GPU operation" in printed


def write_raw(path, data):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize(("limit", "code"), [(-1, 1), pytest.param(200, 0, marks=pytest.mark.thorough)])
def test_a_reader_who_leaves_changes_no_exit_code(tmp_path, limit, code):
    write(tmp_path / "good" / "rank0.json", document([kernel(0, 5)], rank=0, world_size=1))
    words = ["good", "--output", "out", "--format", "json", "--fail-on", f"idle_pct > {limit}"]
    command = [sys.executable, "-m", "traceanalyzer.cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == code
    assert (tmp_path / "out" / "summary.json").exists()


def test_a_misspelt_command_is_told_from_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["dif", "a", "b"]) == 2
    assert "did you mean diff?" in capsys.readouterr().err
    assert run(["gate", "a"]) == 2
    assert "no folder is called 'gate'; commands are baseline," in capsys.readouterr().err
    assert run(["gate"]) == 2
    assert "gate: no such folder" in capsys.readouterr().err
    (tmp_path / "dif").mkdir()
    assert run(["dif"]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_a_demo_needs_nothing_and_says_what_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["demo", "--output", "out"]) == 0
    printed = capsys.readouterr().out
    assert "Stage 1 (rank 1) computes" in printed
    assert "analyze-traces diff" in printed
    assert (tmp_path / "out" / "summary.html").exists()


def test_the_longest_kernels_and_operators_are_printed_when_asked_for(tmp_path, capsys):
    formats = [part for name in ("md", "xlsx", "csv") for part in ("--format", name)]
    assert run([str(SAMPLES / "moe"), "--top", "3", *formats, "-o", str(tmp_path / "x")]) == 0
    printed = capsys.readouterr().out
    assert "Kernels and copies of a mean rank, whole capture" in printed
    assert " inf " not in printed
    assert "aten::" in printed
    assert "| rank | step |" in (tmp_path / "x" / "summary.md").read_text()
    assert "| kernels | " in (tmp_path / "x" / "tables" / "index.md").read_text()
    book = zipfile.ZipFile(tmp_path / "x" / "summary.xlsx")
    sheets = book.read("xl/workbook.xml").decode()
    assert all(f'name="{name}"' in sheets for name in ("summary", "tables", "kernels", "headline"))
