"""Kineto files as they are found: cut anywhere, padded, in other encodings, put together from several."""

import gzip
import json
import zlib

import pytest

from tests.builders import document, host, kernel
from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.readers import RankHint, kineto

EVENTS = [
    host(0, 5, name="aten::mm"),
    *(kernel(10 * place, 5.125, name=f'k{place} "}}{{', correlation=place, grid=[1, 2, 3]) for place in range(6)),
]
TEXT = json.dumps(document(EVENTS, rank=1, traceName="x")).encode()


def read(path):
    return list(kineto.read(path, RankHint(0, "path"), KindRules()))


def names(path):
    return [name for trace in read(path) for name in trace.gpu_ops["name"]]


def whole_before(text):
    """Kernels whose event has ended, by the standard library's decoder, one event after the other."""
    found, decoder, plain = [], json.JSONDecoder(), text.decode()
    place = plain.find('"traceEvents": [')
    if place < 0:
        return found
    place += len('"traceEvents": [')
    while True:
        try:
            event, place = decoder.raw_decode(plain, place)
        except ValueError:
            return found
        found += [event["name"]] if event["cat"] == "kernel" else []
        place += 2


@pytest.mark.parametrize("cut", range(1, len(TEXT), 13))
def test_a_text_cut_anywhere_gives_every_whole_event(tmp_path, cut):
    path = tmp_path / "a.json"
    path.write_bytes(TEXT[:cut])
    expected = whole_before(TEXT[:cut])
    if not expected:
        with pytest.raises(NotATraceError):
            read(path)
        return
    (trace,) = read(path)
    assert trace.gpu_ops["name"].tolist() == expected
    is_array_whole = b"]" in TEXT[:cut].partition(b"k5")[2].partition(b"}}")[2]
    assert trace.meta.is_truncated is not is_array_whole
    assert is_array_whole or f"{len(expected) + 1} whole events are read" in " ".join(trace.meta.notes)


@pytest.mark.parametrize("cut", range(30, 400, 37))
def test_a_gzip_cut_anywhere_gives_every_whole_event_that_it_holds(tmp_path, cut):
    path = tmp_path / "a.json.gz"
    packed = gzip.compress(TEXT)[:cut]
    path.write_bytes(packed)
    expected = whole_before(zlib.decompressobj(31).decompress(packed))
    if expected:
        assert names(path) == expected
    else:
        with pytest.raises(NotATraceError):
            read(path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_other_encodings(tmp_path, encoding):
    path = tmp_path / "a.json"
    path.write_bytes(TEXT.decode().replace("aten::mm", "aten::é").encode(encoding))
    (trace,) = read(path)
    assert (len(trace.gpu_ops), trace.host_ops["name"].tolist(), trace.rank) == (6, ["aten::é"], 1)


@pytest.mark.parametrize(
    ("odd", "kept", "is_said"),
    [
        (TEXT + b"\0" * 5000, 6, False),
        (TEXT[:-300] + b"\0" * 5000, len(whole_before(TEXT[:-300])), True),
        (TEXT.replace(b"}}, {", b"}},, {"), 6, False),
        (TEXT.replace(b"]}}", b"],}}"), 6, False),
        (TEXT.rstrip(b"}]").rstrip() + b"}}", 6, True),
        (TEXT.replace(b'"ts": 10,', b'"ts": NaN,'), 5, True),
        (TEXT.replace(b'"dur": 5.125', b'"dur": Infinity', 1), 6, None),
        (TEXT.replace(b'"ts": 10,', b'"ts": 3, "ts": 10,'), 6, False),
        (TEXT.replace(b'"ts": 10,', b'"ts": "10",'), 6, False),
        (TEXT.replace(b"k3", b"k\xff"), 6, False),
        (TEXT.replace(b'"dur": 5.125', b'"dur": -5.125', 1), 6, True),
        (TEXT.replace(b'"dur": 5.125', b'"dur": 1e13', 1), 5, True),
        (TEXT.replace(b'"cat": "kernel"', b'"cat": "novel"', 1), 5, False),
        (TEXT.replace(b'"pid": 0, "tid": 7, ', b""), 6, False),
        (TEXT.replace(b'"ts": 10,', b'"ts": ' + b"9" * 400 + b","), 5, True),
    ],
)  # fmt: skip
def test_texts_as_they_are_found(tmp_path, odd, kept, is_said):
    path = tmp_path / "a.json"
    path.write_bytes(odd)
    (trace,) = read(path)
    said = bool(trace.meta.is_truncated or trace.meta.events_skipped or trace.meta.events_backwards)
    assert len(trace.gpu_ops) == kept
    assert is_said is None or said is is_said, (trace.meta.notes, trace.meta.events_skipped)


def test_two_traces_in_one_file_are_not_read_as_one(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(TEXT + b"\n" + TEXT)
    with pytest.raises(NotATraceError, match="2 traces, one behind the other"):
        read(path)


def test_a_text_without_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("traceanalyzer.decoding.stream.EVENT_BYTES_MOST", 1 << 20)
    monkeypatch.setattr("traceanalyzer.decoding.stream.CHUNK_BYTES", 1 << 18)
    path = tmp_path / "a.json"
    path.write_bytes(TEXT.replace(b'"k2 ', b'"' + b"a" * (6 << 20), 1))
    (trace,) = read(path)
    assert trace.meta.events_skipped
    assert "k5" in trace.gpu_ops["name"].iloc[-1]
