"""Calls that block hosts while their GPUs idle: whose hosts they are, in words."""

from types import SimpleNamespace

import pandas as pd
import pytest

from traceanalyzer.findings.alike import named
from traceanalyzer.findings.basis import Basis
from traceanalyzer.findings.hosts.idle import _synchronising_call

MS = 1_000_000


@pytest.mark.parametrize(
    ("ranks", "every", "said"),
    [
        ((0,), (0, 1), "blocks rank 0's host while its GPU idles for 8 ms"),
        ((0, 1), (0, 1), "blocks both hosts while a GPU idles for up to 8 ms"),
        ((0, 1, 2), (0, 1, 2), "blocks the hosts of all 3 ranks while a GPU idles for up to 8 ms"),
    ],
)
def test_whose_hosts_a_call_blocks(ranks, every, said):
    rows = [(rank, "cudaStreamSynchronize", None, None, 2, 8 * MS, 8.0, 0) for rank in ranks]
    columns = ["rank", "name", "operator", "range", "calls", "cost_ns", "share_pct", "idle_after_ns"]
    places = SimpleNamespace(places=dict, whole=lambda _: ())
    basis = Basis(None, (), pd.Series(100 * MS, index=every))
    who = named(ranks, every, places) if len(ranks) > 1 else ""
    found = _synchronising_call(pd.DataFrame(rows, columns=columns), who, basis, SimpleNamespace(rows=list))
    assert said in found.title
