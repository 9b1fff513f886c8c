"""What memory snapshots tell, of histories whose truth is known."""

import gzip
import json
import pickle

import pytest

from tests.snapshots.builders import KEEP, STATE, History, write
from traceanalyzer.cli import run
from traceanalyzer.errors import InputError
from traceanalyzer.snapshots import examine_snapshot, find_snapshots, read_snapshot, sentences
from traceanalyzer.snapshots.examination import levels, lifetimes, living

MB = 1 << 20


def leak(steps=6, oom=False):
    """Each step keeps one block of 8 MiB and frees another; the optimizer's state comes in the first."""
    history = History()
    history.alloc(4 * MB, STATE)
    for _ in range(steps):
        temporary = history.alloc(16 * MB, (("model.py", 9, "forward"), ("train.py", 20, "<module>")))
        history.alloc(8 * MB)
        history.free(temporary)
        history.step()
    if oom:
        history.event("oom", 5 * MB, 900 * MB, KEEP)
    return history


def examined(tmp_path, history, name="rank3_snapshot.pickle"):
    return examine_snapshot(read_snapshot(write(tmp_path / name, history.snapshot())))


def test_growth_names_the_line(tmp_path):
    one = examined(tmp_path, leak())
    (growth,) = one.growths
    assert (growth.site, growth.blocks, growth.size_bytes) == (
        "model.py:7 in forward, from train.py:20 in <module>",
        6,
        48 * MB,
    )
    assert (growth.steps, growth.of_steps, growth.per_step_bytes, growth.is_by_steps) == (6, 6, 8 * MB, True)
    assert (
        "Rank 3's memory grows by 8.39 MB per step: 50.3 MB in 6 blocks from model.py:7 in forward"
        in sentences([one])[0]
    )


def test_peak_and_categories_add_up(tmp_path):
    one = examined(tmp_path, leak())
    assert (one.peak_bytes, one.end["requested"], one.end["reserved"]) == ((4 + 48 + 16) * MB, 52 * MB, 1 << 30)
    assert dict(zip(one.peak_categories["category"], one.peak_categories["size_bytes"], strict=True)) == {
        "optimizer state": 4 * MB, "activations": 64 * MB,
    }  # fmt: skip
    assert one.peak_sites["size_bytes"].sum() == one.peak_bytes
    assert (one.free_bytes, one.free_blocks) == ((1 << 30) - 52 * MB, 1)


def test_what_an_optimizer_of_ones_own_keeps_is_its_state(tmp_path):
    step = (("my_adam.py", 74, "step"), ("torch/optim/optimizer.py", 480, "wrapper"), ("train.py", 22, "<module>"))
    history = History()
    gradient = history.alloc(
        2 * MB, (("torch/csrc", 0, "torch::autograd::AccumulateGrad"), ("x", 0, "autograd::Engine"))
    )
    history.alloc(4 * MB, step)
    product = history.alloc(16 * MB, step)
    history.free(product)
    size, _ = history.blocks[gradient]
    history.blocks[gradient] = (size, (("torch/optim/optimizer.py", 990, "zero_grad"), ("train.py", 23, "<module>")))
    history.free(gradient)
    one = examined(tmp_path, history)
    assert dict(zip(one.peak_categories["category"], one.peak_categories["size_bytes"], strict=True)) == {
        "gradients": 2 * MB, "optimizer state": 4 * MB, "temporaries": 16 * MB,
    }  # fmt: skip


def test_the_failed_request(tmp_path):
    one = examined(tmp_path, leak(oom=True))
    assert (one.oom.requested_bytes, one.oom.device_free_bytes, one.oom.requested_before_bytes) == (
        900 * MB,
        5 * MB,
        52 * MB,
    )
    assert (
        "ran out of memory at model.py:7 in forward, from train.py:20 in <module>: it asked for 944 MB"
        in sentences([one])[0]
    )
    assert not any("no failed request" in sentence for sentence in sentences([one]))


def test_without_a_failed_request_it_is_said_how_to_see_one(tmp_path):
    told = sentences([examined(tmp_path, leak(steps=6))])[1]
    assert "no failed request. To see one, write the snapshot when it fails" in told


