"""Inputs as an attacker would write them: each is read, or what is wrong with it is said."""

import gzip
import json
import os
import pickle
import shutil
import tarfile
import zipfile

import pytest

from tests.builders import NAMES, document, host, kernel, write
from traceanalyzer.cli import run
from traceanalyzer.discovery import discover
from traceanalyzer.errors import InputError
from traceanalyzer.job import run_info
from traceanalyzer.loading import LoadOptions
from traceanalyzer.scale import summarise
from traceanalyzer.snapshots.reading import read_snapshot

CALL = {"Collective name": "allreduce", "dtype": "Float", "Group size": 2, "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]"}  # fmt: skip


def events(more=(), name="gemm", elements=1000):
    return [
        host(1, 1, name="cudaLaunchKernel", cat="cuda_runtime", correlation=1),
        host(30, 1, name="cudaLaunchKernel", cat="cuda_runtime", correlation=2),
        kernel(5, 20, correlation=1, name=name),
        kernel(40, 20, name=NAMES["comm"], stream=17, correlation=2,
               **CALL, **{"In msg nelems": elements, "Out msg nelems": elements}),
        *more,
    ]  # fmt: skip


def job(folder, **how):
    for rank in range(2):
        write(folder / f"rank{rank}.json", document(events(**how), rank=rank))


RECORDED = host(0, 2_000, name="PyTorch Profiler (0)", cat="Trace")


def levels(allocated, reserved):
    args = {
        "Total Reserved": reserved,
        "Total Allocated": allocated,
        "Bytes": 5,
        "Addr": 5,
        "Device Id": 0,
        "Device Type": 1,
    }
    return {**host(7, 0, name="[memory]", cat="cpu_instant_event"), "ph": "i", "s": "t", "args": args}


def lied(folder, size):
    job(folder)
    (folder / "run.json").write_text(json.dumps({"format_version": 1, "world_size": size, "strategy": "ddp"}))


def of_a_world(folder, size):
    for rank in range(2):
        write(folder / f"rank{rank}.json", document(events(), rank=rank, world_size=size))


STEP = host(0, 30, name="ProfilerStep#1", cat="user_annotation")


def packed_with_garbage(folder):
    job(folder)
    packed = gzip.compress((folder / "rank1.json").read_bytes())
    (folder / "rank1.json").unlink()
    (folder / "rank1.json.gz").write_bytes(packed + b"garbage\0\1\2" * 99)


def followed_by_an_archive(folder):
    job(folder)
    with zipfile.ZipFile(folder / "rank1.json", "a") as archive:
        archive.writestr("x", "y")


def links_to_itself(folder):
    job(folder)
    (folder / "a").mkdir()
    (folder / "a" / "b").symlink_to(folder)
    (folder / "rank9.json").symlink_to(folder / "rank9.json")


def no_files(folder):
    job(folder)
    os.mkfifo(folder / "rank7.json")
    (folder / "rank8.json").mkdir()


def same_rank_twice(folder):
    job(folder)
    shutil.copy(folder / "rank1.json", folder / "rank2\n\x1b[31m.json")


def out_of_the_archive(folder):
    job(folder)
    with zipfile.ZipFile(folder / "t.zip", "w") as archive:
        archive.writestr("../../evil/rank5.json", "{}")
    with tarfile.open(folder / "t.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("rank6.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)


def said(folder):
    """Ranks that are read, checks that found something, and why files were skipped."""
    found = discover(folder)
    run = found.runs[-1]
    info, _ = run_info.read_or_note(run.info)
    made = summarise(found, run, LoadOptions(), names=["integrity", "ranks"], jobs=1, **run_info.thresholds(info))
    return (
        [row["rank"] for row in made.results["ranks"].rows()],
        {row["check"] for row in made.results["integrity"].rows()},
        " ".join(f"{one.what}: {one.why}" for one in made.skipped),
    )


