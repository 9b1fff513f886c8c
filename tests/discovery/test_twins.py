"""Files that are copies of others are no ranks, and are named."""

import pytest

import traceanalyzer as ta
from tests.builders import document, kernel, write


@pytest.mark.parametrize(
    ("plain", "copy"),
    [("rank0.json", "rank0 (copy).json"), ("trace.json", "Copy of trace.json"), ("trace.json", "trace(1).json")],
)
def test_a_copy_is_named_and_the_plain_file_read(tmp_path, plain, copy):
    for name in (copy, plain):
        write(tmp_path / name, document([kernel(0, 5)], world_size=1))
    traces = ta.load(tmp_path)
    assert [trace.meta.files for trace in traces.ranks] == [(plain,)]
    (skipped,) = traces.skipped
    assert skipped.what.endswith(copy)
    assert skipped.why == f"a copy of {tmp_path / plain}, which is read instead"


def test_files_of_one_size_that_differ_are_ranks_of_their_own(tmp_path):
    for name, start in (("a.json", 1), ("b.json", 2)):
        write(tmp_path / name, document([kernel(start, 5)]))
    traces = ta.load(tmp_path)
    assert (len(traces.ranks), traces.skipped) == (2, ())
    assert len({path.stat().st_size for path in tmp_path.iterdir()}) == 1
