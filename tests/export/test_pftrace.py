"""Perfetto's protobuf holds what was recorded and what is made of it: read back, its figures are those of the tables."""

from dataclasses import replace
from functools import cache

import pandas as pd
import pytest

import traceanalyzer as ta
from tests import once
from tests.builders import rank_trace
from tests.export.decoded import decoded
from tests.samples import RUNNERS, SAMPLES, sample
from tests.simulator import Capture, capture, kineto, scenarios
from tests.simulator import run as simulated
from traceanalyzer.analyses import run
from traceanalyzer.cli import run as command
from traceanalyzer.export import perfetto
from traceanalyzer.model.schema import COUNTERS, conform

UNION = """
WITH held AS (
    SELECT max(slice.ts, :start) AS ts, min(slice.ts + slice.dur, :end) AS stop FROM slice
    JOIN track ON track.id = slice.track JOIN track parent ON parent.id = track.parent
    WHERE parent.name = 'GPU' AND track.pid = :pid AND slice.category IN (SELECT value FROM json_each(:kinds))
      AND slice.ts < :end AND slice.ts + slice.dur > :start
), seen AS (
    SELECT ts, stop, max(stop) OVER (ORDER BY ts, stop ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM held
)
SELECT coalesce(sum(max(0, stop - max(ts, coalesce(before, ts)))), 0) FROM seen
"""


NAMES = (*perfetto.NEEDED, "breakdown")


def exported(traces, folder, name="x.pftrace", results=None):
    results = results or run(traces, NAMES)
    perfetto.write(results, folder / name, "x", lambda visitor: [*map(visitor, traces)])
    return decoded(folder / name), results


@pytest.fixture(scope="module")
def of_sample(tmp_path_factory):
    """A sample's ranks, their export in a database, and the tables that it was made from; made once."""

    @cache
    def made(name):
        traces = sample(name).ranks
        results = once.results(name, NAMES)
        return traces, *exported(traces, tmp_path_factory.mktemp("export"), "x.pftrace.gz", results)

    return made


def one(database, query, **values):
    return database.execute(query, values).fetchone()[0]


def parts(database, pid, start, end):
    busy = [one(database, UNION, pid=pid, start=start, end=end, kinds=kinds)
            for kinds in ('["compute"]', '["compute","comm","wait"]', '["compute","comm","wait","copy"]')]  # fmt: skip
    return {"compute_ns": busy[0], "exposed_comm_ns": busy[1] - busy[0], "exposed_copy_ns": busy[2] - busy[1],
            "idle_ns": end - start - busy[2]}  # fmt: skip


def window(trace, database):
    """The rank's window on the clock of the file."""
    zero = int(one(database, "SELECT value FROM arg WHERE key = 'zero_ns'"))
    moved = one(
        database,
        """SELECT arg.value FROM arg JOIN slice ON slice.id = arg.slice JOIN track ON track.id = slice.track
           WHERE arg.key = 'clock_shift_applied_ns' AND track.pid = :pid""",
        pid=trace.rank + 1,
    )
    return trace.window.start_ns + moved - zero, trace.window.end_ns + moved - zero


@pytest.mark.parametrize(
    "name", ["pytorch_ddp_memory", "moe", pytest.param("pytorch_ddp_nsys", marks=pytest.mark.thorough)]
)
def test_the_breakdown_is_recomputed_from_the_file_to_the_nanosecond(name, of_sample):
    traces, database, results = of_sample(name)
    rows = results["breakdown"].to_frame().set_index("rank")
    for trace in traces:
        found = parts(database, trace.rank + 1, *window(trace, database))
        assert found == {part: int(rows.loc[trace.rank, part]) for part in found}


@pytest.mark.parametrize("name", ["pytorch_ddp_memory", "moe", pytest.param("streams", marks=pytest.mark.thorough)])
def test_every_operation_and_every_host_event_is_there(name, of_sample):
    traces, database, results = of_sample(name)
    on_gpu = "FROM slice JOIN track ON track.id = track JOIN track p ON p.id = track.parent WHERE p.name = 'GPU'"
    assert one(database, f"SELECT sum(dur) {on_gpu}") == sum(
        (trace.gpu_ops["end_ns"] - trace.gpu_ops["start_ns"]).sum() for trace in traces
    )
    waits = results["call_waits"].table
    assert one(database, f"SELECT coalesce(sum(dur), 0) {on_gpu} AND category = 'wait'") == waits["wait_ns"].sum()
    for category, table in {
        "operator": "host_ops",
        "runtime": "api_calls",
        "range": "ranges",
        "python": "frames",
    }.items():
        there = """SELECT count(*) FROM slice JOIN track ON track.id = track JOIN track p ON p.id = track.parent
                   WHERE p.name = 'host' AND category = :category"""
        assert one(database, there, category=category) == sum(len(trace.table(table)) for trace in traces)


@pytest.mark.parametrize(
    "name", ["pytorch_ddp_memory"]
)  # a process takes the tests whose ids have a capture's name, and exports it once
def test_arrows_lead_from_each_launch_to_its_operation(name, of_sample):
    traces, database, _ = of_sample(name)
    pairs = database.execute(
        """SELECT caller.category, caller.ts, ran.ts, caller_track.pid, ran_track.pid FROM flow tail
           JOIN flow head ON head.id = tail.id AND head.is_last AND NOT tail.is_last
           JOIN slice caller ON caller.id = tail.slice JOIN track caller_track ON caller_track.id = caller.track
           JOIN slice ran ON ran.id = head.slice JOIN track ran_track ON ran_track.id = ran.track
           WHERE caller.category = 'runtime'"""
    ).fetchall()
    assert len(pairs) == sum((trace.gpu_ops["launch"] >= 0).sum() for trace in traces)
    assert all(begun <= ran and one_pid == other_pid for _, begun, ran, one_pid, other_pid in pairs)


