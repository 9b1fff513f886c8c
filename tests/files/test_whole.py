"""Files that are written whole or not at all, whoever else writes them and whatever comes between."""

import os
from pathlib import Path
from threading import Thread

import pytest

from traceanalyzer.errors import UsageError
from traceanalyzer.files.whole import whole_file, whole_files


def left(place):
    return sorted(path.relative_to(place).as_posix() for path in place.rglob("*"))


def write(path, text):
    with whole_file(path) as draft:
        draft.write_text(text)


def broken(path, error):
    with whole_file(path) as draft:
        draft.write_text("half")
        raise error


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("a bug")])
def test_what_fails_leaves_what_was_there(tmp_path, error):
    write(tmp_path / "old" / "file", "whole")
    for place in (tmp_path / "old" / "file", tmp_path / "new" / "deep" / "file"):
        is_disk = isinstance(error, OSError)
        with pytest.raises(UsageError if is_disk else type(error), match=f"{place}: cannot" if is_disk else None):
            broken(place, error)
    assert left(tmp_path) == ["old", "old/file"]
    assert (tmp_path / "old" / "file").read_text() == "whole"


def test_an_error_of_another_file_is_that_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="trace"):
        broken(tmp_path / "out" / "file", FileNotFoundError(2, "No such file", str(tmp_path / "in" / "trace")))
    assert left(tmp_path) == []


def test_two_writers_at_once_leave_one_whole_file(tmp_path):
    with whole_file(tmp_path / "file") as first:
        first.write_text("fir")
        write(tmp_path / "file", "second")
        assert (tmp_path / "file").read_text() == "second"
        with first.open("a") as file:
            file.write("st")
    assert (tmp_path / "file").read_text() == "first"
    assert left(tmp_path) == ["file"]


def test_files_of_one_work_appear_together(tmp_path):
    with whole_files(tmp_path / "out") as drafts:
        for name in "ab":
            (drafts / name).write_text(name)
        assert not list((tmp_path / "out").glob("?"))
    assert left(tmp_path / "out") == ["a", "b"]


def test_what_is_no_file_stays_what_it_is(tmp_path):
    pipe, told = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = Thread(target=lambda: told.append(Path(pipe).read_text()))
    reader.start()
    write(pipe, "content")
    reader.join()
    assert told == ["content"]
    assert pipe.is_fifo()
    with pytest.raises(UsageError, match=f"{tmp_path}: cannot be written \\(it is a folder"):
        write(tmp_path, "a folder")
