"""A trace decoded in several processes gives the tables of one, bit for bit."""

from concurrent.futures import BrokenExecutor, Future
from pathlib import Path

import pandas as pd
import pytest

from traceanalyzer.decoding import tables
from traceanalyzer.decoding.stream import EventDecoder, EventText
from traceanalyzer.decoding.tables import TableBuilder, decode_all
from traceanalyzer.model.schema import TABLES
from traceanalyzer.readers.kineto import frame_of

SAMPLE = Path(__file__).parent.parent / "captures" / "ddp" / "rank0.json.gz"

CHUNK_BYTES = 1 << 16


def decoded(chunks, processes):
    decoder, builder = EventDecoder(), TableBuilder()
    decode_all(chunks, decoder, builder, processes)
    return {name: frame_of(builder, name) for name in (*TABLES, "spans")}, decoder.skipped


def sample(damaged=()):
    """The sample's chunks; of those whose numbers are given one event cannot be read."""
    for number, chunk in enumerate(EventText.open(SAMPLE).chunks(CHUNK_BYTES)):
        yield chunk.replace(b'"ts":', b'"ts": x', 1) if number in damaged else chunk


def assert_same(tables, others):
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table, others[name], check_exact=True, check_categorical=True)


class _Inline:
    """A pool whose workers answer at once or die, batch by batch."""

    def __init__(self, fates):
        self.fates = list(fates)

    def submit(self, work, *args, **kwargs):
        fate = self.fates.pop(0) if self.fates else "answers"
        future = Future()
        if fate == "answers":
            future.set_result(work(*args, **kwargs))
        elif fate == "dies":
            future.set_exception(BrokenExecutor())
        return future


def merged(fates, damaged=()):
    decoder, builder, chunks = EventDecoder(), TableBuilder(), sample(damaged)
    while decoder.needs_exact is None:
        builder.add(decoder.decode(next(chunks)))
    for collected, own in tables._in_order(_Inline(fates), chunks, 3, needs_exact=decoder.needs_exact):
        builder.merge(collected)
        decoder.merge(own)
    return {name: frame_of(builder, name) for name in (*TABLES, "spans")}, decoder.skipped


def test_two_processes_give_the_tables_of_one():
    tables, skipped = decoded(sample(), 1)
    assert len(tables["gpu_ops"]) > 1000
    assert (tables["comm_args"]["gpu_op"] > 0).any()
    others, skipped_there = decoded(sample(), 2)
    assert_same(tables, others)
    assert skipped == skipped_there == 0


@pytest.mark.parametrize(
    "fates",
    [
        ["answers"] * 99,
        ["dies", "answers", "dies"],
    ],
    ids=["all answer", "some die"],
)
def test_whatever_becomes_of_workers(fates):
    damaged = {3, 20}
    tables, skipped = decoded(sample(damaged), 1)
    others, skipped_there = merged(fates, damaged)
    assert_same(tables, others)
    assert skipped == skipped_there == len(damaged)


def test_an_error_of_the_file_is_raised():
    def failing():
        yield from list(sample())[:3]
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        decoded(failing(), 2)
