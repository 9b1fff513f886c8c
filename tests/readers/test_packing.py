"""Files as clusters have them: packed, and in archives."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile

import pyarrow as pa
import pytest

import traceanalyzer as ta
from tests.builders import document, kernel
from traceanalyzer.discovery import discover
from traceanalyzer.files import bounds


def text(rank=None, kernels=3):
    events = [kernel(10 * place, 5, name=f"gemm_{place}") for place in range(kernels)]
    return json.dumps(document(events, rank=rank)).encode()


def zstd(content):
    """Two frames, one behind the other."""
    half = len(content) // 2
    return b"".join(pa.compress(part, "zstd", asbytes=True) for part in (content[:half], content[half:]))


PACKED = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": zstd}


def operations(traces):
    return {trace.rank: trace.gpu_ops["name"].tolist() for trace in traces.ranks}


@pytest.mark.parametrize("suffix", PACKED)
def test_a_packed_trace_is_read_as_the_plain_one(tmp_path, suffix):
    content = text(0, kernels=500)
    (tmp_path / f"b07_41.1790000000000.pt.trace.json{suffix}").write_bytes(PACKED[suffix](content))
    (tmp_path / "plain.json").write_bytes(content)
    packed = ta.load(next(tmp_path.glob("b07*")))
    assert operations(packed) == operations(ta.load(tmp_path / "plain.json"))
    assert packed.label == "b07_41.1790000000000"


@pytest.mark.parametrize(
    ("behind", "notes"),
    [(bytes(3 << 20), []), (bytes(9) + gzip.compress(b" "), []), (b"something else " * 3, ["damaged"])],
    ids=["zeros", "zeros and a member", "something else"],
)
def test_zeros_behind_a_packed_trace_are_no_damage(tmp_path, behind, notes):
    (tmp_path / "rank0.json.gz").write_bytes(gzip.compress(text(0)) + behind)
    found = ta.load(tmp_path)
    assert len(found[0].gpu_ops) == 3
    assert [word for note in found[0].meta.notes for word in ("damaged",) if word in note] == notes


@pytest.mark.parametrize("suffix", PACKED)
def test_a_packed_trace_that_is_cut_off_gives_what_it_holds(tmp_path, suffix):
    names = [f"{place * 7919 % 100_003}_{place}" for place in range(16_000)]  # does not pack well
    events = [kernel(10 * place, 5, name=name) for place, name in enumerate(names)]
    content = PACKED[suffix](json.dumps(document(events, rank=0)).encode())
    (path := tmp_path / f"rank0.json{suffix}").write_bytes(content[: len(content) * 6 // 10])
    (trace,) = ta.load(path).ranks
    assert trace.meta.is_truncated
    assert 0 < len(trace.gpu_ops) < len(names)


def zip_of(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def tar_of(path, members, mode):
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1_790_000_000
            archive.addfile(info, io.BytesIO(content))


def tar_zst(path, members):
    tar_of(path.with_suffix(""), members, "w")
    path.write_bytes(zstd(path.with_suffix("").read_bytes()))
    path.with_suffix("").unlink()


ARCHIVES = {
    "run.zip": zip_of,
    "run.tar": lambda path, members: tar_of(path, members, "w"),
    "run.tar.gz": lambda path, members: tar_of(path, members, "w:gz"),
    "run.tgz": lambda path, members: tar_of(path, members, "w:gz"),
    "run.tar.xz": lambda path, members: tar_of(path, members, "w:xz"),
    "run.tar.bz2": lambda path, members: tar_of(path, members, "w:bz2"),
    "run.tar.zst": tar_zst,
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_members_of_an_archive_are_ranks_of_a_run(tmp_path, name):
    members = {"a/rank0.json": text(), "a/rank1.json.gz": gzip.compress(text()), "a/notes.txt": b"x", "../rank2.json": text(),
               "a/run.json": b'{"strategy": "ddp"}', "more.zip": b""}  # fmt: skip
    ARCHIVES[name](tmp_path / name, members)
    for found in (discover(tmp_path), discover(tmp_path / name)):
        (run,) = found.runs
        assert [capture.ranks for capture in run.captures] == [(0,), (1,)]
        assert run.info.read_bytes() == members["a/run.json"]
        why = {item.what.removeprefix(f"{tmp_path / name}/"): item.why for item in found.skipped}
        assert why["../rank2.json"] == "its name leads out of the archive"
        assert why["more.zip"] == "an archive inside an archive; unpack it"
        assert len(why) == 2
    assert discover(tmp_path).runs[0].label == "run/a"
    assert sorted(operations(ta.load(tmp_path))) == [0, 1]


def test_an_archive_of_each_rank_is_one_run(tmp_path):
    for rank in (0, 1):
        zip_of(tmp_path / f"rank{rank}.zip", {"trace.json": text(rank)})
    assert [len(run.captures) for run in discover(tmp_path).runs] == [2]


def test_what_is_not_unpacked_is_named_with_the_reason(tmp_path):
    (tmp_path / "rank0.json").write_bytes(text(0))
    (tmp_path / "rank1.json.lz4").write_bytes(b"\x04\x22\x4d\x18")
    (tmp_path / "broken.tar.gz").write_bytes(gzip.compress(b"x" * 4096)[:-20])
    zip_of(tmp_path / "others.zip", {"a.txt": b"a", "b.txt": b"b"})
    why = {item.what.rpartition("/")[2]: item.why for item in discover(tmp_path).skipped}
    assert "packed by lz4" in why["rank1.json.lz4"]
    assert "cannot be unpacked to its end" in why["broken.tar.gz"]
    assert why["others.zip"] == "holds no trace, but 2 other files"


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "FREE_BYTES", 1 << 20)
    empty = b'{"traceEvents": [' + b" " * (8 << 20)
    (tmp_path / "rank0.json.gz").write_bytes(gzip.compress(empty))
    zip_of(tmp_path / "rank1.zip", {"rank1.json": empty})
    tar_of(tmp_path / "rank2.tar.gz", {"rank2.json": empty}, "w:gz")
    (tmp_path / "rank3.json").write_bytes(text(3))
    traces = ta.load(tmp_path)
    assert [trace.rank for trace in traces.ranks] == [3]
    assert sorted(item.what.rpartition("/")[2] for item in traces.skipped if "200 times" in item.why) == [
        "rank0.json.gz", "rank1.json", "rank2.tar.gz"
    ]  # fmt: skip


def test_a_rank_is_found_in_a_path_by_the_users_expression(tmp_path):
    for kernels, name in enumerate(("b07/gpu5.json", "b08/gpu6.json"), 1):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(text(kernels=kernels))
    traces = ta.load(tmp_path, rank_regex=r"gpu(?P<rank>\d+)")
    assert {trace.rank: trace.meta.rank_source for trace in traces.ranks} == dict.fromkeys((5, 6), "--rank-regex")
    both = ta.load(sorted(tmp_path.glob("*/*.json")), rank_regex=r"gpu(\d+)")
    assert [trace.rank for trace in both.ranks] == [5, 6]
    assert not discover(tmp_path, r"gpu(\d+)").skipped
