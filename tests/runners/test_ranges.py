"""Ranges go to whichever profiler records."""

import threading

import pytest
import torch

from traceanalyzer.runners import ranges


@pytest.fixture
def in_nvtx():
    ranges.use_nvtx(is_on=True)
    yield
    ranges.use_nvtx(is_on=False)


class Recorder:
    """What the package `nvtx` was asked to do, on which thread."""

    def __init__(self):
        self.calls = []

    def push_range(self, name, *, domain):
        self.calls.append((name, domain, threading.get_ident()))

    def pop_range(self, *, domain):
        self.calls.append(("", domain, threading.get_ident()))


@pytest.mark.usefixtures("in_nvtx")
def test_nvtx_ranges_have_a_domain_and_close_on_their_thread(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(ranges, "nvtx", recorder)
    x = torch.ones(2, requires_grad=True) * 1
    for index in (3, 4):
        x = ranges.in_block_ranges(index, lambda x: x + x * 2, x)
    x.sum().backward()
    names = ["block_3", "block_4", "backward block_4", "backward block_3"]
    assert [name for name, *_ in recorder.calls] == [each for name in names for each in (name, "")]
    assert {domain for _, domain, _ in recorder.calls} == {"traceanalyzer"}
    assert recorder.calls[2][2] == recorder.calls[3][2]


@pytest.mark.usefixtures("in_nvtx")
def test_the_package_takes_what_it_is_given():
    """Without a listening profiler it records nothing, but must not fail; no GPU is needed."""
    pytest.importorskip("nvtx", reason="the package nvtx is not installed")
    with ranges.span("forward"):
        pass
