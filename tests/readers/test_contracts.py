"""What every reader promises, over the registry: `READERS` has no other."""

import random
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from tests.fuzz.mutations import bytes_mutated
from tests.fuzz.targets import read_trace
from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.model.schema import TABLES
from traceanalyzer.readers import READERS, Header, RankHint, ended_ns, reader_of

MODULES = [path.stem for path in sorted(Path(__file__).parent.glob("test_*.py")) if path.stem != "test_contracts"]
FILES = [case for name in MODULES for case in getattr(import_module(f"tests.readers.{name}"), "FILES", ())]
"""Readers, and what writes a file of each into a folder: every test of a reader says so."""

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


@readers
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_file_is_refused_or_gives_sound_tables(reader, write, seed, tmp_path):  # noqa: ARG001 - of `readers`
    path, rng = write(tmp_path), random.Random(seed)
    part = rng.choice(sorted(path.iterdir()) if path.is_dir() else [path])
    part.write_bytes(bytes_mutated(rng, part.read_bytes()))
    with suppress(NotATraceError):
        read_trace(path)
