"""Large tables lie in files that the system may take out of memory, and are what they are in memory."""

import mmap

import msgspec
import numpy as np
import pandas as pd
import pytest

from traceanalyzer.files import bounds
from traceanalyzer.files.bounds import give_back_memory, spilling_to
from traceanalyzer.model import tables as spilled_module
from traceanalyzer.model.tables import columns_of, spilled, table_of

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
    monkeypatch.setattr(bounds, "LARGE_BYTES", 1000)
    monkeypatch.setattr(bounds, "_is_on_disk", lambda _: True)
    with spilling_to(tmp_path):
        yield tmp_path


def lying(table):
    """Columns whose numbers or codes lie in a file."""
    parts = {"names": "codes", "sizes": "_data"}
    held = {name: getattr(values, parts.get(name, "base"), None) for name, values in columns_of(table).items()}
    return {name for name, array in held.items() if is_of_a_file(array)}


def is_of_a_file(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, memoryview | mmap.mmap) and isinstance(getattr(array, "obj", array), mmap.mmap)


def test_a_large_table_lies_in_a_file_and_is_the_same(folder):
    table = table_of(COLUMNS)
    laid = spilled(table)
    pd.testing.assert_frame_equal(laid, table)
    assert lying(laid) == {"times", "values", "flags", "names", "sizes"}
    assert not lying(table)
    assert not [*folder.iterdir()]  # without a name: whoever is killed leaves nothing
    give_back_memory()
    pd.testing.assert_frame_equal(laid, table)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("room", [0, 3])
def test_what_finds_no_room_stays_in_memory(room, monkeypatch):
    written, left = spilled_module._laid, [None] * room

    def full(file, content):
        if not left:
            raise OSError(28, "No space left on device")
        left.pop()
        return written(file, content)

    monkeypatch.setattr(spilled_module, "_laid", full)
    laid = spilled(table_of(COLUMNS))
    pd.testing.assert_frame_equal(laid, table_of(COLUMNS))
    assert len(lying(laid)) == room


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
