"""What every reader promises, over the registry: `READERS` has no other."""

import pytest

from tests import builders, nsys_builders, rocprof_builders, xplane_builders
from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.model.schema import TABLES
from traceanalyzer.readers import (
    READERS,
    Header,
    RankHint,
    ended_ns,
    kineto,
    nsys,
    reader_of,
    rocpd,
    rocprofv3,
    xplane,
)

EVENTS = [
    builders.host(0, 5, name="cudaLaunchKernel", cat="cuda_runtime", correlation=1),
    builders.kernel(10, 20, correlation=1),
    builders.kernel(5, 3, correlation=2),
]
FILES = [
    (kineto, lambda folder: builders.write(folder / "a.json", builders.document(EVENTS))),
    (nsys, lambda folder: nsys_builders.write_sqlite(folder / "a.sqlite", nsys_builders.export())),
    (nsys, lambda folder: nsys_builders.write_parquet(folder / "a_pqtdir", nsys_builders.export())),
    (rocpd, lambda folder: rocprof_builders.write_database(folder / "55_results.db", rocprof_builders.buffers())),
    (rocprofv3, lambda folder: rocprof_builders.write_json(folder / "55_results.json", rocprof_builders.buffers())),
    (xplane, lambda folder: xplane_builders.write(folder / "a.xplane.pb")),
]
HINT = RankHint(5, "path")

readers = pytest.mark.parametrize(("reader", "write"), FILES)


def test_no_reader_is_without_a_file():
    assert {reader for reader, _ in FILES} == {*READERS}


@readers
def test_its_file_is_its_own_and_gives_tables_of_the_schema(reader, write, tmp_path):
    path = write(tmp_path)
    assert reader_of(path) is reader
    head = reader.peek(path)
    assert isinstance(head, Header)
    end_ns = ended_ns(path)
    assert end_ns is None or head.start_ns is None or end_ns >= head.start_ns
    traces = list(reader.read(path, HINT, KindRules()))
    assert len({trace.rank for trace in traces}) == len(traces) > 0
    assert head.ranks is None or {*head.ranks} == {trace.rank for trace in traces}
    for trace in traces:
        assert len(trace.gpu_ops)
        assert trace.meta.format
        assert trace.meta.rank_source
        assert trace.meta.files
        for name, schema in TABLES.items():
            table = trace.table(name)
            assert {column: str(table[column].dtype) for column in table} == dict(schema), name
            if "start_ns" in schema and name != "comm_args":
                assert table["start_ns"].is_monotonic_increasing, name
                assert (table["end_ns"] >= table["start_ns"]).all(), name
        launch = trace.gpu_ops["launch"]
        assert launch.between(-1, len(trace.api_calls) - 1).all()


@readers
def test_the_users_rules_come_first(reader, write, tmp_path):
    rules = KindRules.parse(("copy=.",))
    for trace in reader.read(write(tmp_path), HINT, rules):
        kernels = trace.gpu_ops[trace.gpu_ops["activity"] == "kernel"]
        assert set(kernels["kind"]) == {"copy"}


@readers
@pytest.mark.parametrize("kept", [0, 1 / 3, 0.9], ids=["empty", "a third", "most"])
def test_a_file_that_is_cut_off_is_refused_or_gives_what_it_holds(reader, write, kept, tmp_path):
    path = write(tmp_path)
    for part in sorted(path.iterdir()) if path.is_dir() else [path]:
        whole = part.read_bytes()
        part.write_bytes(whole[: round(kept * len(whole))])
    try:
        reader.peek(path)
        traces = list(reader.read(path, HINT, KindRules()))
    except NotATraceError as error:
        assert path.name in str(error)  # noqa: PT017 - it may be refused, or give what it holds
    else:
        assert all(trace.meta.notes or trace.meta.is_truncated or trace.meta.events_skipped for trace in traces)
