"""What the machine does to a run: full disks, missing rights, signals, killed processes, two runs at once."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.builders import NAMES, document, host, kernel, write
from tests.cli import job as small
from tests.cli import summary, typed
from tests.cli.killed import kill_once
from tests.conftest import sampled
from traceanalyzer.cli import run
from traceanalyzer.errors import UsageError
from traceanalyzer.report import writers

COMMAND = [sys.executable, "-m", "traceanalyzer"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(writers.__file__).parents[3]))


def job(place="job", ranks=2, kernels=4):
    for rank in range(ranks):
        events = [event for number in range(1, kernels + 1) for event in (
            host(number * 30, 2, name="cudaLaunchKernel", cat="cuda_runtime", correlation=number),
            kernel(number * 30 + 5, 20, correlation=number, name=NAMES["comm" if number % 2 else "compute"]),
        )]  # fmt: skip
        write(Path(place, f"rank{rank}.json"), document(events, rank=rank, world_size=ranks))
    return place


def left(place):
    return sorted(path.relative_to(place).as_posix() for path in place.rglob("*"))


def ended(*arguments, **options):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=300, check=False, **options)


@contextlib.contextmanager
def disk_of(most):
    """No file of this process may grow beyond so many bytes; of modules that it loads, no half bytecode is kept."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1][1]))
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_none
        resource.setrlimit(resource.RLIMIT_FSIZE, before[1])
        signal.signal(signal.SIGXFSZ, before[0])


def test_a_full_disk_is_said_and_the_older_report_stays(capsys):
    def times():
        return {path: path.stat().st_mtime_ns for path in Path("out").rglob("*")}

    job()
    assert typed("job -o out --format csv -q --jobs 1") == 0
    before = times()
    with disk_of(20_000):
        assert typed("job -o out --format html --jobs 1") == 2
    assert "cannot be written (File too large)" in capsys.readouterr().err
    assert times() == before


@pytest.mark.usefixtures("analysed_anew")
@pytest.mark.parametrize(
    ("arguments", "place"),
    [(["export", "job", "--jobs", "1", "--kineto"], "new/cut"), (["export", "job", "--jobs", "1"], "new/x.pftrace.gz"),
     (["tools", "reproduce", "job", "aten::mm"], "new/mm.py"), (["baseline", "save", "main"], ".traceanalyzer/baselines/main.json")],
)  # fmt: skip
def test_a_full_disk_is_said_of_single_files_too(tmp_path, capsys, arguments, place):
    mm = {"External id": 1, "Input Dims": [[2, 2]] * 2, "Input Strides": [[2, 1]] * 2, "Input type": ["float"] * 2}
    events = [host(0, 50, name="aten::mm", **mm), host(1, 2, name="cudaLaunchKernel", cat="cuda_runtime", correlation=1),
              kernel(5, 20, correlation=1, **{"External id": 1})]  # fmt: skip
    write(Path("job") / "rank0.json", document(events, rank=0, world_size=1))
    whole = [*arguments, "job"] if "save" in arguments else [*arguments, "-o", place]
    before = left(tmp_path)
    with disk_of(200):
        assert run(whole) == 2
    assert f"{place}: cannot be written (File too large)" in capsys.readouterr().err
    assert left(tmp_path) == before
    assert run(whole) == 0


def as_nobody(*arguments):
    """Exit code and words of the command, run by one who has no rights here."""
    child = os.fork()
    if not child:
        with Path("said").open("w") as file, contextlib.redirect_stderr(file):
            os.setgid(65534)
            os.setuid(65534)
            code = run([*arguments])
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), Path("said").read_text()


@pytest.mark.usefixtures("analysed_anew")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_no_permission_is_said():
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        Path(place).chmod(0o755)
        check_permissions(Path(place))


def check_permissions(tmp_path):
    job()
    assert typed("job -o out --format json -q --jobs 1") == 0  # what is imported, is
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (Path("job") / "rank1.json").chmod(0o600)
    arguments = ["job", "--format", "json", "--jobs", "1", "-q"]
    code, said = as_nobody(*arguments, "-o", "closed/out")
    assert (code, "Permission denied" in said) == (2, True), said
    folders = {"rank_1": 0o700, "rank_2": 0o711, "rank_3": 0o744}  # each says nothing of what it holds
    for name, mode in folders.items():
        (Path("job") / name).mkdir()
        (Path("job") / name).chmod(mode)
    code, said = as_nobody(*arguments, "-o", "open/out")
    assert code == 0, said
    skipped = json.loads((tmp_path / "open" / "out" / "summary.json").read_text())["skipped"]
    assert sorted((one["what"], one["why"]) for one in skipped) == [
        (f"job/{name}", "cannot be read (Permission denied)") for name in ("rank1.json", *folders)
    ]
    (Path("job")).chmod(0o700)
    code, said = as_nobody("query", "summary", "job", "--jobs", "1")
    assert (code, "job: cannot be read (Permission denied)" in said) == (2, True), said


