"""The cache gives what reading would give, or nothing; and harms nobody."""

import os
import shutil
import time
from pathlib import Path

import pandas as pd
import pytest

from tests.builders import document, kernel, write
from traceanalyzer.cli import run
from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.loading import LoadOptions, load, store
from traceanalyzer.model import RankMeta, make_trace
from traceanalyzer.model.schema import TABLES
from traceanalyzer.readers import RankHint, kineto, nsys

CAPTURES = Path(__file__).parents[1] / "captures"

SAMPLE = CAPTURES / "moe" / "rank0.json.gz"

HINT = RankHint(0, "path")


pytestmark = pytest.mark.usefixtures("analysed_anew")


@pytest.fixture(autouse=True)
def _small_and_new_files_count(monkeypatch):
    monkeypatch.setattr(store, "WORTH_BYTES", 0)
    monkeypatch.setattr(store, "_UNSETTLED_NS", 0)


@pytest.fixture
def trace_file(tmp_path):
    return Path(shutil.copy(SAMPLE, tmp_path / "rank0.json.gz"))


def ranks(folder, path, options=(), asked=None):
    def read():
        if asked is not None:
            asked.append(path)
        yield from kineto.read(path, HINT, KindRules())

    return list(store.through(folder, path, options, read()))


def assert_same(one, other):
    assert one.meta == other.meta
    assert one.window == other.window
    for name in TABLES:
        pd.testing.assert_frame_equal(one.table(name), other.table(name), check_exact=True, check_categorical=True)


@pytest.mark.parametrize(
    "traces",
    [
        lambda: list(kineto.read(SAMPLE, HINT, KindRules())),
        lambda: list(nsys.read(CAPTURES / "nsys_naive" / "naive.sqlite", HINT, KindRules())),
        lambda: [make_trace(RankMeta(3, "path", ("a",), "kineto", notes=("one",), versions={"cuda": "13.0"}))],
    ],
    ids=["kineto", "nsys", "no events"],
)
def test_what_comes_back_is_what_was_read(traces, tmp_path, trace_file):
    made = traces()
    assert len(list(store.through(tmp_path / "kept", trace_file, (), iter(made)))) == len(made)
    back = list(store.through(tmp_path / "kept", trace_file, (), iter(())))
    assert len(back) == len(made) > 0
    for one, other in zip(made, back, strict=True):
        assert_same(one, other)


def test_a_file_is_read_once(tmp_path, trace_file):
    asked = []
    first = ranks(tmp_path / "kept", trace_file, asked=asked)
    again = ranks(tmp_path / "kept", trace_file, asked=asked)
    assert asked == [trace_file]
    assert_same(first[0], again[0])
    assert store.contents(tmp_path / "kept").entries == 1


def rewritten(path):
    """The same size, and the same time of modification."""
    state = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def replaced(path):
    shutil.copy2(path, path.with_name("other")).replace(path)


def touched(path):
    os.utime(path, (5, 5))


@pytest.mark.parametrize("change", [rewritten, replaced, touched])
def test_a_file_that_changed_is_read_again(change, tmp_path, trace_file):
    asked = []
    ranks(tmp_path / "kept", trace_file, asked=asked)
    time.sleep(0.02)
    change(trace_file)
    ranks(tmp_path / "kept", trace_file, asked=asked)
    assert len(asked) == 2


def test_a_file_that_changed_just_now_is_not_kept(tmp_path, trace_file, monkeypatch):
    monkeypatch.setattr(store, "_UNSETTLED_NS", 3600 * 10**9)
    ranks(tmp_path / "kept", trace_file)
    assert store.contents(tmp_path / "kept").entries == 0


def test_a_file_that_changes_while_it_is_read_is_not_kept(tmp_path, trace_file):
    def read():
        yield from kineto.read(trace_file, HINT, KindRules())
        touched(trace_file)

    assert len(list(store.through(tmp_path / "kept", trace_file, (), read()))) == 1
    assert store.contents(tmp_path / "kept").entries == 0


def test_what_is_no_trace_or_not_read_to_its_end_leaves_nothing(tmp_path, trace_file):
    def read():
        raise NotATraceError("no")
        yield

    with pytest.raises(NotATraceError):
        list(store.through(tmp_path / "kept", trace_file, (), read()))
    reading = store.through(tmp_path / "kept", trace_file, (), kineto.read(trace_file, HINT, KindRules()))
    assert len(next(reading).gpu_ops)
    reading.close()
    assert [*(tmp_path / "kept").iterdir()] == []


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def other(path):
    path.write_bytes(b"{}")