@pytest.mark.parametrize("name", ["pytorch_ddp_memory"])
def test_collectives_are_linked_from_rank_to_rank_in_the_order_in_which_they_begin(name, of_sample):
    _, database, results = of_sample(name)
    chains = database.execute(
        """SELECT flow.id, flow.ts, is_last, pid FROM flow JOIN slice ON slice.id = flow.slice
           JOIN track ON track.id = slice.track WHERE category IN ('wait', 'comm')
           AND flow.id IN (SELECT flow.id FROM flow JOIN slice ON slice.id = flow.slice GROUP BY flow.id
                           HAVING count(DISTINCT category = 'runtime') = 1) ORDER BY flow.id, flow.ts"""
    ).fetchall()
    held = results["call_waits"].table["instance"].dropna()
    shared = held.groupby(held).size()
    assert len({chain for chain, *_ in chains}) == (shared == 2).sum()
    assert [bool(is_last) for _, _, is_last, _ in chains] == [False, True] * int((shared == 2).sum())
    assert {pid for *_, pid in chains} == {1, 2}


@pytest.mark.parametrize("name", ["pytorch_ddp_memory"])
def test_counters_hold_memory_and_the_launch_queue(name, of_sample):
    traces, database, _ = of_sample(name)
    names = {name for (name,) in database.execute("SELECT DISTINCT name FROM track WHERE is_counter")}
    levels, held = {"memory allocated", "memory reserved"}, {name for name in names if name.startswith("memory held: ")}
    assert names == {"launched operations that wait"} | levels | held
    memory = "FROM counter JOIN track ON track.id = counter.track WHERE name IN ('memory allocated', 'memory reserved')"
    assert one(database, f"SELECT count(*) {memory}") == sum(len(trace.counters) for trace in traces)
    assert one(database, f"SELECT max(value) {memory}") == max(trace.counters["value"].max() for trace in traces)
    ends = """SELECT sum(value) FROM (SELECT value, max(ts) FROM counter JOIN track ON track.id = counter.track
              WHERE name LIKE 'memory held: %' GROUP BY track.id)"""
    last = [trace.counters.query("name == 'memory_allocated_bytes'")["value"].iloc[-1] for trace in traces]
    assert one(database, ends) == sum(last)


def test_metrics_of_the_gpu_are_counters(tmp_path):
    samples = pd.DataFrame({"time_ns": [1, 5, 9], "name": "SMs Active [Throughput %]", "value": [10.0, 99.5, 0.0]})
    trace = rank_trace([("compute", 0, 10)])
    database, _ = exported([replace(trace, counters=conform(samples, COUNTERS))], tmp_path)
    rows = database.execute("SELECT name, value FROM counter JOIN track ON track.id = track ORDER BY ts").fetchall()
    assert rows == [("SMs Active [Throughput %]", value) for value in (10.0, 99.5, 0.0)]


def test_offsets_of_clocks_are_applied_and_said(tmp_path):
    kineto.write(capture(simulated(scenarios.ddp(2, steps=3)), Capture(offset_ns={1: 3_000_000})), tmp_path)
    database, results = exported(ta.load(tmp_path).ranks, tmp_path)
    assert results["clocks"].to_frame()["is_significant"].any()
    assert "Clocks are corrected" in one(database, "SELECT value FROM arg WHERE key = 'clocks'")
    moved = [value for (value,) in database.execute("SELECT value FROM arg WHERE key = 'clock_shift_applied_ns'")]
    assert abs(moved[0] - moved[1] - 3_000_000) < 100_000
    ends = [
        [end for (end,) in database.execute(
            "SELECT ts + dur FROM slice JOIN track ON track.id = track WHERE pid = ? AND category = 'comm' ORDER BY ts",
            (pid,),
        )] for pid in (1, 2)
    ]  # fmt: skip
    assert len(ends[0]) == len(ends[1]) > 0
    assert all(abs(one_end - other_end) < 100_000 for one_end, other_end in zip(*ends, strict=True))


def test_chosen_steps_bring_the_host_that_launched_them_only(tmp_path):
    whole = sample("pytorch_ddp").ranks
    one_step = ta.load(RUNNERS / "pytorch_ddp", steps="last").ranks
    database, _ = exported(one_step, tmp_path)
    host = "FROM slice JOIN track ON track.id = track JOIN track p ON p.id = track.parent WHERE p.name = 'host'"
    count = one(database, f"SELECT count(*) {host} AND category = 'operator'")
    assert 0.2 < count / sum(len(trace.host_ops) for trace in whole) < 0.75
    tails = one(database, "SELECT count(*) FROM flow WHERE NOT is_last")
    assert tails >= sum((trace.counted & (trace.gpu_ops["launch"] >= 0)).sum() for trace in one_step)


def test_the_command_writes_ranks_and_steps_that_are_asked_for(tmp_path, capsys):
    target = tmp_path / "x.pftrace.gz"
    assert command(["export", str(SAMPLES / "ddp"), "--ranks", "1", "--steps", "last", "-o", str(target)]) == 0
    assert str(target) in capsys.readouterr().out
    database = decoded(target)
    assert [pid for (pid,) in database.execute("SELECT DISTINCT pid FROM track WHERE pid")] == [2]
    assert one(database, "SELECT count(*) FROM slice WHERE category = 'step' AND track IN (SELECT id FROM track)") == 1
