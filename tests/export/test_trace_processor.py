"""Perfetto's own trace processor reads the export without a complaint, and SQL in it gives the report's figures."""

import pandas as pd
import pytest

from tests.conftest import sampled
from tests.export.processor import asked, fetched
from tests.samples import sample
from traceanalyzer.analyses import run
from traceanalyzer.export import perfetto

ON = """FROM slice JOIN track ON track.id = slice.track_id JOIN track parent ON parent.id = track.parent_id
JOIN process_track ON process_track.id = track.id JOIN process USING (upid)"""

WINDOW = """window AS (
    SELECT pid, min(ts) AS start, max(ts + dur) AS stop FROM gpu WHERE category IN ('compute', 'comm', 'wait', 'copy') GROUP BY pid
)"""

UNION = f"""
WITH gpu AS (SELECT pid, slice.category, ts, dur {ON} WHERE parent.name = 'GPU'), {WINDOW}, wanted(kinds, kind) AS (
    VALUES ('compute', 'compute'), ('comm', 'compute'), ('comm', 'comm'), ('comm', 'wait'),
           ('copy', 'compute'), ('copy', 'comm'), ('copy', 'wait'), ('copy', 'copy')
), held AS (
    SELECT kinds, pid, ts, ts + dur AS stop,
           max(ts + dur) OVER (PARTITION BY kinds, pid ORDER BY ts, dur ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
               AS before
    FROM gpu JOIN wanted ON wanted.kind = gpu.category
)
SELECT held.pid, kinds, sum(max(0, held.stop - max(held.ts, coalesce(before, held.ts)))) AS busy,
       window.stop - window.start AS length
FROM held JOIN window USING (pid) GROUP BY held.pid, kinds
"""

QUERIES = {
    "complaints": "SELECT name, value FROM stats WHERE value > 0 AND severity != 'info'",
    "on_gpu": f"SELECT pid, slice.category, count(*) AS number, sum(dur) AS ns {ON} WHERE parent.name = 'GPU' GROUP BY 1, 2",
    "on_host": f"SELECT slice.category, count(*) AS number {ON} WHERE parent.name = 'host' GROUP BY 1",
    "launches": f"""SELECT count(*) AS number FROM flow JOIN slice launch ON launch.id = slice_out
                    WHERE launch.category = 'runtime' AND slice_in IN (SELECT slice.id {ON} WHERE parent.name = 'GPU')""",
    "across": """SELECT count(*) AS number FROM flow JOIN slice tail ON tail.id = slice_out JOIN slice head ON head.id = slice_in
                 WHERE tail.category IN ('comm', 'wait') AND head.category IN ('comm', 'wait')""",
    "queue": """SELECT count(*) AS number, max(value) AS deepest FROM counter JOIN track ON track.id = track_id
                WHERE track.name = 'launched operations that wait'""",
    "busy": UNION,
}


@pytest.fixture(scope="module")
def processor(tmp_path_factory):
    return fetched(tmp_path_factory.mktemp("processor"))


@pytest.mark.parametrize("name", sampled(["moe", "ddp", "nsys_ddp"], 3))
def test_sql_in_perfettos_trace_processor_gives_the_reports_figures(name, processor, tmp_path):
    traces = sample(name).ranks
    results = run(traces, (*perfetto.NEEDED, "breakdown"))
    perfetto.write(results, tmp_path / "x.pftrace.gz", name, lambda visitor: [*map(visitor, traces)])
    found = asked(processor, tmp_path / "x.pftrace.gz", QUERIES, tmp_path)

    assert found["complaints"].empty
    operations = pd.concat([trace.gpu_ops.assign(pid=trace.rank + 1) for trace in traces])
    lengths = (operations["end_ns"] - operations["start_ns"]).groupby(operations["pid"]).sum()
    assert found["on_gpu"].groupby("pid")["ns"].sum().to_dict() == lengths.to_dict()
    waits = results["call_waits"].table
    on_gpu = found["on_gpu"].groupby("category")[["number", "ns"]].sum()
    assert on_gpu.loc[["wait"], "ns"].sum() == waits["wait_ns"].sum()
    assert on_gpu["number"].sum() >= len(operations)

    tables = {"operator": "host_ops", "runtime": "api_calls", "range": "ranges", "python": "frames"}
    there = {kind: sum(len(trace.table(table)) for trace in traces) for kind, table in tables.items()}
    assert found["on_host"].set_index("category")["number"].to_dict() == {kind: n for kind, n in there.items() if n}
    assert found["launches"].loc[0, "number"] == (operations["launch"] >= 0).sum()
    shared = waits.groupby("instance").size()
    assert found["across"].loc[0, "number"] == (shared - 1).sum()
    assert found["queue"].loc[0, "number"] > 0

    busy = {(row.pid, row.kinds): int(row.busy) for row in found["busy"].itertuples()}
    length = {row.pid: int(row.length) for row in found["busy"].itertuples()}
    for rank, row in results["breakdown"].to_frame().set_index("rank").iterrows():
        pid = rank + 1
        assert int(row["compute_ns"]) == busy[pid, "compute"]
        assert int(row["exposed_comm_ns"]) == busy[pid, "comm"] - busy[pid, "compute"]
        assert int(row["exposed_copy_ns"]) == busy[pid, "copy"] - busy[pid, "comm"]
        assert int(row["idle_ns"]) == length[pid] - busy[pid, "copy"]