CASES = {
    "nothing is odd": (job, set(), ""),
    "run.json is of more ranks": (lambda folder: lied(folder, 64), {"different_world_size"}, ""),
    "run.json is of a billion ranks": (lambda folder: lied(folder, 10**9), set(), ""),
    "traces of a billion ranks": (lambda folder: of_a_world(folder, 10**9), set(), ""),
    "steps far apart": (lambda folder: job(folder, more=[STEP | {"name": f"ProfilerStep#{10**12}"}, STEP]), set(), ""),
    "run.json is of as many": (lambda folder: lied(folder, 2), set(), ""),
    "more memory given out than held": (lambda folder: job(folder, more=[levels(174, 10)]), {"impossible_memory_levels"}, ""),
    "less memory given out than none": (lambda folder: job(folder, more=[levels(-1, 10)]), {"impossible_memory_levels"}, ""),
    "all memory given out": (lambda folder: job(folder, more=[levels(10, 10)]), set(), ""),
    "faster than any memory": (lambda folder: job(folder, elements=10**11), {"impossible_bandwidths"}, ""),
    "as fast as links are": (lambda folder: job(folder, elements=10**6), set(), ""),
    "sizes below nothing": (lambda folder: job(folder, elements=-1), set(), ""),
    "sizes beyond all memory": (lambda folder: job(folder, elements=2**61), set(), ""),
    "packed, and garbage": (packed_with_garbage, set(), ""),
    "a trace that is an archive, too": (followed_by_an_archive, set(), ""),
    "links in a circle": (links_to_itself, set(), "a link to a file that is not there"),
    "a pipe and a folder by names of ranks": (no_files, set(), "a pipe, a socket or a device, and no file"),
    "a rank twice, with an escape in the name": (same_rank_twice, set(), "which is read instead"),
    "archives that reach out": (out_of_the_archive, set(), "t.zip"),
    "ids beyond 64 bits": (lambda folder: job(folder, more=[kernel(90, 5, stream=2**70)]), {"unreadable_events"}, ""),
    "one of many operations a year away": (
        lambda folder: job(folder, more=[*(kernel(1_000 + 10 * n, 5) for n in range(50)), kernel(3.2e13, 5)]),
        {"unreadable_events"}, ""),
    "a year between two operations": (lambda folder: job(folder, more=[kernel(3.2e13, 5)]), {"far_apart"}, ""),
    "many operations long after the recording": (
        lambda folder: job(folder, more=[RECORDED, *(kernel(2e7 + 10 * n, 5) for n in range(9))]),
        {"outside_the_recording"}, ""),
    "a few operations long after the recording": (
        lambda folder: job(folder, more=[RECORDED, *(kernel(1_000 + 10 * n, 5) for n in range(50)), kernel(2e7, 5)]),
        {"unreadable_events"}, ""),
    "times of microseconds as if they were milliseconds": (
        lambda folder: job(folder, more=[kernel(100 + n, 0.008) for n in range(200)]),
        {"kernels_too_short", "copies_of_a_rank"}, ""),  # both ranks are given the same 200 operations
    "kernels without a name": (lambda folder: job(folder, name=""), {"kernels_without_name"}, ""),
    "names with NUL": (lambda folder: job(folder, name="ge\0mm\0"), set(), ""),
}  # fmt: skip

USUAL = {"operations_without_launch"}


@pytest.mark.parametrize("name", CASES)
def test_what_is_odd_is_said(tmp_path, name):
    make, checks, skipped = CASES[name]
    make(tmp_path)
    ranks, found, left_out = said(tmp_path)
    assert ranks == [0, 1]
    assert found - USUAL == checks
    assert (skipped in left_out) if skipped else not left_out, left_out
    assert not {"\n", "\x1b", "\0"} & set(left_out)


EVENT = {"action": "alloc", "addr": 1, "size": 2, "stream": 0, "time_us": 3, "frames": []}


@pytest.mark.parametrize("where", ["event", "frames"])
def test_a_snapshot_that_holds_itself_is_refused(tmp_path, where):
    endless = []
    endless.append(endless)
    made = {"segments": [], "device_traces": [[]]}
    made["device_traces"][0].append(made if where == "event" else {**EVENT, "frames": endless})
    path = tmp_path / "rank0_snapshot.pickle"
    path.write_bytes(pickle.dumps(made, protocol=4))
    with pytest.raises(InputError, match="not a snapshot as PyTorch writes it"):
        read_snapshot(path)


@pytest.mark.parametrize(("text", "said"), [("7,b00", "ranks 0 and 1"), ("0,b00", "rank 1"), ("0-1,b00", "")])
def test_ranks_whose_host_a_list_does_not_name_are_said(tmp_path, capsys, text, said):
    job(tmp_path / "job")
    (tmp_path / "hosts.csv").write_text(f"rank,host\n{text}\n")
    line = [str(tmp_path / "job"), "--hosts", str(tmp_path / "hosts.csv"), "-o", str(tmp_path / "out")]
    assert run([*line, "--format", "json", "--jobs", "1"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert (f"--hosts names no host of {said}." in printed) == bool(said)
    assert ("--hosts names" in printed) == bool(said)


@pytest.mark.parametrize("row", [{"rank": 0, "peak_allocated_bytes": []}, {"peak_allocated_bytes": 7}])
def test_odd_memory_in_run_json_costs_no_part_of_the_page(tmp_path, row):
    job(tmp_path / "job")
    memory = [row, {"rank": 1, "peak_allocated_bytes": 5}]
    (tmp_path / "job" / "run.json").write_text(json.dumps({"strategy": "ddp", "memory": memory}))
    assert run([str(tmp_path / "job"), "-o", str(tmp_path / "out"), "--quiet", "--format", "html"]) == 0
