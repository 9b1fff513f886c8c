"""Chunks that a thread of its own reads."""

import time
from threading import Event

import pytest

from traceanalyzer.decoding import batches


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
