"""Chunks of a text that is mostly blanks."""

import gzip

from traceanalyzer.decoding import stream


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
