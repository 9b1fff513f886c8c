"""Files that are copies of others are no ranks, and are named."""

import pytest

import traceanalyzer as ta
from tests.builders import document, kernel, write
from traceanalyzer.discovery import discover


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


def test_no_two_ranks_record_the_same_times(tmp_path):
    """One file was copied under another rank's name; ranks that recorded nothing may hold the same bytes."""
    for name in ("rank0.json", "rank1.json"):
        write(tmp_path / "twice" / name, document([kernel(0, 5)]))
    traces = ta.load(tmp_path / "twice")
    assert [trace.rank for trace in traces.ranks] == [0]
    (skipped,) = traces.skipped
    assert skipped.what.endswith("rank1.json")
    assert skipped.why.endswith("rank0.json, which is read instead: no two ranks record the same times")
    for name in ("rank0.json", "rank1.json"):
        write(tmp_path / "empty" / name, document([]))
    (run,) = discover(tmp_path / "empty").runs
    assert [capture.ranks for capture in run.captures] == [(0,), (1,)]


@pytest.mark.parametrize(("copies", "ranks"), [(1, [0]), (2, [0, 1, 2])])
def test_a_job_that_was_made_of_one_recording_is_read_as_it_is(tmp_path, copies, ranks):
    for rank in range(copies + 1):
        write(tmp_path / f"rank{rank}.json", document([kernel(0, 5)]))
    assert [trace.rank for trace in ta.load(tmp_path).ranks] == ranks


def test_files_of_one_size_that_differ_are_ranks_of_their_own(tmp_path):
    for name, start in (("a.json", 1), ("b.json", 2)):
        write(tmp_path / name, document([kernel(start, 5)]))
    traces = ta.load(tmp_path)
    assert (len(traces.ranks), traces.skipped) == (2, ())
    assert len({path.stat().st_size for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize(("starts", "ranks"), [((1, 2), [0, 1]), ((1, 1), [0])])
def test_files_that_begin_alike_are_compared_to_their_ends(tmp_path, starts, ranks):
    """As ranks of one program on like hosts: what differs lies behind the first thousands of bytes."""
    for rank, start in enumerate(starts):
        kernels = [kernel(100 + 10 * place, 5) for place in range(200)] + [kernel(start, 5)]
        write(tmp_path / f"rank{rank}.json", document(kernels))
    sizes = {path.stat().st_size for path in tmp_path.iterdir()}
    assert len(sizes) == 1
    assert min(sizes) > 1 << 14
    assert [trace.rank for trace in ta.load(tmp_path).ranks] == ranks
