"""Snapshots of other shapes than the usual: settings, versions and pools that change what a file has."""

import copy
import gzip
import pickle

import pytest

from tests.snapshots.builders import STATE, History, frames, write
from traceanalyzer.cli import run
from traceanalyzer.errors import InputError
from traceanalyzer.snapshots import examine_snapshot, read_snapshot, sentences

MB = 1 << 20


def grown():
    history = History()
    history.alloc(4 * MB, STATE)
    for _ in range(6):
        history.alloc(4 * MB)
        history.free(history.alloc(8 * MB))
        history.step()
    return history.snapshot()


def without_frames(snapshot):
    for event in snapshot["device_traces"][0]:
        del event["frames"]  # context=None


def frames_of_allocations_only(snapshot):
    for event in snapshot["device_traces"][0]:
        if event["action"] != "alloc":
            del event["frames"]  # context="alloc"


def two_devices(snapshot):
    more = History()
    more.alloc(16 * MB)
    snapshot["device_traces"][1] = more.events
    snapshot["segments"] += [one | {"device": 1} for one in more.snapshot()["segments"]]


def bare_failure(snapshot):
    failed = {"action": "oom", "size": 3 << 30, "stream": 0, "device_free": 5 * MB, "time_us": 1_700_000_000_900_000}
    snapshot["device_traces"][0].append(failed)


def private(snapshot):
    for segment in snapshot["segments"]:
        segment["segment_pool_id"] = (1, 0)


def unlike(snapshot):
    snapshot["segments"] = []


def compiled(snapshot):
    for event in snapshot["device_traces"][0]:
        event |= {"compile_context": "0/0", "user_metadata": {"step": 1}}
        for frame in event["frames"]:
            frame |= {"fx_node_op": "call_function", "fx_node_name": "mm"}
    snapshot["external_annotations"] += [{"stage": "START", "name": "ProfilerStep#1", "device": 0, "time_us": 1}, {}]


def of_older_versions(snapshot):
    for event in snapshot["device_traces"][0]:
        for name in ("compile_context", "user_metadata", "time_us"):
            del event[name]
    del snapshot["external_annotations"], snapshot["allocator_settings"]


def strange_actions(snapshot):
    other = {"addr": 5, "size": 9, "stream": 0, "time_us": 1_700_000_000_900_000, "frames": frames(("a.py", 1, "f"))}
    snapshot["device_traces"][0] += [other | {"action": "user_defined"}, other | {"action": "not_known_yet"}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_frames, "code without recorded frames is still allocated"),
        (frames_of_allocations_only, "activations 33.6 MB"),
        (two_devices, "events of other GPUs, which are ignored: 1 of GPU 1"),
        (bare_failure, "ran out of memory at code without recorded frames: it asked for 3.22 GB"),
        (private, "1.04 GB of it is in pools of CUDA graphs"),
        (unlike, "history and its final state disagree by 29.4 MB at the peak"),
        (compiled, "grows by 4.19 MB per step"),
        (of_older_versions, "peaks at 37.7 MB"),
        (strange_actions, "peaks at 37.7 MB"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_what_such_a_file_tells(tmp_path, change, said, protocol):
    snapshot = copy.deepcopy(grown())
    change(snapshot)
    path = tmp_path / "rank0.pickle.gz"
    path.write_bytes(gzip.compress(pickle.dumps(snapshot, protocol=protocol), 1))
    one = examine_snapshot(read_snapshot(path))
    assert said in " ".join(sentences([one]))
    if change is not unlike:
        assert (one.peak_bytes, one.peak_categories["size_bytes"].sum(), one.contradicted_bytes) == (
            36 * MB,
            36 * MB,
            0,
        )


def test_a_history_whose_beginning_was_dropped_keeps_the_peak(tmp_path):
    snapshot = grown()
    snapshot["device_traces"][0] = snapshot["device_traces"][0][11:]  # its ring was full
    path = tmp_path / "rank0.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    one = examine_snapshot(read_snapshot(path))
    assert (one.peak_bytes, one.contradicted_bytes, one.is_exact) == (36 * MB, 0, False)


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [("event", -5, "a size of -5"), ("segment", -5, "a size of -5"), ("block", -5, "a size of -5"),
     ("event", 1 << 62, f"a size of {1 << 62}"), ("time", 1 << 62, f"a time of {1 << 62} µs")],
)  # fmt: skip
def test_figures_that_cannot_be_are_refused(tmp_path, where, value, said):
    snapshot = grown()
    segment, event = snapshot["segments"][0], snapshot["device_traces"][0][0]
    holder, key = {"event": (event, "size"), "segment": (segment, "total_size"), "block": (segment["blocks"][0], "size"),
                   "time": (event, "time_us")}[where]  # fmt: skip
    holder[key] = value
    with pytest.raises(InputError, match=said):
        read_snapshot(write(tmp_path / "rank0.pickle", snapshot))


def test_names_of_frames_are_text_in_every_output(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    snapshot = grown()
    for event in snapshot["device_traces"][0]:
        for frame in event["frames"]:
            frame |= {
                "filename": "</script><script>alert(1)</script>\x1b[31m\u202egnp.py",
                "name": "=HYPERLINK(1)\n<b>",
            }
    snapshot["allocator_settings"] = {("a", 1): b"\x1b", "share": float("nan"), "roundup_power2_divisions": {1: 2}}
    for rank in (0, 1):
        write(tmp_path / f"rank{rank}.pickle", snapshot)
    assert run([".", "-o", "out"]) == 0
    texts = [
        capsys.readouterr().out,
        *((tmp_path / "out" / name).read_text() for name in ("memory.html", "memory.json")),
    ]
    assert not any("\x1b" in text or "\u202e" in text for text in texts)
    assert "<script>alert" not in texts[1]
