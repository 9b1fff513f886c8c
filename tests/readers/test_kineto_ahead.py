"""A large trace that forks decode while the program loads: the same tables, whatever becomes of the forks."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from traceanalyzer.cli import ahead as command_ahead
from traceanalyzer.files import cached
from traceanalyzer.forks import IS_PROGRAM

SAMPLE = Path(__file__).parent.parent / "captures" / "ddp" / "rank0.json.gz"

_IN_A_PROGRAM = """
import os, signal, sys
from pathlib import Path
from pandas.testing import assert_frame_equal
from traceanalyzer.decoding import batches as ahead
from traceanalyzer.forks import IS_PROGRAM
from traceanalyzer.kinds import KindRules
from traceanalyzer.model.schema import TABLES
from traceanalyzer.readers.base import FILE_ORDER, RankHint
from traceanalyzer.readers.kineto import read

ahead.WORTH_BYTES, ahead.CHUNKS_A_BATCH = 1 << 20, 1
plain, packed, cut = (Path(word) for word in sys.argv[1:])

def tables(path):
    [trace] = read(path, RankHint(0, FILE_ORDER), KindRules())
    return {name: trace.table(name) for name in TABLES}

def assert_same(found):
    for name, table in alone.items():
        assert_frame_equal(found[name], table, check_exact=True, check_categorical=True, obj=name)

alone = tables(plain)
assert len(alone["gpu_ops"]) > 1000
with ahead.decoded_ahead(plain, 3) as is_begun:
    assert not is_begun  # a user's process is not forked
IS_PROGRAM.set(True)
for processes in (2, 5):
    with ahead.decoded_ahead(plain, processes) as is_begun:
        assert is_begun
        assert ahead.taken_over(packed) is None
        assert_same(tables(plain))
        assert ahead.taken_over(plain) is None  # it is handed over once
        assert_same(tables(plain))
def forks():
    return [wait._fork.process for wait in ahead._BEGUN.get().forks]

with ahead.decoded_ahead(plain, 3):
    for process in forks():
        os.kill(process, signal.SIGKILL)
    assert_same(tables(plain))
with ahead.decoded_ahead(plain, 3):
    begun, own = ahead._BEGUN.get(), forks()
for process in own:  # nobody asked for it: they ended, and were waited for
    assert not Path(f"/proc/{process}").exists()
assert not begun.folder.exists()
with ahead.decoded_ahead(plain, 3):
    for file in ahead._BEGUN.get().folder.iterdir():
        file.unlink(missing_ok=True)  # as where the disk is full
    assert_same(tables(plain))
for path, processes in ((packed, 3), (cut, 3), (plain.parent / "absent.json", 3), (plain, 1)):
    with ahead.decoded_ahead(path, processes) as is_begun:
        assert not is_begun, path
assert ahead._BEGUN.get() is None
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
def test_what_is_decoded_ahead_is_what_reading_gives(tmp_path):
    text = gzip.decompress(SAMPLE.read_bytes())
    plain, cut = tmp_path / "rank0.json", tmp_path / "no_trace.json"
    plain.write_bytes(text)
    cut.write_bytes(b"x" * (2 << 20))
    ran = subprocess.run(
        [sys.executable, "-c", _IN_A_PROGRAM, str(plain), str(SAMPLE), str(cut)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ran.stdout, ran.stderr) == ("done\n", "")


_LOADED_WHEN_IT_BEGINS = """
import sys
from contextlib import contextmanager
from traceanalyzer.cli import main
from traceanalyzer.decoding import batches as ahead
from traceanalyzer.forks import IS_PROGRAM

@contextmanager
def begun(path, processes):
    print(path.name, processes, *(name for name in ("pandas", "traceanalyzer.analyses") if name in sys.modules))
    yield True

ahead.decoded_ahead = begun
IS_PROGRAM.set(True)
main(["--trace-dir", sys.argv[1], "--output", sys.argv[2], "--jobs", "3", "--no-cache", "--format", "csv", "-q"])
"""


def test_it_begins_before_pandas_is_loaded(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rank0.json").write_bytes(
        gzip.decompress((SAMPLE.parents[1] / "moe" / "rank0.json.gz").read_bytes())
    )
    ran = subprocess.run(
        [sys.executable, "-c", _LOADED_WHEN_IT_BEGINS, str(tmp_path / "in"), str(tmp_path / "out")],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr, ran.returncode) == ("rank0.json 3\n", "", 0)


OPTIONS = {"trace_dir": None, "trace_files": (), "scheduler": None, "ranks": None, "no_cache": True}


@pytest.mark.parametrize(
    ("files", "options", "is_guessed"),
    [
        (["rank0.json"], {}, True),
        (["rank0.json", "run.json"], {}, True),
        (["rank0.json", "rank1.json"], {}, False),
        (["rank0.json", "rank_1/a.json"], {}, False),
        (["rank0.json.gz"], {}, False),
        ([], {}, False),
        (["rank0.json"], {"ranks": "1"}, False),
        (["rank0.json"], {"scheduler": "local"}, False),
    ],
)
def test_which_file_seems_to_be_all_there_is(tmp_path, files, options, is_guessed):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    path = tmp_path / "rank0.json"
    guessed = [path] if is_guessed else []
    assert _guessed(None, {**OPTIONS, **options, "trace_dir": tmp_path}) == guessed
    assert _guessed(tmp_path, {**OPTIONS, **options}) == guessed
    if files == ["rank0.json"]:
        assert _guessed(None, {**OPTIONS, **options, "trace_files": (path,)}) == guessed
        assert _guessed(None, {**OPTIONS, **options, "trace_files": (path, path)}) == []
        assert _guessed(path, {**OPTIONS, **options}) == guessed


def test_what_is_kept_of_a_file_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    path = tmp_path / "rank0.json"
    path.write_text("{}")
    options = {**OPTIONS, "no_cache": False}
    assert _guessed(path, options) == [path]
    folder = cached.default_folder()
    (folder / cached.name_of(path, path.stat(), ("any",))).mkdir(parents=True)
    assert _guessed(path, options) == []
    assert _guessed(path, OPTIONS) == [path]
    path.write_text("{ }")
    assert _guessed(path, options) == [path]


def _guessed(folder, options):
    token = IS_PROGRAM.set(True)
    try:
        found = command_ahead._only_trace(folder, options)
    finally:
        IS_PROGRAM.reset(token)
    assert command_ahead._only_trace(folder, options) is None  # in a user's process
    return [] if found is None else [found]
