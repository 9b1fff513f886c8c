"""Figures of the studies in a comparison: pipelines' balance, blocks that are offloaded, the links that NCCL used."""

import pandas as pd
import pytest

from tests import once
from traceanalyzer.diff import Side, compare
from traceanalyzer.diff.captures import Capture, of_results, shared_steps
from traceanalyzer.diff.metrics import row

NEEDED = ("ranks", "headline", "breakdown", "steps", "pipelines", "block_bounds", "stream_pairs")


def side(name):
    tables = of_results(once.results(name, NEEDED))
    steps = shared_steps(tables["steps"], tables["breakdown"])
    return Side(name, (Capture(name, "traces", tables, steps, is_exact=True),))


def table(*names):
    return compare([side(name) for name in names], force=True).metrics


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
