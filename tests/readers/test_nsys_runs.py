"""Several reports of one job: a rank each or more, found in a folder and numbered together."""

from tests.nsys_builders import EPOCH_NS, export, kernel, memcpy, write_parquet, write_sqlite
from traceanalyzer import load
from traceanalyzer.discovery import Found, discover
from traceanalyzer.loading import other_runs


def started(tables, after_ns):
    """The same export of a session that began later."""
    return tables | {"TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": EPOCH_NS + after_ns}]}


def two_gpus(process):
    return export() | {
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(100, 200, process=process), kernel(100, 200, process=process + 1, device=1)],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [memcpy(50, 60, process=process)],
        "CUPTI_ACTIVITY_KIND_MEMSET": [],
    }  # fmt: skip


def test_a_report_for_each_rank_is_numbered_by_its_name_and_shares_the_clock(tmp_path):
    for rank in (10, 2):
        write_sqlite(tmp_path / f"report_rank{rank}.sqlite", started(export(), rank * 1_000_000_000))
    traces = load(tmp_path)
    assert [(trace.rank, trace.meta.rank_source) for trace in traces.ranks] == [(2, "path"), (10, "path")]
    first, second = (trace.gpu_ops["start_ns"].iloc[0] for trace in traces.ranks)
    assert second - first == 8_000_000_000


def test_reports_of_two_hosts_with_two_gpus_each_are_four_ranks(tmp_path):
    write_sqlite(tmp_path / "node_a.sqlite", two_gpus(100))
    write_sqlite(tmp_path / "node_b.sqlite", started(two_gpus(300), 500))
    traces = load(tmp_path)
    assert [(trace.rank, trace.meta.process) for trace in traces.ranks] == [(0, 100), (1, 101), (2, 300), (3, 301)]
    assert not traces.skipped


def test_one_of_the_ranks_of_a_report(tmp_path):
    path = write_sqlite(tmp_path / "both.sqlite", two_gpus(100))
    (trace,) = load(path, ranks="1").ranks
    assert trace.meta.process == 101


def test_a_parquet_folder_by_its_own_path(tmp_path):
    path = write_parquet(tmp_path / "report_pqtdir", export())
    assert [trace.rank for trace in load(path).ranks] == [0]


def test_reports_after_each_other_that_name_no_rank_are_runs_of_their_own(tmp_path):
    for number, name in enumerate(("naive", "ddp", "fsdp")):
        write_sqlite(tmp_path / f"{name}.sqlite", started(two_gpus(100), number * 5_000_000))
    write_parquet(tmp_path / "metrics_pqtdir", started(two_gpus(100), 5_000_500))
    runs = discover(tmp_path).runs
    assert [[(c.path.name, c.ranks) for c in run.captures] for run in runs] == [
        [("naive.sqlite", (0,))],
        [("ddp.sqlite", (0,)), ("metrics_pqtdir", (1,))],
        [("fsdp.sqlite", (0,))],
    ]
    (note,) = other_runs(Found(runs, ()))
    assert note.startswith("The folder holds 2 other runs (naive and 20231114-221320); this is the newest one, fsdp.")
