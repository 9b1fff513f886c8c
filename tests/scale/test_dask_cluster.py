"""The same results on one process, several, and on a cluster of which a worker dies; files from object storage."""

import os
import signal
import time
from functools import partial

import pytest

from tests.simulator import capture, kineto, run, scenarios
from traceanalyzer.discovery import discover
from traceanalyzer.errors import InputError
from traceanalyzer.loading import LoadOptions, read_capture
from traceanalyzer.scale import each_file, summarise
from traceanalyzer.scale.work import Limits, connected, each, reduce_capture, thinned

NAMES = ("ranks", "breakdown", "steps", "calls", "timeline")

RANKS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    kineto.write(capture(run(scenarios.ddp(RANKS, steps=2, buckets=2))), folder)
    (folder / "rank99.json.gz").write_bytes(b"\x1f\x8b broken")
    return folder


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("distributed")
    with connected("local", 2) as made:
        yield made


def figures(folder, jobs, progress=None):
    found = discover(folder)
    summary = summarise(
        found, found.runs[-1], LoadOptions(), names=NAMES, jobs=jobs, progress=progress, most_operations=50
    )
    return {name: result.to_frame().to_json() for name, result in summary.results.items()}, summary.skipped


def test_processes_and_the_cluster_give_the_same(folder, cluster):
    alone, skipped = figures(folder, 1)
    told = []
    assert figures(folder, 2) == (alone, skipped)
    assert figures(folder, cluster, lambda *counts: told.append(counts)) == (alone, skipped)
    assert [item.what.rpartition("/")[2] for item in skipped] == ["rank99.json.gz"]
    assert told[-1] == (RANKS, RANKS)


def test_only_the_timelines_that_are_kept_leave_the_workers(folder, cluster):
    captures, limits = discover(folder).runs[-1].captures, Limits(drawn=50, replayed=0)
    work = partial(reduce_capture, options=LoadOptions(), names=NAMES, thresholds={}, is_guarded=False)
    rows = [
        [len(tables["timeline"]) for done in files for _, tables in done.ranks]
        for files in (
            each(work, captures, cluster, None, limits=limits),
            thinned(each(work, captures, 1, None), limits),
        )
    ]
    assert rows[0] == rows[1]
    assert 0 < len([held for held in rows[0] if held]) < RANKS


def rank_of(captured, marks=None):
    """The rank; the first worker that comes to rank 3 dies over it."""
    (rank,) = captured.ranks
    if marks is not None and rank == 3:
        try:
            (marks / "died").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    (trace,) = read_capture(captured, LoadOptions(), [])
    return rank, len(trace.gpu_ops)


def test_what_a_dead_worker_had_is_done_again(folder, cluster, tmp_path):
    job = discover(folder).runs[-1]
    alone = each_file(job, rank_of, jobs=1)
    assert each_file(job, partial(rank_of, marks=tmp_path), jobs=cluster) == alone
    assert (tmp_path / "died").exists()


def test_no_scheduler_is_said():
    pytest.importorskip("distributed")
    began = time.monotonic()
    with pytest.raises(InputError, match="no scheduler of Dask answers"), connected("tcp://127.0.0.1:9", timeout_s=1):
        pass
    assert time.monotonic() - began < 30


def test_without_dask_the_extra_is_named(monkeypatch):
    import sys

    from traceanalyzer.errors import UsageError

    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"\.\[cluster\]"), connected("local"):
        pass
