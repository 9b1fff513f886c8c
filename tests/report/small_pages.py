"""One of each kind of page beside reports, written into a folder."""

import pandas as pd

from tests.doctor.builders import dump, entry, write_dumps
from tests.once import once
from tests.samples import SAMPLES
from tests.snapshots.builders import STATE, History, write
from traceanalyzer.diff import compare
from traceanalyzer.diff.sources import SourceOptions, read_sides
from traceanalyzer.doctor import examine
from traceanalyzer.report import examination, snapshots
from traceanalyzer.report import trend as report_trend
from traceanalyzer.report.comparison import DiffReport, html_write
from traceanalyzer.report.trend import COLUMNS
from traceanalyzer.snapshots import examine_snapshot, read_snapshot


def comparison(folder):
    return html_write(DiffReport(once("ddp against fsdp_full", _compared)), folder)[0]


def _compared():
    return compare(read_sides([str(SAMPLES / name) for name in ("ddp", "fsdp_full")], SourceOptions()))


def doctor(folder):
    """Four ranks of which one never came, and the topology of their host."""
    dumps = {rank: dump([entry(1), *([entry(2, state="started")] if rank != 2 else [])], range(4)) for rank in range(4)}
    topology = SAMPLES / "doctor" / "topo_2xH200_nvlink.txt"
    found = examine(flight_recorder=write_dumps(folder / "dumps", dumps), topo=topology)
    return examination.write(found, folder)[0]


def memory(folder):
    history = History()
    history.alloc(3 << 20, STATE)
    for _ in range(6):
        history.free(history.alloc(16 << 20))
        history.alloc(8 << 20)
        history.step()
    snapshot = write(folder / "rank0_snapshot.pickle", history.snapshot())
    return snapshots.write([examine_snapshot(read_snapshot(snapshot))], folder, "run")[0]


def trend(folder):
    row = {"metric": "step_ns", "saved": "2026-01-02T03:04", "repeats": 3, "std": 1.2e6, "change_pct_points": None}
    values = {"main": (66.8e6, None), "later": (70.1e6, 4.9), "last": (64e6, -8.7)}
    rows = [{**row, "baseline": name, "value": value, "change_pct": pct} for name, (value, pct) in values.items()]
    table = pd.DataFrame(rows, columns=list(COLUMNS)).convert_dtypes()
    return report_trend.write(table, ["main and last differ in batch size"], folder)[0]
