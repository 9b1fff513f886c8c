"""Columns that grow as events are decoded: many of their numbers lie in a file, which they are the same for."""

import mmap

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.decoding import columns
from traceanalyzer.decoding.columns import Growing, Names
from traceanalyzer.files import unnamed
from traceanalyzer.files.unnamed import laid_in

ROWS = np.arange(1000)


@pytest.fixture(params=["a file", "no folder"])
def place(request, tmp_path, monkeypatch):
    """Where large columns lie."""
    monkeypatch.setattr(columns, "LARGE_BYTES", 1000)
    monkeypatch.setattr(unnamed, "LARGE_BYTES", 999)
    monkeypatch.setattr(columns, "_HELD_BYTES", 100)
    monkeypatch.setattr(unnamed, "_is_on_disk", lambda _: request.param == "a file")
    with laid_in(tmp_path):
        yield request.param


def grown(pieces):
    made = Growing(np.int64)
    for piece in np.array_split(ROWS, pieces):
        made.extend(piece)
    return made


def lies_in_a_file(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(getattr(array, "obj", array), mmap.mmap)


@pytest.mark.parametrize("pieces", [1, 7, 100])
def test_numbers_are_the_same_wherever_they_lie(pieces, place):
    array = grown(pieces).array()
    np.testing.assert_array_equal(array, ROWS)
    assert lies_in_a_file(array) is (place == "a file")
    array += 1  # times are moved to where the capture began
    np.testing.assert_array_equal(array, ROWS + 1)


def test_few_numbers_lie_in_memory(place):
    made = Growing(np.int64)
    made.extend(ROWS[:125])
    assert not lies_in_a_file(made.array()), place


@pytest.mark.parametrize("room_bytes", [0, 1999, 5000])
@pytest.mark.parametrize("place", ["a file"], indirect=True)
def test_a_disk_that_is_full_leaves_numbers_in_memory(room_bytes, place, monkeypatch):
    written = []

    def full(file, content):
        room = room_bytes - sum(written)
        written.append(file.write(memoryview(content)[: max(0, room)]))
        if written[-1] < len(content):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(columns, "append", full)
    array = grown(100).array()
    np.testing.assert_array_equal(array, ROWS)
    assert not lies_in_a_file(array), place


def test_codes_of_many_names_lie_there_too(place, monkeypatch):
    monkeypatch.setattr(columns, "_ROWS_A_BLOCK", 100)
    names = Names()
    texts = [None if row % 3 == 0 else f"name {row % 200}" for row in range(3000)]
    names.extend(texts)
    codes, held = names.column()
    assert [held[code] if code >= 0 else None for code in codes.tolist()] == texts
    assert codes.dtype == np.int16
    assert lies_in_a_file(codes) is (place == "a file")


@pytest.mark.parametrize(("texts", "dtype"), [(126, np.int8), (127, np.int16), (32766, np.int16), (32767, np.int32)])
def test_codes_are_as_narrow_as_those_of_pandas(texts, dtype):
    assert columns._narrowest(texts) is dtype
    assert pd.Categorical.from_codes([0], categories=[*map(str, range(texts))]).codes.dtype == dtype
