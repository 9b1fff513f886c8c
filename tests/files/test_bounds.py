"""Small files that ask for much memory are refused before they have it, by whichever reader they are for."""

import gzip
import resource
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import nsys_builders as nsys
from tests import xplane_builders as xplane
from traceanalyzer.files import bounds
from traceanalyzer.readers.xplane import messages

CONTAINERS = b"(" + b"}K\x01K\x01s" * 900_000 + b"e"
"""Of a pickle: dicts of 232 bytes each, of six."""


def _parquet(folder):
    """Rows that are all alike take nothing in Parquet."""
    path = nsys.write_parquet(folder / "a_pqtdir", nsys.export())
    kernels = path / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    row = pq.read_table(kernels).slice(0, 1)
    same = {name: np.full(4_000_000, row[name][0].as_py() or 0) for name in row.column_names}
    pq.write_table(pa.table(same), kernels, compression="zstd")
    return path


def _xplane(folder):
    """Events of two bytes."""
    path = xplane.write(folder / "a.xplane.pb")
    space = messages.space()
    space.ParseFromString(path.read_bytes())
    line = next(line for plane in space.planes for line in plane.lines if line.name.startswith(b"Stream"))
    line.events.extend([type(line.events[0])()] * 250_000)
    path.write_bytes(space.SerializeToString())
    return path


def _dump(folder):
    path = folder / "nccl_trace_rank_0"
    path.write_bytes(gzip.compress(b"\x80\x04}\x8c\x07entries]" + CONTAINERS + b"s."))
    return path


def _snapshot(folder):
    path = folder / "snapshot.pickle"
    path.write_bytes(gzip.compress(b"\x80\x04}\x8c\x08segments]" + CONTAINERS + b"s."))
    return path


READ = {
    _parquet: "from traceanalyzer.readers import header_of as read",
    _xplane: "from traceanalyzer.readers import RankHint, ranks_of\n"
    "from traceanalyzer.kinds import KindRules\n"
    "def read(path): return list(ranks_of(path, RankHint(0, 'path'), KindRules()))",
    _dump: "from traceanalyzer.doctor.flight_recorder import read_flight_recorder as read",
    _snapshot: "from traceanalyzer.snapshots import read_snapshot as read",
}

CODE = """
import sys, pathlib
from traceanalyzer.errors import InputError
from traceanalyzer.files import bounds
{imports}
bounds.ROOM_BYTES, bounds.ROOM_TIMES = {room} << 20, 20
try:
    read(pathlib.Path(sys.argv[1]))
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("make", READ, ids=lambda make: make.__name__)
@pytest.mark.parametrize("room", [64, pytest.param(2048, marks=pytest.mark.thorough)])
def test_a_reader_gets_so_much_memory_and_no_more(tmp_path, make, room):
    path = make(tmp_path)
    code = CODE.format(imports=READ[make], room=room)
    found = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    is_refused = "more memory" in found.stdout or "malloc" in found.stdout
    assert is_refused == (room < 2048), found.stdout


def test_room_is_taken_back_and_a_reader_in_another_has_what_the_first_one_got():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with bounds.memory_for(1 << 20):
        first = resource.getrlimit(resource.RLIMIT_DATA)
        with bounds.memory_for(1 << 40):
            assert resource.getrlimit(resource.RLIMIT_DATA) == first != before
        assert resource.getrlimit(resource.RLIMIT_DATA) == first
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
