"""Advice names the tools of the job's framework."""

import re
from dataclasses import fields

import pandas as pd
import pytest

from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings import tools


@pytest.mark.parametrize(
    ("formats", "expected"),
    [(["kineto"], tools.TORCH), (["xplane", "xplane"], tools.XLA), (["nsys"], tools.TORCH), ([], tools.TORCH)],
)
def test_tools_are_those_of_the_traces(formats, expected):
    ranks = Ranks(pd.DataFrame({"rank": range(len(formats)), "format": formats}))
    assert tools.tools_of(ranks) is expected


def test_xla_is_told_by_its_kernels_too():
    ranks = pd.DataFrame({"rank": [0, 1], "format": "nsys", "versions": ["nsys 2025.3.2.0, compiler XLA"] * 2})
    assert tools.tools_of(Ranks(ranks)) is tools.XLA
    assert tools.tools_of(Ranks(ranks.assign(versions=[ranks["versions"][0], None]))) is tools.TORCH


def test_jax_is_not_told_to_use_torch():
    assert not [
        field.name for field in fields(tools.XLA) if re.search("torch|DDP", str(getattr(tools.XLA, field.name)))
    ]


def test_without_ranks_it_is_torch():
    assert tools.tools_of(None) is tools.TORCH
