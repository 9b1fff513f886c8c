"""A Perfetto file holds every operation of every rank at its moment, and waits apart from transfers."""

import gzip
import json
from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from tests.builders import document, kernel, rank_trace, write
from tests.samples import sample
from traceanalyzer.analyses import run
from traceanalyzer.cli import run as command
from traceanalyzer.export import perfetto


def exported(results, folder, name="x.json"):
    perfetto.write(results, folder / name, "x")
    opener = gzip.open if name.endswith(".gz") else open
    with opener(folder / name, "rt", encoding="utf-8") as file:
        return json.load(file)


def slices(content):
    return [event for event in content["traceEvents"] if event["ph"] == "X"]


def tracks(content):
    names = [event for event in content["traceEvents"] if event["name"] == "thread_name"]
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in names}


def on_streams(content):
    tracked = tracks(content)
    return [event for event in slices(content) if tracked[event["pid"], event["tid"]].startswith("stream")]


def test_the_critical_path_is_a_track_that_tiles_the_window(tmp_path):
    results = run(sample("ddp").ranks, perfetto.NEEDED)
    content = exported(results, tmp_path)
    tracked = tracks(content)
    path = sorted(
        (round(event["ts"] * 1000), round(event["dur"] * 1000))
        for event in slices(content)
        if tracked[event["pid"], event["tid"]] == "critical path"
    )
    assert len(path) == len(results["path_stretches"])
    offset_ns = 30_000  # stretches stand on their rank's clock, whose offset is below what is significant
    assert all(abs(start + length - later) <= offset_ns for (start, length), (later, _) in pairwise(path))


@pytest.mark.parametrize("name", ["ddp", "pp", "moe", "streams"])
def test_every_operation_is_there_and_waits_are_those_of_the_tables(name, tmp_path):
    results = run(sample(name).ranks, perfetto.NEEDED)
    content = exported(results, tmp_path, "x.perfetto.json.gz")
    tracked = tracks(content)
    on_streams = [event for event in slices(content) if tracked[event["pid"], event["tid"]].startswith("stream ")]
    waits = [event for event in on_streams if event["name"].startswith("wait · ")]
    moved = [event for event in on_streams if not event["name"].startswith("wait · ")]
    ops = results["timeline"].table
    lengths = (ops["end_ns"] - ops["start_ns"]).groupby(ops["rank"]).sum().to_dict()
    for rank, length in lengths.items():
        assert sum(round(event["dur"] * 1000) for event in on_streams if event["pid"] == rank) == length
    known = results["call_waits"].table["wait_ns"]
    assert sum(round(event["dur"] * 1000) for event in waits) == known.sum()
    whole = (known == (results["call_waits"].table["end_ns"] - results["call_waits"].table["start_ns"])).sum()
    assert len(moved) == len(ops) - whole
    assert {event["cname"] for event in waits} <= {"thread_state_iowait"}


def test_slices_of_a_track_do_not_overlap(tmp_path):
    results = run(sample("pp").ranks, perfetto.NEEDED)
    by_track = defaultdict(list)
    for event in slices(exported(results, tmp_path)):
        by_track[event["pid"], event["tid"]].append((round(event["ts"] * 1000), round(event["dur"] * 1000)))
    for own in by_track.values():
        assert all(start + length <= later for (start, length), (later, _) in pairwise(own))


def test_steps_ranges_and_gaps_have_tracks_of_their_own(tmp_path):
    results = run(sample("ddp").ranks, perfetto.NEEDED)
    content = exported(results, tmp_path)
    tracked = tracks(content)
    counts = Counter(tracked[event["pid"], event["tid"]] for event in slices(content))
    assert counts["steps"] == 6
    assert counts["idle"] == len(results["gaps"])
    assert {event["name"] for event in slices(content) if tracked[event["pid"], event["tid"]].startswith("ranges")} >= {
        "forward", "backward",
    }  # fmt: skip
    first = [name for (rank, _), name in sorted(tracked.items()) if rank == 0][:3]
    assert first[0] == "steps"
    call = next(event["args"] for event in slices(content) if event["name"] == "NCCL all-reduce f32")
    assert {"collective": "all_reduce", "dtype": "Float", "group": "0"}.items() <= call.items()


def test_times_are_exact_and_start_at_the_first_operation(tmp_path):
    start = 1_795_221_266_066_003_579
    traces = [rank_trace([("compute", start + 1, start + 8)]), rank_trace([("compute", start, start + 3)], rank=1)]
    content = exported(run(traces, perfetto.NEEDED), tmp_path)
    assert content["otherData"] == {
        "label": "x",
        "zero_ns": str(start),
        "clocks": "All ranks on one clock, as recorded.",
    }
    assert [(event["pid"], event["ts"], event["dur"]) for event in on_streams(content)] == [
        (0, 0.001, 0.007),
        (1, 0, 0.003),
    ]


def test_operations_at_once_on_one_stream_lie_beside_each_other(tmp_path):
    ops = [("compute", 0, 10), ("compute", 5, 15), ("compute", 10, 12)]
    content = exported(run([rank_trace(ops)], perfetto.NEEDED), tmp_path)
    assert list(tracks(content).values()) == ["critical path", "stream 7", "stream 7 (2)"]
    assert [event["ts"] * 1000 for event in on_streams(content)] == [0, 10, 5]


def test_the_command_writes_a_file_and_says_where(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "rank0.json", document([kernel(0, 5)], rank=0, world_size=1))
    assert command(["export", "in"]) == 0
    assert "reports/in.perfetto.json.gz" in capsys.readouterr().out
    with gzip.open("reports/in.perfetto.json.gz", "rt", encoding="utf-8") as file:
        assert len(on_streams(json.load(file))) == 1
    assert command(["export"]) == 2


def test_an_export_beside_its_traces_is_no_trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "rank0.json", document([kernel(0, 5)], rank=0, world_size=1))
    assert command(["export", "in", "-o", "in/all.json"]) == 0
    assert command(["in", "-q", "-o", "out", "--format", "json"]) == 0
    found = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [(item["what"], "made by `analyze-traces export`" in item["why"]) for item in found["skipped"]] == [
        ("in/all.json", True)
    ]
    assert found["ranks"] == [0]


def test_an_export_that_is_interrupted_leaves_what_was_there(tmp_path, monkeypatch):
    def interrupted(*_arguments):
        yield {}
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "rank0.json", document([kernel(0, 5)], rank=0, world_size=1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "all.json").write_text("earlier")
    monkeypatch.setattr(perfetto, "trace_events", interrupted)
    assert command(["export", "in", "-o", "out/all.json"]) == 130
    assert [(path.name, path.read_text()) for path in (tmp_path / "out").iterdir()] == [("all.json", "earlier")]
