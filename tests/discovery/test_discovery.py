"""Which files make a run, and which rank each is."""

import errno
import gzip
import os
from pathlib import Path

import pytest

import traceanalyzer as ta
from tests.builders import document, kernel, write
from traceanalyzer.discovery import discover, find_snapshots
from traceanalyzer.errors import InputError
from traceanalyzer.readers import nsys

SECOND = 1_000_000  # µs


def capture(folder, name, rank=None, start_s=0.0, world_size=2):
    return write(
        folder / name, document([kernel(start_s * SECOND, 5)], rank=rank, world_size=world_size, base_ns=10**18)
    )


def runs(folder):
    return [
        [(str(c.path.relative_to(folder)), c.ranks) for c in sorted(run.captures, key=lambda c: str(c.path))]
        for run in discover(folder).runs
    ]


def test_one_file_a_rank_is_one_run(tmp_path):
    capture(tmp_path, "rank_0/worker.1764843241.pt.trace.json.gz", 0)
    capture(tmp_path, "rank_1/worker.1764843242.pt.trace.json.gz", 1, start_s=0.4)
    assert len(runs(tmp_path)) == 1


def test_folders_name_the_ranks_where_files_of_all_bear_one_number(tmp_path):
    for rank in (0, 1):
        capture(tmp_path, f"rank_{rank}/worker_0.17648432{rank}0.pt.trace.json", start_s=rank / 10)
    assert runs(tmp_path) == [
        [("rank_0/worker_0.1764843200.pt.trace.json", (0,)), ("rank_1/worker_0.1764843210.pt.trace.json", (1,))]
    ]