SIGNALLED = """
import importlib, os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with Ctrl-C ignored
from traceanalyzer.__main__ import main
_, module, name, number, *sys.argv[1:] = sys.argv
program, place = os.getpid(), importlib.import_module(module)
there = getattr(place, name)
def signalled(*given, **named):
    setattr(place, name, there)
    if name == "_settle":  # libraries have threads of their own, to which the system gives what this one lets not in
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    os.kill(program, int(number))
    return there(*given, **named)
setattr(place, name, signalled)
main()
"""
"""The command, which gets a signal when it first comes to a place of its own code."""

FOLDER = "traceanalyzer.report.writers"
BEGINS, READS = ("traceanalyzer.cli", "main"), ("traceanalyzer.execution", "signals_wait")
WRITTEN, SETTLES = (FOLDER, "_alone"), (FOLDER, "_settle")
TERMINATED, INTERRUPTED = (signal.SIGTERM, 143), (signal.SIGINT, 130)


@pytest.mark.parametrize("when", sampled([
    (WRITTEN, INTERRUPTED), (WRITTEN, TERMINATED), (READS, TERMINATED), (READS, INTERRUPTED),
    (SETTLES, INTERRUPTED), (SETTLES, TERMINATED), (BEGINS, INTERRUPTED),
], every=2), ids=lambda when: f"{when[0][1]}-{when[1][1]}")  # fmt: skip
def test_a_signal_leaves_nothing_half_written(when):
    place, (number, code) = when
    ranks, jobs = (4, "2") if place == READS else (1, "1")  # when it writes, whoever read has ended
    job(ranks=ranks)
    words = [*place, str(int(number)), "job", "-o", "out", "--jobs", jobs, "--format", "json"]
    process = subprocess.Popen([sys.executable, "-c", SIGNALLED, *words], stdout=-3, stderr=subprocess.PIPE, text=True)
    _, said = process.communicate(timeout=300)
    assert process.returncode == code, said
    assert "Traceback" not in said
    # Renaming what is written is not interrupted.
    assert left(Path("out")) == ([writers.RECORD, "summary.json"] if place == SETTLES else [])
    assert all_ended(process.pid)


def all_ended(parent):
    """Whether all processes that this one started end; five minutes are for a machine that is busy."""
    began = time.monotonic()
    while started(parent) and time.monotonic() - began < 300:
        time.sleep(0.2)
    return not started(parent)


@pytest.mark.thorough
def test_processes_end_with_one_that_is_killed():
    job(ranks=4, kernels=2000)
    process = subprocess.Popen([*COMMAND, "job", "-o", "out", "--jobs", "2"], stdout=-3, stderr=-3)
    began = time.monotonic()
    while not started(process.pid) and time.monotonic() - began < 300 and process.poll() is None:
        time.sleep(0.1)
    process.kill()
    process.wait(300)
    assert all_ended(process.pid)


def started(parent):
    return [place for place in Path("/proc").glob("[0-9]*/cmdline") if _mentions(place, f"parent_pid={parent}")]


def _mentions(place, words):
    try:
        return words.encode() in place.read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("is_once", sampled([False, True], every=2))
def test_a_killed_worker_costs_no_other_file(tmp_path, is_once):
    from functools import partial

    from traceanalyzer.discovery import discover
    from traceanalyzer.scale import work as scale_work

    captures = discover(Path(job(ranks=3))).runs[0].captures
    work = partial(kill_once, mark=tmp_path / "mark" if is_once else None)
    done = [*scale_work.each(work, captures, 2, None, lambda capture, why: (capture.path.name, why))]
    assert [done[0], done[2]] == ["rank0.json", "rank2.json"]
    assert done[1] == "rank1.json" if is_once else "more memory than there is" in done[1][1]


def broken(*_args, **_named):
    raise ZeroDivisionError("a bug")


@pytest.mark.filterwarnings("ignore::traceanalyzer.errors.PartFailedWarning")
def test_a_reader_that_fails_costs_its_file_only(monkeypatch, capsys):
    from traceanalyzer import readers

    job()
    read = readers.reader_of

    def one_broken(path):
        reader = read(path)
        if path.name != "rank1.json":
            return reader
        return type("Broken", (), {"peek": reader.peek, "read": broken})

    monkeypatch.setattr(readers, "reader_of", one_broken)
    assert typed("job -o out --jobs 1 --format json") == 3
    assert "rank1.json could not be computed: ZeroDivisionError" in capsys.readouterr().err
    assert len(summary("out")["results"]["breakdown"]) == 1


def test_too_little_memory_is_no_bug(monkeypatch, capsys):
    job()

    def full(*_args, **_named):
        raise MemoryError

    monkeypatch.setattr("traceanalyzer.report.contents.build", full)
    assert typed("job -o out --jobs 1") == 2
    assert "not enough memory" in capsys.readouterr().err
    monkeypatch.setattr("traceanalyzer.scale.work.reduce_rank", full)
    assert typed("job -o out --jobs 1") == 2
    assert "needs more memory than there is" in capsys.readouterr().err
    assert left(Path("out")) == []


