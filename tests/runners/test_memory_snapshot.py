"""Memory snapshots of a run: on request, and when it runs out of memory."""

from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="the runners need torch")

from traceanalyzer.runners.recording import SNAPSHOT, snapshots  # noqa: E402 - after the check for torch

GPU = SimpleNamespace(is_cuda=True, rank=1)


@pytest.fixture
def recorded(monkeypatch):
    """What would be asked of PyTorch's allocator."""
    calls = []
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **_: calls.append("history"))

    def dump(path):
        calls.append("dump")
        Path(path).write_bytes(b"snapshot")

    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", dump)
    return calls


@pytest.mark.parametrize(("is_wanted", "calls"), [(True, ["history", "dump"]), (False, [])])
def test_only_what_is_wanted_for(tmp_path, recorded, is_wanted, calls):
    with snapshots(tmp_path, GPU, is_wanted=is_wanted):
        pass
    assert recorded == calls
    assert (tmp_path / "rank_1" / SNAPSHOT).exists() == is_wanted


def test_out_of_memory_leaves_one_in_any_case(tmp_path, recorded):
    with pytest.raises(torch.OutOfMemoryError), snapshots(tmp_path, GPU, is_wanted=False):
        raise torch.OutOfMemoryError("CUDA out of memory")
    assert recorded == ["dump"]
    assert [path.name for path in (tmp_path / "rank_1").iterdir()] == [SNAPSHOT]


def test_another_error_leaves_none(tmp_path, recorded):
    with pytest.raises(ValueError, match="x"), snapshots(tmp_path, GPU, is_wanted=False):
        raise ValueError("x")
    assert recorded == []


def test_a_snapshot_that_cannot_be_written_hides_no_error(tmp_path, monkeypatch):
    def fails(_path):
        raise RuntimeError("no memory for that either")

    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", fails)
    with pytest.raises(torch.OutOfMemoryError), snapshots(tmp_path, GPU, is_wanted=False):
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_nothing_on_the_cpu(tmp_path, recorded):
    with snapshots(tmp_path, SimpleNamespace(is_cuda=False, rank=0), is_wanted=True):
        pass
    assert recorded == []
