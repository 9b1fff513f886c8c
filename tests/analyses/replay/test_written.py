"""Changes are read as they are written, and written as they are read."""

import pytest

from traceanalyzer.analyses.replay.changes import Change, read_change
from traceanalyzer.errors import UsageError


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("rank 7=peers", Change("rank", "peers", frozenset({7}))),
        ("rank 0,2-3=peers", Change("rank", "peers", frozenset({0, 2, 3}))),
        ("cpu none", Change("cpu", 0.0)),
        ("cpu 3=even", Change("cpu", "even", frozenset({3}))),
        ("comm free", Change("comm", 0.0)),
        ("compute 2x", Change("compute", 0.5)),
        ("operator aten::mm=4x", Change("operator", 0.25, name="aten::mm")),
        ("kernel a=b=2x", Change("kernel", 0.5, name="a=b")),
        ("compute 2000000x", Change("compute", 0.0000005)),
        ("links 1230000", Change("links", 1_230_000.0)),
        ("waits none", Change("waits", 0.0)),
    ],
)
def test_reads(text, change):
    assert read_change(text) == change
    assert read_change(str(change)) == change


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu 2x", "no part of a job"),
        ("rank peers", "say which"),
        ("operator 2x", "say which"),
        ("operator =2x", "say which"),
        ("waits 2x", "cannot become"),
        ("compute 0x", "cannot become"),
        ("host x=none", "write numbers"),
        ("host 3-1=none", "3-1 is reversed"),
    ],
)
def test_refuses(text, said):
    with pytest.raises(UsageError, match=said):
        read_change(text)
