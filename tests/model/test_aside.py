"""Large tables lie in files that the system may take out of memory, and are what they are in memory."""

import gc
import mmap
import tempfile
from types import SimpleNamespace

import msgspec
import numpy as np
import pandas as pd
import pytest

from traceanalyzer.files import unnamed
from traceanalyzer.files.unnamed import give_back_grown, give_back_memory, laid_in
from traceanalyzer.model import RankMeta, aside, trace_of
from traceanalyzer.model.aside import arrays_aside, laid_aside, rearranged
from traceanalyzer.model.schema import TABLES
from traceanalyzer.model.tables import columns_of, table_of

COUNT = 5000  # fewer lie in one block of their table

COLUMNS = {
    "times": np.arange(COUNT) + 2**60,
    "values": np.linspace(0, 1, COUNT),
    "flags": np.arange(COUNT) % 3 == 0,
    "names": pd.Categorical.from_codes(np.arange(COUNT) % 3 - 1, categories=pd.Index(["a", "b"], dtype="str")),
    "sizes": pd.arrays.IntegerArray(np.arange(COUNT), np.arange(COUNT) % 2 == 0),
    "texts": pd.array(["x", None] * (COUNT // 2), dtype="str"),
    "objects": pd.arrays.NumpyExtensionArray(np.array([1, "y"] * (COUNT // 2), dtype=object)),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(unnamed, "LARGE_BYTES", 1000)
    monkeypatch.setattr(unnamed, "_is_on_disk", lambda _: True)
    with laid_in(tmp_path):
        yield tmp_path


def lying(table):
    """Columns of which every array lies in a file."""
    held = {name: aside._arrays_of(values) for name, values in columns_of(table).items()}
    parts = {name: getattr(table[name].array, "_data", None) for name in held if table[name].dtype == "Int64"}
    arrays = {name: (parts.get(name, own[0]),) for name, own in held.items() if own}
    return {name for name, own in arrays.items() if all(map(is_of_a_file, own))}


def is_of_a_file(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, memoryview | mmap.mmap) and isinstance(getattr(array, "obj", array), mmap.mmap)


def test_a_large_table_lies_in_a_file_and_is_the_same(folder):
    table = table_of(COLUMNS)
    laid = laid_aside(table)
    pd.testing.assert_frame_equal(laid, table)
    assert lying(laid) == {"times", "values", "flags", "names", "sizes"}
    assert not lying(table)
    assert not [*folder.iterdir()]  # without a name: whoever is killed leaves nothing
    give_back_memory()
    pd.testing.assert_frame_equal(laid, table)


@pytest.mark.usefixtures("folder")
def test_rows_are_put_in_order_while_columns_are_taken_out():
    order = np.random.default_rng(1).permutation(COUNT)
    columns = {**COLUMNS}
    sorted_rows = rearranged(columns, order)
    assert not columns
    pd.testing.assert_frame_equal(sorted_rows, table_of(COLUMNS).take(order).reset_index(drop=True))
    assert "times" in lying(sorted_rows)


def test_small_tables_and_those_of_the_library_stay_in_memory(folder):
    small = table_of({"times": np.arange(10)})
    assert laid_aside(small) is small
    assert not lying(rearranged({"times": np.arange(10)}, None))
    with laid_in(folder):
        unnamed._FOLDER.set(None)
        assert not lying(laid_aside(table_of(COLUMNS)))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("room", [0, 3])
def test_what_finds_no_room_stays_in_memory(room, monkeypatch):
    written, left = aside._Sheet._written, [None] * room

    def full(sheet, array):
        if not left:
            raise OSError(28, "No space left on device")
        left.pop()
        return written(sheet, array)

    monkeypatch.setattr(aside._Sheet, "_written", full)
    laid = laid_aside(table_of(COLUMNS))
    pd.testing.assert_frame_equal(laid, table_of(COLUMNS))
    assert len(lying(laid)) == room


@pytest.mark.usefixtures("folder")
def test_without_a_file_tables_stay_in_memory(monkeypatch):
    def refused(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    assert not lying(laid_aside(table_of(COLUMNS)))


@pytest.mark.usefixtures("folder")
def test_a_disk_that_is_nearly_full_is_left_to_others(monkeypatch):
    table = table_of(COLUMNS)
    need = unnamed._LEFT_FREE * sum(values.nbytes for values in columns_of(table).values())
    for free, is_laid in ((need, False), (need + 1, True)):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert bool(lying(laid_aside(table))) is is_laid


@pytest.mark.usefixtures("folder")
def test_a_disk_that_says_nothing_is_left_alone(monkeypatch):
    def gone(_):
        raise OSError(2, "No such file or directory")

    monkeypatch.setattr("shutil.disk_usage", gone)
    table = table_of(COLUMNS)
    assert laid_aside(table) is table


@pytest.mark.usefixtures("folder")
def test_a_file_goes_with_the_last_table_that_uses_it():
    before = len(unnamed._MAPS)
    laid = laid_aside(table_of(COLUMNS))
    kept = laid[["times"]]
    del laid
    gc.collect()
    assert len(unnamed._MAPS) == before + 1
    assert int(kept["times"].iloc[-1]) == 2**60 + COUNT - 1
    del kept
    gc.collect()
    assert len(unnamed._MAPS) == before


@pytest.mark.parametrize(
    ("mounts", "is_on_disk"),
    [
        ("dev / ext4 rw 0 0\ntmpfs {0} tmpfs rw 0 0", False),
        ("dev / ext4 rw 0 0\ntmpfs {0}/other tmpfs rw 0 0", True),
        ("tmpfs / tmpfs rw 0 0\ndev {0} ext4 rw 0 0", True),
        ("dev {0} ext4 rw 0 0\ntmpfs {0} tmpfs rw 0 0", False),  # the later mount lies over the earlier
        ("", False),
    ],
)
def test_files_in_memory_are_no_disk(mounts, is_on_disk, tmp_path, monkeypatch):
    table = tmp_path / "mounts"
    table.write_text(mounts.format(tmp_path))
    monkeypatch.setattr(unnamed, "_MOUNTS", table)
    assert unnamed._is_on_disk(tmp_path) is is_on_disk


@pytest.mark.usefixtures("folder")
def test_tables_that_a_trace_is_made_of_are_not_held_twice():
    times = np.arange(COUNT)[::-1].copy()
    given = {
        "host_ops": pd.DataFrame({"start_ns": times, "end_ns": times + 1, "name": pd.Categorical(["x"] * COUNT)}),
        "counters": pd.DataFrame({"time_ns": times, "value": 1.0, "name": pd.Categorical(["x"] * COUNT)}),
    }
    trace = trace_of(RankMeta(0, "path", (), "kineto"), given)
    assert not given
    for name in ("host_ops", "counters"):
        numbers = {column for column, dtype in TABLES[name].items()}
        assert lying(trace.table(name)) == numbers
    assert trace.host_ops["start_ns"].is_monotonic_increasing


class Held(msgspec.Struct, frozen=True):
    """Something with arrays."""

    large: np.ndarray
    views: tuple[np.ndarray, ...]
    small: np.ndarray
    table: pd.DataFrame
    said: dict[str, object]


def held():
    large = np.arange(300_000).reshape(2, -1)
    views = large[0, ::2], np.asfortranarray(large)
    return Held(large, views, np.arange(3), table_of(COLUMNS), {"name": "x", "also": large})


def test_large_arrays_of_anything_lie_in_a_file(folder):
    given = held()
    laid = arrays_aside(given)
    assert is_of_a_file(laid.large)
    assert is_of_a_file(laid.views[1])
    assert not is_of_a_file(laid.small)
    assert laid.said["also"] is laid.large  # what was one array is one
    np.testing.assert_array_equal(laid.large, given.large)
    for own, other in zip(laid.views, given.views, strict=True):
        np.testing.assert_array_equal(own, other)
    pd.testing.assert_frame_equal(laid.table, given.table)
    assert not [*folder.iterdir()]
    with pytest.raises(ValueError, match="read-only"):
        laid.large[0] = 0


@pytest.mark.usefixtures("folder")
def test_what_lies_in_a_file_or_in_a_table_is_left_there():
    laid = arrays_aside(held())
    assert arrays_aside(laid) is laid
    times = columns_of(table_of({"times": np.arange(300_000)}))["times"]
    assert arrays_aside((times,))[0] is times


@pytest.mark.usefixtures("folder")
def test_arrays_that_find_no_room_stay_in_memory(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(aside, "append", full)
    given = held()
    assert arrays_aside(given) is given


@pytest.mark.usefixtures("folder")
def test_freed_memory_is_given_back_when_much_more_is_held(monkeypatch):
    given, held_bytes = [], [0]
    unnamed._HELD.set(0)
    monkeypatch.setattr(unnamed, "give_back_freed", lambda: given.append(held_bytes[0]))
    monkeypatch.setattr(unnamed, "anonymous_bytes", lambda: held_bytes[0])
    laid = [laid_aside(table_of(COLUMNS))]
    for megabytes in (10, 70, 80, 130, 140):
        held_bytes[0] = megabytes << 20
        give_back_grown()
    assert given == [70 << 20, 140 << 20]
    monkeypatch.setattr(unnamed, "_MAPS", [])
    held_bytes[0] = 900 << 20
    give_back_grown()
    assert given == [70 << 20, 140 << 20], laid  # nothing large
