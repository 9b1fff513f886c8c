"""Figures of the studies in a comparison: pipelines' balance, blocks that are offloaded, the links that NCCL used."""

import pandas as pd
import pytest

from tests.samples import RUNNERS
from traceanalyzer.diff import compare
from traceanalyzer.diff.metrics import row
from traceanalyzer.diff.sources import SourceOptions, read_side

OPTIONS = SourceOptions()


def table(*names):
    return compare([read_side(str(RUNNERS / name), OPTIONS) for name in names], force=True).metrics


def values(metrics, name, *runs):
    found = [row(metrics, name, run) for run in runs]
    return [None if one is None else one["value"] for one in found]


def test_sliced_offloading_is_told_from_naive_by_its_copies_and_blocks():
    runs = ("zo_offload", "zo_offload_sliced")
    metrics = table(*runs)
    naive, sliced = values(metrics, "block_upload_ns", *runs)
    assert 0 < sliced < 0.6 * naive  # half of the bytes
    for name in ("block_pitch_ns", "block_compute_ns", "block_download_ns", "upload_hidden_pct", "download_hidden_pct"):
        assert all(value is not None and value > 0 for value in values(metrics, name, *runs)), name
    assert all(0 <= value <= 100 for value in values(metrics, "upload_hidden_pct", *runs))


def test_pipelines_are_compared_by_bubble_and_balance():
    metrics = table("pp_1f1b", "pytorch_ddp")
    bubble, none = values(metrics, "bubble_pct", "pp_1f1b", "pytorch_ddp")
    assert bubble == pytest.approx(values(metrics, "expected_bubble_pct", "pp_1f1b")[0], abs=60)
    assert pd.isna(none)  # no pipeline, no bubble
    assert 0 < values(metrics, "stage_cv", "pp_1f1b")[0] < 1
    assert values(metrics, "block_pitch_ns", "pp_1f1b") == [None]
