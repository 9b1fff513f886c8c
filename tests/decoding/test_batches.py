"""Chunks that a thread of its own reads."""

import gzip
import time
from threading import Event

import pytest

from traceanalyzer.decoding import batches, stream


def test_a_signal_waits_for_no_chunk_that_is_being_read():
    """One of blanks may take minutes."""
    ends = Event()

    def chunks():
        ends.wait(30)
        yield from ()

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), batches._read_ahead(chunks()):
        raise KeyboardInterrupt
    taken = time.monotonic() - began
    ends.set()
    assert taken < 2


def test_blanks_are_looked_through_once(tmp_path, monkeypatch):
    event = b'{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}'
    text = b'{"traceEvents": [' + event + b"," + event + b" " * (200 << 10) + b"," + event + b"]}"
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(text))
    looked_at = []
    real = stream.last_cut
    monkeypatch.setattr(stream, "last_cut", lambda part, *more: looked_at.append(len(part)) or real(part, *more))
    assert b"".join(stream.EventText.open(path).chunks(1 << 10)).count(b'"ph"') == 3
    assert sum(looked_at) < 4 * len(text)
