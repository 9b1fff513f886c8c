"""Ranges go to whichever profiler records."""

import sys
import threading
from types import SimpleNamespace

import pytest
import torch

from traceanalyzer.runners import recording


@pytest.fixture
def calls(monkeypatch):
    """What NVTX was asked to do, on which thread; no GPU is needed."""
    made = []
    nvtx = SimpleNamespace(
        push_range=lambda name, domain: made.append((name, threading.get_ident(), domain)),
        pop_range=lambda domain: made.append(("", threading.get_ident(), domain)),
    )
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    recording.use_nvtx(is_on=True)
    yield made
    recording.use_nvtx(is_on=False)


def test_nvtx_ranges_close_on_their_thread(calls):
    x = torch.ones(2, requires_grad=True) * 1
    for index in (3, 4):
        x = recording.in_block_ranges(index, lambda x: x + x * 2, x)
    x.sum().backward()
    names = ["block_3", "block_4", "backward block_4", "backward block_3"]
    assert [name for name, *_ in calls] == [each for name in names for each in (name, "")]
    assert {domain for *_, domain in calls} == {"traceanalyzer"}
    assert calls[4][1] == calls[5][1]