@pytest.mark.parametrize(("start_s", "count"), [(0.5, 1), (4, 2)])
def test_two_files_of_one_time_that_claim_one_rank_clash(tmp_path, start_s, count):
    """They are not two runs: one process cannot record two captures at once."""
    for name, start in (("a_worker_0.json", 0), ("b_worker_0.json", start_s)):
        end = {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": (start + 3) * SECOND}
        write(tmp_path / name, document([kernel(start * SECOND, 5), end], base_ns=10**18))
    assert len(discover(tmp_path).runs) == count
    said = [item.why.partition(", or ")[0] for item in ta.load(tmp_path).skipped]
    read = "claims rank 0, which another file of this run has already (a_worker_0.json); pick one with --trace-file"
    assert said == [read] * (2 - count)


def test_repeated_captures_are_runs_in_order_of_time(tmp_path):
    for number, start in enumerate((100, 5, 40)):
        for rank in (0, 1):
            capture(tmp_path, f"rank_{rank}/w.{number}.json", rank, start_s=start + rank / 10)
    assert runs(tmp_path) == [
        [(f"rank_0/w.{n}.json", (0,)), (f"rank_1/w.{n}.json", (1,))] for n in (1, 2, 0)
    ]  # fmt: skip


def test_a_run_with_a_missing_rank_does_not_borrow_it_from_another(tmp_path):
    capture(tmp_path, "a1.json", 1, start_s=0)
    capture(tmp_path, "b0.json", 0, start_s=20)
    capture(tmp_path, "b1.json", 1, start_s=20.1)
    assert runs(tmp_path) == [[("a1.json", (1,))], [("b0.json", (0,)), ("b1.json", (1,))]]


def test_strategies_side_by_side_are_never_mixed(tmp_path):
    capture(tmp_path, "ddp/rank0.json", 0, start_s=0)
    capture(tmp_path, "naive/rank0.json", 0, start_s=3)
    capture(tmp_path, "naive/rank1.json", 1, start_s=3)
    assert [run.label for run in discover(tmp_path).runs] == ["ddp", "naive"]


def test_hosts_in_folders_of_their_own_are_one_job(tmp_path):
    for rank in range(4):
        capture(tmp_path, f"machine-{'ab'[rank // 2]}/rank{rank}.json", rank, start_s=rank / 10, world_size=4)
    assert len(runs(tmp_path)) == 1


def test_different_world_sizes_are_different_runs(tmp_path):
    capture(tmp_path, "one.json", 0, start_s=0, world_size=1)
    capture(tmp_path, "two.json", 1, start_s=1, world_size=2)
    assert len(runs(tmp_path)) == 2


def test_jobs_of_other_sizes_at_one_time_are_each_one_run(tmp_path):
    for size in (3, 4):
        for rank in range(size):
            capture(tmp_path, f"{size}rank{rank}.json", rank, start_s=(rank + size % 2) / 10, world_size=size)
    assert sorted(map(len, runs(tmp_path))) == [3, 4]


@pytest.mark.parametrize(
    ("names", "ranks", "source"),
    [
        (["rank3.json", "rank_12.json"], [3, 12], "path"),
        (["worker_1/t.json", "worker_0/t.json"], [0, 1], "path"),
        (["exp[run1]-rank[3].1700.json", "exp[run1]-rank[5].1700.json"], [3, 5], "path"),
        (["host_100.json", "host_20.json"], [0, 1], "file order"),
        (["crank.json"], [0], "file order"),
    ],
)
def test_rank_from_path_else_file_order(tmp_path, names, ranks, source):
    for place, name in enumerate(names):
        capture(tmp_path, name, start_s=place / 10)
    (run,) = discover(tmp_path).runs
    assert [(c.hint.rank, c.hint.source) for c in run.captures] == [(rank, source) for rank in ranks]


def test_one_processs_captures_are_one_rank(tmp_path):
    for process in (100, 20):
        for start in (0, 40):
            name = f"host_{process}.{1764843241000 + start}.pt.trace.json"
            capture(tmp_path, name, start_s=start + process / 1000)
    found = discover(tmp_path).runs
    assert [[c.ranks for c in run.captures] for run in found] == [[(0,), (1,)], [(0,), (1,)]]


def test_captures_are_paired_by_ordinal_when_clocks_differ(tmp_path):
    for number in range(3):
        capture(tmp_path, f"rank_0/{number}.json", 0, start_s=10 * number)
        capture(tmp_path, f"rank_1/{number}.json", 1, start_s=10 * number + 7)
    assert runs(tmp_path) == [[(f"rank_0/{n}.json", (0,)), (f"rank_1/{n}.json", (1,))] for n in range(3)]


def test_hosts_folders_without_distributed_info_are_one_job(tmp_path):
    for rank in range(2):
        write(tmp_path / f"machine-{'ab'[rank]}/rank{rank}.json", document([kernel(rank, 5)], base_ns=10**18))
    assert len(runs(tmp_path)) == 1


def ended(start_s, length_s, **more):
    end = {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": (start_s + length_s) * SECOND}
    return document([kernel(start_s * SECOND, 5), end], base_ns=10**18, **more)


@pytest.mark.parametrize(
    ("starts", "groups"),
    [
        ((0, 1, 2), [["a.json"], ["b.json"], ["c.json"]]),
        ((0, 0.2, 0.6), [["a.json", "b.json", "c.json"]]),
        ((3, 0.2, 0), [["b.json", "c.json"], ["a.json"]]),
    ],
    ids=["one after the other", "at one time", "two of them"],
)
def test_files_that_name_no_rank_are_one_job_only_at_one_time(tmp_path, starts, groups):
    for name, start in zip("abc", starts, strict=True):
        write(tmp_path / f"{name}.json", ended(start, 0.5))
    found = discover(tmp_path).runs
    assert [[c.path.name for c in run.captures] for run in found] == groups
    assert [[c.ranks for c in run.captures] for run in found] == [[(n,) for n in range(len(group))] for group in groups]


@pytest.mark.parametrize(("start_s", "count"), [(2, 2), (0.2, 1)], ids=["later", "at one time"])
def test_a_recording_under_another_name_after_one_that_names_its_rank_is_a_run_of_its_own(tmp_path, start_s, count):
    """One process was recorded twice: a rank for each would be one that waits for itself."""
    write(tmp_path / "rank0.json", ended(0, 0.5))
    write(tmp_path / "again.json", ended(start_s, 0.5))
    assert len(discover(tmp_path).runs) == count


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"rank0.json": (0, 0), "rank1.json": (1, 5 * 3600)}, 1),
        ({"hostA/rank0.json": (0, 0), "hostB/rank1.json": (1, 5 * 3600)}, 1),
        ({"rank1.json": (1, 0), "rank2.json": (2, 5 * 3600)}, 2),  # of another world's size one may be left over
        ({"a0.json": (0, 0), "a1.json": (1, 1), "b0.json": (0, 5 * 3600), "b1.json": (1, 5 * 3600 + 1)}, 2),
    ],
    ids=["one folder", "a folder a host", "a rank is missing", "two runs"],
)
def test_each_rank_of_a_world_once_is_one_job_whatever_the_clocks(tmp_path, files, count):
    for name, (rank, start_s) in files.items():
        capture(tmp_path, name, rank, start_s=start_s)
    assert len(discover(tmp_path).runs) == count


