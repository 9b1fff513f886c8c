"""As Chrome's trace events a Perfetto file holds every operation of every rank at its moment, waits apart from transfers."""

import gzip
import json
from collections import Counter, defaultdict
from itertools import pairwise

import pytest

from tests import once
from tests.builders import document, kernel, rank_trace, write
from tests.samples import sample
from traceanalyzer.analyses import run
from traceanalyzer.cli import run as command
from traceanalyzer.export import perfetto

NAMES = (*perfetto.NEEDED, "timeline")


def exported(traces, folder, name="x.json", results=None):
    results = results or run(traces, NAMES)
    perfetto.write(results, folder / name, "x", lambda visitor: [*map(visitor, traces)])
    opener = gzip.open if name.endswith(".gz") else open
    with opener(folder / name, "rt", encoding="utf-8") as file:
        return json.load(file), results


@pytest.fixture(scope="module")
def ddp(tmp_path_factory):
    ranks, results = sample("ddp").ranks, once.results("ddp", NAMES)
    return exported(ranks, tmp_path_factory.mktemp("json"), "x.perfetto.json.gz", results)


def slices(content):
    return [event for event in content["traceEvents"] if event["ph"] == "X"]


def tracks(content):
    names = [event for event in content["traceEvents"] if event["name"] == "thread_name"]
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in names}


def on_streams(content):
    tracked = tracks(content)
    return [event for event in slices(content) if tracked[event["pid"], event["tid"]].startswith("stream")]


def test_the_critical_path_is_a_track_that_tiles_the_window(ddp):
    content, results = ddp
    tracked = tracks(content)
    path = sorted(
        (round(event["ts"] * 1000), round(event["dur"] * 1000))
        for event in slices(content)
        if tracked[event["pid"], event["tid"]] == "critical path"
    )
    assert len(path) == len(results["path_stretches"])
    offset_ns = 30_000  # stretches stand on their rank's clock, whose offset is below what is significant
    assert all(abs(start + length - later) <= offset_ns for (start, length), (later, _) in pairwise(path))


def test_every_operation_is_there_and_waits_are_those_of_the_tables(ddp):
    content, results = ddp
    waits = [event for event in on_streams(content) if event["name"].startswith("wait · ")]
    ops = results["timeline"].table
    lengths = (ops["end_ns"] - ops["start_ns"]).groupby(ops["rank"]).sum().to_dict()
    for rank, length in lengths.items():
        assert sum(round(event["dur"] * 1000) for event in on_streams(content) if event["pid"] == rank) == length
    assert sum(round(event["dur"] * 1000) for event in waits) == results["call_waits"].table["wait_ns"].sum()


def test_a_collective_of_three_ranks_is_one_arrow_through_them(tmp_path):
    traces = [rank_trace([("comm", start, 100)], rank=rank, world_size=3) for rank, start in enumerate((40, 10, 20))]
    content, _ = exported(traces, tmp_path)
    arrows = sorted((e["ts"], e["ph"], e["pid"]) for e in content["traceEvents"] if e["ph"] in "stf")
    assert [(phase, rank) for _, phase, rank in arrows] == [("s", 1), ("t", 2), ("f", 0)]


def test_slices_of_streams_do_not_overlap_and_those_of_hosts_lie_inside_each_other(ddp):
    content, _ = ddp
    tracked = tracks(content)
    by_track = defaultdict(list)
    for event in slices(content):
        start = round(event["ts"] * 1000)
        by_track[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
    for key, own in by_track.items():
        is_host = tracked[key].startswith("thread")
        open_ends = []
        for start, end in own:
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or (is_host and end <= open_ends[-1])
            open_ends.append(end)


def test_steps_ranges_and_gaps_have_tracks_of_their_own(ddp):
    content, results = ddp
    tracked = tracks(content)
    counts = Counter(tracked[event["pid"], event["tid"]] for event in slices(content))
    assert counts["steps"] == 6
    assert counts["idle"] == len(results["gaps"])
    assert {event["name"] for event in slices(content) if tracked[event["pid"], event["tid"]].startswith("ranges")} >= {
        "forward", "backward",
    }  # fmt: skip
    assert next(name for (rank, _), name in sorted(tracked.items()) if rank == 0) == "steps"
    call = next(event["args"] for event in slices(content) if event["name"] == "NCCL all-reduce f32")
    assert {"collective": "all_reduce", "dtype": "Float", "group": "0"}.items() <= call.items()


def test_times_are_exact_after_the_time_that_the_file_names(tmp_path):
    start = 1_795_221_266_066_003_579
    traces = [rank_trace([("compute", start + 1, start + 8)]), rank_trace([("compute", start, start + 3)], rank=1)]
    content, _ = exported(traces, tmp_path)
    told = content["otherData"]
    assert (told["label"], told["clocks"]) == ("x", "All ranks on one clock, as recorded.")
    zero = int(told["zero_ns"])
    assert [(event["pid"], round(event["ts"] * 1000) + zero - start, round(event["dur"] * 1000))
            for event in on_streams(content)] == [(0, 1, 7), (1, 0, 3)]  # fmt: skip


def test_the_command_writes_a_file_and_says_where(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "rank0.json", document([kernel(0, 5)], rank=0, world_size=1))
    assert command(["export", "in", "-o", "reports/in.json.gz"]) == 0
    assert "reports/in.json.gz" in capsys.readouterr().out
    with gzip.open("reports/in.json.gz", "rt", encoding="utf-8") as file:
        assert len(on_streams(json.load(file))) == 1
    assert command(["export"]) == 2


def test_an_export_that_is_interrupted_leaves_what_was_there(tmp_path, monkeypatch):
    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in" / "rank0.json", document([kernel(0, 5)], rank=0, world_size=1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "all.json").write_text("earlier")
    monkeypatch.setattr(perfetto, "_counters", interrupted)
    assert command(["export", "in", "-o", "out/all.json", "--force"]) == 130
    assert [(path.name, path.read_text()) for path in (tmp_path / "out").iterdir()] == [("all.json", "earlier")]