def test_two_runs_into_one_folder_leave_one_whole_report():
    for name, kernels in (("one", 4), ("two", 8)):
        job(name, kernels=kernels)
    runs = [subprocess.Popen([*COMMAND, name, *["-o", "out", "--format", "csv", "--format", "json", "-q"]], stderr=-1) for name in ("one", "two")]  # fmt: skip
    for process in runs:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    record = json.loads(Path("out", writers.RECORD).read_text())
    kernels = {"one": 4, "two": 8}[Path(record["source"]).name]
    assert sum(row["calls"] for row in summary("out")["results"]["kernels"]) == 2 * kernels
    assert {*record["files"]} == {one for one in left(Path("out")) if Path("out", one).is_file()} - {writers.RECORD}


def test_a_link_out_of_the_folder_is_not_written_through(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    Path("out").mkdir()
    Path("out", "tables").symlink_to(tmp_path / "elsewhere")
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.raises(UsageError, match="is a link"))
        draft = stack.enter_context(writers.whole(Path("out"), "s", "c"))
        (draft.path / "tables").mkdir()
        (draft.path / "tables" / "a.csv").write_text("x")
    assert left(tmp_path / "elsewhere") == []


def test_files_that_change_while_they_are_read_are_said(monkeypatch, capsys):
    from traceanalyzer.report import contents

    job()
    made = contents.build

    def slow(*args, **named):
        with (Path("job") / "rank0.json").open("a") as file:
            file.write(" ")
        return made(*args, **named)

    monkeypatch.setattr(contents, "build", slow)
    assert typed("job -o out --jobs 1 --format json") == 0
    assert "changed while they were read" in capsys.readouterr().out.replace("\n", " ")


BARE = {"HOME": "/nowhere", "COLUMNS": "1", "LINES": "1"}
ASCII = {"TERM": "dumb", "LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    "environment", sampled([BARE | ASCII, {"HOME": "", "COLUMNS": "20"}, BARE, {"COLUMNS": "8"}], every=4)
)
def test_odd_surroundings(environment):
    job()
    found = ended("job", "-o", "out", "--format", "json", env={**os.environ, **environment})
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("closed", sampled(["</dev/null >/dev/full", ">&-", ">&- 2>&-", "| true"], every=4))
def test_nobody_listens(closed):
    job()
    words = f"{sys.executable} -m traceanalyzer job -o out --format json {closed}; test -f out/summary.json"
    found = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in found.stderr
    assert found.returncode == 0, found.stderr


@pytest.mark.usefixtures("analysed_anew")
def test_links_out_of_a_folder_of_traces_are_followed_on_request_only(capsys):
    def ranks(line):
        assert typed(line) == 0
        return [row["rank"] for row in summary("out")["results"]["breakdown"]]

    small("elsewhere", ranks=2)
    small("in", ranks=2)
    Path("in", "rank1.json").unlink()
    Path("in", "rank1.json").symlink_to(Path("elsewhere", "rank1.json").absolute())
    assert ranks("in -o out --format json") == [0]
    assert any("--follow-links" in one["why"] for one in summary("out")["skipped"])
    assert ranks("in -o out --format json --follow-links") == [0, 1]
    capsys.readouterr()
    assert typed("query summary in --json --jobs 1") == 0
    assert "--follow-links" in capsys.readouterr().out
    assert typed("query table in breakdown --json --jobs 1 --follow-links") == 0
    assert [row["rank"] for row in json.loads(capsys.readouterr().out)["rows"]] == [0, 1]
    Path("in", "rank0.json").unlink()
    for line in ("in", "query compare in in --json --jobs 1"):
        assert typed(line) == 2
        assert "--follow-links" in capsys.readouterr().err
    assert typed("query compare in in --json --jobs 1 --follow-links") == 0


def test_links_to_snapshots_outside_are_followed_on_request_only(capsys):
    from tests.snapshots.builders import write as write_snapshot
    from tests.snapshots.test_snapshots import leak

    Path("in").mkdir()
    place = Path("rank1_snapshot.pickle").absolute()
    write_snapshot(place, leak().snapshot())
    Path("in", place.name).symlink_to(place)
    for line, code in (("in -o out", 2), ("in -o out --follow-links", 0), ("diff in ./in -o two", 2),
                       ("diff in ./in -o two --follow-links", 0)):  # fmt: skip
        assert typed(line) == code
        said = "Skipped: in/rank1_snapshot.pickle (a link to outside the folder" in capsys.readouterr().err
        assert said == (code == 2)


@pytest.mark.parametrize(
    ("line", "place"),
    [("export in -o x.pftrace.gz", "x.pftrace.gz"), ("export in -o x.json", "x.json"),
     ("export in --kineto -o cut", "cut/rank_0.pt.trace.json.gz"), ("in -o out --format csv -q", "out/summary.csv")],
)  # fmt: skip
def test_commands_replace_their_own_files_only(capsys, line, place):
    small("in")
    Path(place).parent.mkdir(exist_ok=True)
    Path(place).write_text("mine")
    assert typed(line) == 2
    assert "--force" in capsys.readouterr().err
    assert Path(place).read_text() == "mine"
    assert typed(line + " --force") == 0
    assert typed(line) == 0  # its own gives way
    assert Path(place).read_bytes()[:4] != b"mine"