def test_what_is_no_trace_is_skipped_with_why(tmp_path):
    capture(tmp_path, "rank0.json", 0)
    write(tmp_path / "notes.json", b'{"a": 1}')
    write(tmp_path / "run.json", b"{}")
    write(tmp_path / "readme.txt", b"hi")
    (skipped,) = discover(tmp_path).skipped
    assert skipped.what.endswith("notes.json")
    assert "no traceEvents" in skipped.why


def test_run_json_beside_the_traces_is_found(tmp_path):
    capture(tmp_path, "rank_0/t.json", 0)
    info = write(tmp_path / "run.json", b"{}")
    assert discover(tmp_path).runs[0].info == info


@pytest.mark.parametrize(("make", "message"), [(False, "no such folder"), (True, "no traces here")])
def test_nothing_to_analyse(tmp_path, make, message):
    folder = tmp_path / "x"
    if make:
        folder.mkdir()
    with pytest.raises(InputError, match=message):
        discover(folder)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rank0.log", b"step 1\nhost:1:1 [0] NCCL INFO Bootstrap : Using eth0\n", "doctor --nccl-log reads it"),
        ("topo.txt", b"\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-7\n", "doctor --topo reads it"),
        ("rank0.txt", b'{"schemaVersion": 1, "traceEvents": []}', "give it a name that ends in .json$"),
        (
            "rank0.dat",
            gzip.compress(b'{"schemaVersion": 1, "traceEvents": []}', mtime=0),
            "give it a name that ends in .json.gz$",
        ),
        ("rank0.json.gz", b"PK\x03\x04", "a zip archive by its begin"),
        ("notes.txt", b"nothing of interest", "no traces here"),
        ("half.gz", b"\x1f\x8bnothing", "no traces here"),
    ],
)
def test_what_is_no_trace_by_its_name_is_told_by_its_begin(tmp_path, name, content, said):
    write(tmp_path / name, content)
    with pytest.raises(InputError, match=said):
        discover(tmp_path)


def test_a_file_that_cannot_be_opened_leaves_the_others(tmp_path, monkeypatch):
    def refusing(path, *arguments, **options):
        if path.name == "b.sqlite":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_(path, *arguments, **options)

    capture(tmp_path, "rank0.json", 0)
    (tmp_path / "b.sqlite").touch()
    open_ = Path.open
    monkeypatch.setattr(Path, "open", refusing)
    found = discover(tmp_path)
    assert [capture.path.name for run in found.runs for capture in run.captures] == ["rank0.json"]
    assert [(Path(item.what).name, item.why) for item in found.skipped] == [
        ("b.sqlite", "cannot be read (Permission denied)")
    ]


def test_a_folder_that_cannot_be_entered_leaves_the_others(tmp_path, monkeypatch):
    def refusing(path):
        if path.name == "rank_1":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return recognises(path)

    for rank in (0, 1):
        capture(tmp_path, f"rank_{rank}/t.json", rank)
    recognises = nsys.recognises
    monkeypatch.setattr(nsys, "recognises", refusing)
    found = discover(tmp_path)
    assert [c.ranks for run in found.runs for c in run.captures] == [(0,)]
    assert [(Path(item.what).name, item.why) for item in found.skipped] == [
        ("rank_1", "cannot be read (Permission denied)")
    ]


@pytest.mark.parametrize("name", ["rank1.json.gz", "job.sqlite"])
def test_a_link_that_leads_nowhere_is_skipped_with_why(tmp_path, name):
    capture(tmp_path, "rank0.json", 0)
    (tmp_path / name).symlink_to(tmp_path / "nowhere")
    (tmp_path / "notes.txt").symlink_to(tmp_path / "nowhere")
    (skipped,) = discover(tmp_path).skipped
    assert (Path(skipped.what).name, skipped.why) == (name, "a link to a file that is not there")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_skipped(tmp_path):
    capture(tmp_path, "rank0.json", 0)
    capture(tmp_path, "rank1.json", 1).chmod(0)
    (skipped,) = discover(tmp_path).skipped
    assert "cannot be read" in skipped.why


def test_folders_whose_path_is_too_long_cost_no_rank(tmp_path, monkeypatch):
    for rank in (0, 1):
        write(tmp_path / f"rank{rank}.json", document([kernel(10, 5 + rank)], rank=rank, world_size=2))
    monkeypatch.chdir(tmp_path)
    for _ in range(30):
        Path("d" * 200).mkdir()
        os.chdir("d" * 200)
    found = discover(tmp_path)
    assert [capture.ranks for capture in found.runs[0].captures] == [(0,), (1,)]
    assert [item.why for item in found.skipped] == ["cannot be read (File name too long)"]
    assert find_snapshots(tmp_path) == []
