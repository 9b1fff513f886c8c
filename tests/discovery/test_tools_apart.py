"""Recordings of the same ranks by several tools."""

from tests.builders import document, kernel
from tests.builders import write as write_file
from tests.nsys_builders import export, write_sqlite
from tests.simulator import Capture, capture, kineto, nsys, run
from tests.simulator import workloads as usual
from traceanalyzer.analyses import run as run_analyses
from traceanalyzer.discovery import discover
from traceanalyzer.loading import load


def recorded(folder, of_kineto, of_nsys):
    """Files of these ranks, by either tool."""
    truth = run(usual.ddp(2, 3))
    for write, ranks in ((kineto.write, of_kineto), (nsys.write_reports, of_nsys)):
        others = tuple({0, 1} - {*ranks})
        write(capture(truth, Capture(has_payloads=True, missing=others)), folder)
    return folder


def test_ranks_that_two_tools_recorded_are_two_runs(tmp_path):
    runs = discover(recorded(tmp_path, (0, 1), (0, 1))).runs
    assert sorted(sorted(capture.path.name for capture in run.captures) for run in runs) == [
        ["rank0.json.gz", "rank1.json.gz"],
        ["report.sqlite"],
    ]


def test_ranks_of_which_each_tool_recorded_some_are_one_run_whose_calls_have_other_groups(tmp_path):
    traces = load(recorded(tmp_path, (0,), (1,)))
    assert [trace.rank for trace in traces.ranks] == [0, 1]
    checks = run_analyses(traces.ranks, ["integrity"])["integrity"].to_frame().set_index("check")["sentence"]
    assert "several formats (kineto, nsys)" in checks["unanswered_calls"]


def test_a_file_that_names_no_rank_is_none_of_another_tools_job(tmp_path):
    write_file(tmp_path / "rank0.json", document([kernel(0, 5)], rank=0, world_size=2, base_ns=10**18))
    write_sqlite(tmp_path / "report.sqlite", export())
    assert sorted(run.captures[0].path.name for run in discover(tmp_path).runs) == ["rank0.json", "report.sqlite"]
