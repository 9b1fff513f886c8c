"""A few damaged inputs of every kind; `python -m tests.fuzz` runs ten thousand."""

import time
import zlib

import pytest

from tests.conftest import sampled
from tests.fuzz.__main__ import case
from tests.fuzz.outcome import MOST_SECONDS
from tests.fuzz.targets import TARGETS

DEAR = ("summaries", "analyses", "analyses_of_tables")
"""A second a case."""

FILES = ("kineto", "nsys_sqlite", "nsys_parquet", "rocprofv3", "rocpd", "xplane", "snapshots")

FOUND = (
    ("nsys_parquet", 438), ("rocpd", 2421), ("xplane", 2976),
    ("nsys_sqlite", 172), ("nsys_parquet", 16), ("nsys_parquet", 37), ("nsys_parquet", 78), ("nsys_parquet", 276), ("rocpd", 3),
    ("rocpd", 14), ("rocpd", 21), ("rocpd", 71), ("rocpd", 90), ("xplane", 3), ("xplane", 128), ("xplane", 130), ("nccl_log", 0),
    ("flight_recorder", 9), ("flight_recorder", 66), ("inspector", 7), ("inspector", 21), ("inspector", 26), ("inspector", 65),
    ("inspector", 158), ("snapshots", 5), ("snapshots", 72), ("snapshots", 136), ("snapshots", 222), ("summaries", 3),
    ("summaries", 7), ("analyses", 42), ("analyses_of_tables", 37),
    ("kineto", 200191), ("kineto", 200571), ("flight_recorder", 100705), ("inspector", 100014), ("run_json", 204796),
    ("analyses", 1080),
    ("snapshots", 813), ("analyses", 1655), ("analyses", 229), ("analyses", 1160097), ("nccl_log", 1771773),
    ("archives", 5000443), ("archives", 5001832), ("archives", 6000094), ("kineto", 5003353), ("analyses", 5000009), ("summaries", 9001769),
)  # fmt: skip
"""Cases that ended in a traceback or a wrong figure when they were first run."""


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in DEAR])
def test_no_damaged_input_ends_in_a_bug(tmp_path, name, request):
    for seed in range(4 if request.config.getoption("--thorough") else 2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found = case(name, 50_000 + zlib.crc32(name.encode()) % 1000 + seed, folder)
        assert found.is_fine, (seed, found.place, found.story)


@pytest.mark.parametrize("once", sampled(FOUND, every=6), ids=str)
def test_what_was_found_once_stays_mended(tmp_path, once):
    found = case(*once, tmp_path)
    assert found.is_fine, (found.place, found.story)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FILES)
def test_no_small_file_takes_long_by_the_clock(tmp_path, name):
    """A case that waits spends no processor time: the limit of `judged` sees it only after two minutes, in every run."""
    for seed in range(60_000, 60_006):
        folder = tmp_path / str(seed)
        folder.mkdir()
        began = time.monotonic()
        found = case(name, seed, folder)
        assert time.monotonic() - began < MOST_SECONDS, (seed, found.what)
        assert found.is_fine, (seed, found.place, found.story)