def test_what_was_there_before_the_history(tmp_path):
    history = History()
    old, kept = history.alloc(2 * MB), history.alloc(4 * MB)
    history.events.clear()
    history.alloc(1 * MB)
    history.free(old)
    snapshot = read_snapshot(write(tmp_path / "rank0.pickle", history.snapshot()))
    assert levels(snapshot)["requested_bytes"].tolist() == [7 * MB, 7 * MB, 5 * MB]
    lives = lifetimes(snapshot)
    assert living(lives, 0)["size_bytes"].sum() == 7 * MB
    assert set(lives.loc[lives["born"] < 0, "addr"]) == {old, kept}


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_protocols_and_gzip(tmp_path, protocol):
    content = pickle.dumps(leak().snapshot(), protocol=protocol)
    (tmp_path / "rank0_snapshot.pickle.gz").write_bytes(gzip.compress(content))
    (tmp_path / "rank1_snapshot.pickle").write_bytes(content)
    paths = find_snapshots(tmp_path)
    assert [path.name for path in paths] == ["rank0_snapshot.pickle.gz", "rank1_snapshot.pickle"]
    assert [len(read_snapshot(path).history) for path in paths] == [25, 25]


class Evil:
    def __reduce__(self):
        return (open, ("evil-was-here", "w"))


def test_a_malicious_snapshot_is_refused_and_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    history = leak(steps=3000)
    history.events[-7]["frames"] = Evil()
    with pytest.raises(InputError):
        read_snapshot(write(tmp_path / "rank0.pickle", history.snapshot()))
    assert not (tmp_path / "evil-was-here").exists()


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"segments": 5}),
        pickle.dumps([1]),
        b"\x80\x04}\x94\x8c\x08segments\x94",
        pickle.dumps({"segments": [{}]}),
    ],
)
def test_garbage_is_one_clear_line(tmp_path, content):
    (tmp_path / "rank0.pickle").write_bytes(content)
    with pytest.raises(InputError, match=r"rank0\.pickle") as told:
        read_snapshot(tmp_path / "rank0.pickle")
    assert "\n" not in str(told.value)


def test_a_folder_of_snapshots_gives_a_memory_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for rank in range(2):
        write(tmp_path / f"rank{rank}_snapshot.pickle", leak(steps=6 + rank).snapshot())
    assert run(["--trace-dir", str(tmp_path), "--output", "out"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Rank 1's memory grows by 8.39 MB per step:" in printed
    assert "Rank 1 needs most memory" in printed
    told = json.loads((tmp_path / "out" / "memory.json").read_text())
    assert [one["peak_bytes"] for one in told["snapshots"]] == [68 * MB, 76 * MB]
    assert "model.py:7 in forward" in (tmp_path / "out" / "memory.html").read_text()


def test_a_snapshot_that_is_named_is_not_called_skipped(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "rank0_snapshot.pickle", leak(steps=6).snapshot())
    assert run(["memory", "rank0_snapshot.pickle", "--output", "out"]) == 0
    assert "Skipped" not in capsys.readouterr().err


def test_snapshots_beside_traces(tmp_path, monkeypatch, capsys):
    from tests.builders import document, kernel
    from tests.builders import write as write_trace

    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path / "in" / "rank0.json", document([kernel(0, 5)], rank=0, world_size=1))
    write(tmp_path / "in" / "rank0_snapshot.pickle", leak().snapshot())
    (tmp_path / "in" / "rank1_snapshot.pickle").write_bytes(b"\x80\x04}\x94\x8c\x08segments\x94")
    assert run(["--trace-dir", "in", "--output", "out"]) == 0
    assert "Skipped: in/rank1_snapshot.pickle" in capsys.readouterr().out
    (tmp_path / "in" / "rank1_snapshot.pickle").unlink()
    assert run(["--trace-dir", "in", "--output", "out"]) == 0
    assert "Memory: out/memory.html" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"summary.html", "memory.html", "memory.json"}
