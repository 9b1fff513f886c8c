"""Captures hold the machine's environment, arguments and process names: none of it may get out."""

import dataclasses

import pytest
from click.testing import CliRunner

from tests.nsys_builders import export, gid, read_all, write_parquet, write_sqlite
from traceanalyzer.analyses import run
from traceanalyzer.cli import cli
from traceanalyzer.model.schema import TABLES
from traceanalyzer.readers import reader_of
from traceanalyzer.readers.nsys.traces import scrub

SECRET = "hunter2-token"


def poisoned():
    """An export with the secret wherever a real one keeps the machine's own words."""
    tables = export()
    tables["StringIds"] += [{"id": 900, "value": f"API_KEY={SECRET}"}, {"id": 901, "value": f"/home/{SECRET}/train.py"}]
    tables["META_DATA_EXPORT"] += [
        {"name": "EXPORT_USER", "value": SECRET},
        {"name": "EXPORT_SCHEMA_VERSION", "value": f"3.20 {SECRET}"},
    ]
    return tables | {
        "TARGET_INFO_SYSTEM_ENV": [{"globalVid": 1, "devStateName": SECRET, "name": "API_KEY", "value": SECRET}],
        "META_DATA_CAPTURE": [{"name": "COMMAND_LINE", "value": f"python train.py --token {SECRET}"}],
        "PROCESSES": [{"globalPid": gid(100), "pid": 100, "name": SECRET}],
        "PROCESS_STREAMS": [{"globalPid": gid(100), "filenameId": 901, "contentId": 900}],
        "ThreadNames": [{"nameId": 900, "priority": 0, "globalTid": gid(100, 100)}],
        "DIAGNOSTIC_EVENT": [
            {"timestamp": 0, "severity": 3, "source": 1, "text": f"Cannot open /home/{SECRET}"},
            {"timestamp": 0, "severity": 2, "source": 1, "text": f"Not all {SECRET} events might have been collected."},
            {"timestamp": 0, "severity": 1, "source": 1, "text": f"Number of events dropped: 7 in {SECRET}"},
        ],
    }


@pytest.fixture(params=["report.sqlite", "report_pqtdir"])
def path(request, tmp_path):
    return written_as(request.param, tmp_path)


@pytest.fixture(params=["report_pqtdir", pytest.param("report.sqlite", marks=pytest.mark.thorough)])
def analysed_path(request, tmp_path):
    """One of both: what is analysed is what `test_it_is_in_no_table_and_no_meta` reads of both."""
    return written_as(request.param, tmp_path)


def written_as(name, folder):
    write = write_sqlite if name.endswith(".sqlite") else write_parquet
    return write(folder / name, poisoned())


def test_it_is_in_the_capture(path):
    files = path.rglob("*") if path.is_dir() else [path]
    assert any(SECRET.encode() in file.read_bytes() for file in files)


def test_it_is_in_no_table_and_no_meta(path):
    (trace,) = read_all(path)
    assert len(trace.gpu_ops) == 4
    for field in dataclasses.fields(trace):
        value = getattr(trace, field.name)
        text = value.to_csv() if hasattr(value, "to_csv") else repr(value)
        assert SECRET not in text, field.name
        if hasattr(value, "columns"):
            for column in value.select_dtypes("category"):
                assert not any(SECRET in str(category) for category in value[column].cat.categories), column


def test_it_is_in_no_head(path):
    assert SECRET not in repr(reader_of(path).peek(path))


def test_it_is_in_no_result(analysed_path):
    for name, result in run(read_all(analysed_path)).items():
        assert SECRET not in result.to_frame().to_csv(), name


def test_what_may_be_said_is_said(path):
    (trace,) = read_all(path)
    notes = " ".join(trace.meta.notes)
    assert trace.meta.events_dropped == 7
    assert "Nsight Systems reported 1 error" in notes


def test_it_is_not_in_the_cache(tmp_path):
    tables = poisoned() | {"PROCESS_STREAMS": [{"content": SECRET * 100}] * 1000}
    whole, kept = write_sqlite(tmp_path / "a.sqlite", tables), write_sqlite(tmp_path / "b.sqlite", tables)
    scrub(kept)
    assert kept.stat().st_size < whole.stat().st_size / 10  # nothing is left on free pages
    assert SECRET.encode() in whole.read_bytes()
    assert SECRET.encode() not in kept.read_bytes()
    (before,), (after,) = read_all(whole), read_all(kept)
    assert before.meta.notes == after.meta.notes
    assert before.meta.events_dropped == after.meta.events_dropped == 7
    assert before.meta.versions == after.meta.versions
    for name in TABLES:
        assert before.table(name).astype(object).equals(after.table(name).astype(object)), name


def test_it_is_in_no_file_that_the_command_writes_and_in_nothing_that_it_prints(analysed_path, tmp_path):
    output = tmp_path / "out"
    arguments = ["--trace-file", str(analysed_path), "--output", str(output), "--verbose"]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert SECRET not in result.output
    written = [file for file in output.rglob("*") if file.is_file()]
    assert written
    for file in written:
        assert SECRET.encode() not in file.read_bytes(), file.name