def one_bit(path):
    held = bytearray(path.read_bytes())
    held[len(held) // 2] ^= 1
    path.write_bytes(held)


@pytest.mark.parametrize("name", ["meta.json", "tables.columns"])
@pytest.mark.parametrize("harm", [cut, Path.unlink, other, one_bit])
def test_a_damaged_entry_is_as_none(name, harm, tmp_path, trace_file):
    whole = ranks(tmp_path / "kept", trace_file)
    [entry] = (tmp_path / "kept").iterdir()
    harm(entry / "0" / name)
    assert_same(whole[0], ranks(tmp_path / "kept", trace_file)[0])
    mended = ranks(tmp_path / "kept", trace_file, asked=(asked := []))
    assert_same(whole[0], mended[0])
    assert asked == []


def test_a_place_that_cannot_be_written_is_no_error(tmp_path, trace_file):
    (tmp_path / "kept").write_text("a file")
    assert len(ranks(tmp_path / "kept", trace_file)) == 1


def test_the_longest_unused_goes_when_it_is_full(tmp_path, monkeypatch):
    files = [Path(shutil.copy(SAMPLE, tmp_path / f"{number}.json.gz")) for number in range(3)]
    kept = tmp_path / "kept"
    ranks(kept, files[0])
    size = store.contents(kept).size_bytes
    monkeypatch.setattr(store, "MOST_BYTES", size * 2 + size // 2)
    for file in (files[1], files[0], files[2]):
        time.sleep(0.02)
        ranks(kept, file)
    asked = []
    for file in (files[0], files[2], files[1]):
        ranks(kept, file, asked=asked)
    assert asked == [files[1]]


def test_two_runs_at_once_keep_one_whole_entry(tmp_path, trace_file):
    kept = tmp_path / "kept"
    first, second = (store.through(kept, trace_file, (), kineto.read(trace_file, HINT, KindRules())) for _ in range(2))
    assert_same(next(first), next(second))
    assert [*first, *second] == []
    assert store.contents(kept).entries == len([*kept.iterdir()]) == 1


def test_the_library_keeps_nothing_unless_told(tmp_path, monkeypatch, trace_file):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    load(trace_file)
    assert not (tmp_path / "home").exists()
    assert LoadOptions().cache is None


@pytest.mark.usefixtures("analysed_anew")
def test_a_second_run_writes_the_same_tables(tmp_path, monkeypatch):
    """From the cache, in which tables without rows are kept, too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for name in ("first", "second"):
        assert run([str(CAPTURES / "ddp"), "-o", str(tmp_path / name), "--format", "csv", "--jobs", "1", "-q"]) == 0
    tables = [
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.csv")} for name in ("first", "second")
    ]
    assert tables[0] == tables[1]
    assert len(tables[0]) > 50


@pytest.mark.usefixtures("analysed_anew")
def test_the_command(tmp_path, monkeypatch, capsys):
    trace_file = tmp_path / "rank0.json"
    write(trace_file, document([kernel(0, 5)], rank=0, world_size=1))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    target = tmp_path / "out"
    arguments = ["--trace-file", str(trace_file), "-o", str(target), "--format", "csv", "--jobs", "1", "-q"]
    assert run([*arguments, "--no-cache"]) == 0
    assert not (tmp_path / "home").exists()
    assert run(arguments) == 0
    assert run(["tools", "cache", "info"]) == 0
    assert "(traces read: 1, analyzed: 0, whole runs: 0)" in capsys.readouterr().out
    figures = (target / "summary.csv").read_bytes()
    assert run(arguments) == 0
    assert (target / "summary.csv").read_bytes() == figures
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_args, **_named: None)  # as on a disk that is mounted to be read
        assert run(["tools", "cache", "clear"]) == 2
    assert "1 of 1 entries cannot be removed" in capsys.readouterr().err
    assert run(["tools", "cache", "clear"]) == 0
    assert "Removed " in capsys.readouterr().out
    assert run(["tools", "cache", "info"]) == 0
    assert ": 0 B (traces read: 0, analyzed: 0, whole runs: 0)" in capsys.readouterr().out
