"""Rows of several ranks as one."""

import pandas as pd
import pytest

import traceanalyzer as ta
from tests.samples import SAMPLES
from traceanalyzer.report import over_ranks


@pytest.mark.parametrize("storage", ["python", "pyarrow"])
def test_an_absent_key_stays_absent(storage):
    """The capture's peer-to-peer copies have neither process group nor element type."""
    with pd.option_context("mode.string_storage", storage):
        table = over_ranks.communication(ta.nccl(ta.load(SAMPLES / "streams")))
    assert table["collective"].tolist() == ["peer_copy"]
    assert table[["group", "dtype"]].isna().all(axis=None)
