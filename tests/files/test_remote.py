"""Traces at URLs: of object storage (a server of this machine), of fsspec's other file systems, and on a cluster."""

import gzip
import json
from pathlib import Path

import pytest

import traceanalyzer as ta
from tests.builders import document, kernel
from tests.files import gcs_server
from traceanalyzer.discovery import discover
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.files import remote
from traceanalyzer.loading import LoadOptions
from traceanalyzer.scale import summarise

NAMES = ("ranks", "breakdown")


def files(kernels=200):
    made = {}
    for rank in range(4):
        events = [kernel(10 * place, 5 + rank, name=f"gemm_{place * 7919 % 10_007}") for place in range(kernels)]
        made[f"rank{rank}.json.gz"] = gzip.compress(json.dumps(document(events, rank=rank, world_size=4)).encode())
    return {**made, "rank9.json.gz": b"\x1f\x8b broken", "run.json": b'{"strategy": "ddp"}', "notes.txt": b"x"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "HEAD_BYTES", 1500)  # less than a file
    (tmp_path / "run").mkdir()
    for name, content in files().items():
        (tmp_path / "run" / name).write_bytes(content)
    return tmp_path / "run"


@pytest.fixture(scope="module")
def bucket():
    """An S3 server of this machine with the files, where moto and s3fs are installed."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "test",
                            "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}.items():  # fmt: skip
            patch.setenv(name, value)
        import s3fs

        store = s3fs.S3FileSystem(skip_instance_cache=True)
        store.mkdir("traces")
        for name, content in files().items():
            store.pipe(f"traces/job/run/{name}", content)
        yield "s3://traces/job/run"
    server.stop()


def figures(place, jobs=1):
    found = discover(Path(place))
    (run,) = found.runs
    summary = summarise(found, run, LoadOptions(), names=NAMES, jobs=jobs)
    skipped = [(item.what.rpartition("/")[2], item.why) for item in summary.skipped]
    return {name: result.to_frame().to_json() for name, result in summary.results.items()}, skipped


def test_a_url_gives_what_the_folder_does(folder):
    pytest.importorskip("fsspec")
    assert figures(f"file://{folder}") == figures(folder)
    (run,) = discover(Path(f"file://{folder}")).runs
    assert [capture.ranks for capture in run.captures] == [(0,), (1,), (2,), (3,)]
    assert all(capture.url for capture in run.captures), "only heads are here"
    assert run.info.read_bytes() == b'{"strategy": "ddp"}'
    assert ta.load(f"file://{folder}/rank2.json.gz").ranks[0].rank == 2
    assert ta.load(f"file://{folder}").label == "run"


def test_object_storage_gives_what_the_folder_does(folder, bucket):
    alone = figures(folder)
    assert figures(bucket) == alone
    assert discover(Path(bucket)).skipped[0].what == f"{bucket}/rank9.json.gz"


def test_google_storage_gives_what_the_folder_does(folder, monkeypatch):
    gcsfs = pytest.importorskip("gcsfs")
    with gcs_server.serving("traces", {f"job/run/{name}": content for name, content in files().items()}) as address:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "test")
        gcsfs.GCSFileSystem.clear_instance_cache()
        assert figures("gs://traces/job/run") == figures(folder)
        assert discover(Path("gs://traces/job/run")).skipped[0].what == "gs://traces/job/run/rank9.json.gz"
        gcsfs.GCSFileSystem.clear_instance_cache()


def test_any_file_system_of_fsspec_gives_what_the_folder_does(folder):
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem()
    for name, content in files().items():
        memory.pipe(f"/job/run/{name}", content)
    try:
        assert figures("memory://job/run") == figures(folder)
        assert ta.load("memory://job/run/rank2.json.gz").ranks[0].rank == 2
    finally:
        memory.rm("/job", recursive=True)


def test_workers_of_a_cluster_fetch_their_own_files(folder, bucket):
    pytest.importorskip("distributed")
    from traceanalyzer.scale.work import connected

    with connected("local", 2) as cluster:
        assert figures(bucket, cluster) == figures(folder)


@pytest.mark.parametrize("url", ["file:///nowhere/at/all", "s3://traces/nothing"])
def test_what_is_not_there_is_said(url, request):
    if url.startswith("s3"):
        request.getfixturevalue("bucket")
    pytest.importorskip("fsspec")
    with pytest.raises(InputError, match=url):
        discover(Path(url))


def test_what_is_not_installed_is_said(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UsageError, match=r"\.\[remote\]"):
        discover(Path("s3://bucket/run"))


@pytest.mark.parametrize(
    ("text", "url"),
    [("s3://bucket/run", "s3://bucket/run"), ("gs://b/r/", "gs://b/r"), ("file:///a/b", "file:///a/b"),
     ("C:/traces", None), ("profile/ddp", None)],
)  # fmt: skip
def test_urls_are_told_from_paths(text, url):
    assert remote.url_of(Path(text)) == url
