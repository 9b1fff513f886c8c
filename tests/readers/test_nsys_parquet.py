"""Folders of Parquet files give the same tables as the database of the same export."""

import pytest

from tests.nsys_builders import export, payload, read_all, write_parquet, write_sqlite
from traceanalyzer import load
from traceanalyzer.errors import NotATraceError
from traceanalyzer.model.schema import TABLES
from traceanalyzer.readers import nsys, reader_of

FILES = [(nsys, lambda folder: write_parquet(folder / "a_pqtdir", export()))]


def test_the_same_as_the_database(tmp_path):
    tables = export()
    tables["NVTX_EVENTS"][3]["binaryData"] = payload(9, bytes(8))
    tables["NVTX_PAYLOAD_SCHEMA_ENTRIES"] = [
        {"domainId": 1, "schemaId": 9, "idx": 0, "type": 22, "name": "Message size [bytes]", "offset": None}
    ]
    (of_database,) = read_all(write_sqlite(tmp_path / "report.sqlite", tables))
    (of_folder,) = read_all(write_parquet(tmp_path / "report_pqtdir", tables))
    for name in TABLES:
        assert of_database.table(name).astype(object).equals(of_folder.table(name).astype(object)), name
    assert of_folder.comm_args["size_bytes"].tolist() == [0]
    assert of_folder.meta.versions == of_database.meta.versions
    assert of_folder.meta.notes == of_database.meta.notes


def test_a_folder_is_recognised_by_its_tables(tmp_path):
    assert reader_of(write_parquet(tmp_path / "report_pqtdir", export())) is nsys
    (tmp_path / "empty").mkdir()
    assert reader_of(tmp_path / "empty") is None


def test_the_same_report_twice_is_read_once(tmp_path):
    write_sqlite(tmp_path / "report.sqlite", export())
    write_parquet(tmp_path / "report_pqtdir", export())
    traces = load(tmp_path)
    assert [trace.meta.files for trace in traces.ranks] == [(str(tmp_path / "report.sqlite"),)]
    assert [skip.why for skip in traces.skipped] == [
        "report.sqlite of the same report lies beside it; keep one of them"
    ]


def test_a_damaged_table_that_figures_can_do_without_is_said(tmp_path):
    folder = write_parquet(tmp_path / "report_pqtdir", export())
    (folder / "NVTX_EVENTS.parquet").write_bytes(b"PAR1 cut")
    (trace,) = read_all(folder)
    assert trace.ranges.empty
    assert any("NVTX_EVENTS is damaged" in note for note in trace.meta.notes)


def test_a_file_that_is_not_parquet(tmp_path):
    folder = write_parquet(tmp_path / "report_pqtdir", export())
    (folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet").write_bytes(b"PAR1 cut")
    with pytest.raises(NotATraceError, match=r"KERNEL\.parquet is not readable as Parquet"):
        read_all(folder)
