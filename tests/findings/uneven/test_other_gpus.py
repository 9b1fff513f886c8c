"""What is said of ranks that share a GPU."""

import pandas as pd
import pytest
from traceanalyzer.findings.uneven.slower_gpus import shared_gpu

from traceanalyzer.analyses.trace import Ranks


def told(*rows):
    """Ranks of these hosts, GPUs and numbers of GPUs that they see."""
    table = pd.DataFrame(rows, columns=["host", "device", "devices_seen"])
    table = table.astype({"device": "Int64", "devices_seen": "Int64"}).reindex(columns=list(Ranks.columns))
    files = [f"rank{rank}.json" for rank in range(len(rows))]
    ranks = Ranks(table.assign(rank=range(len(rows)), files=files, format="kineto", rank_source="path"))
    return [found.title.partition(" run on")[0] for found in shared_gpu(ranks)]


def in_reports(*rows, devices_seen=1):
    """Ranks of these reports of Nsight Systems, and the GPUs of their machines that they have."""
    table = pd.DataFrame(rows, columns=["files", "device"]).assign(devices_seen=devices_seen)
    table = table.astype({"device": "Int64", "devices_seen": "Int64"}).reindex(columns=list(Ranks.columns))
    return shared_gpu(
        Ranks(table.assign(rank=range(len(rows)), format="nsys", rank_source="order of GPUs in one file"))
    )


@pytest.mark.parametrize(
    ("rows", "devices_seen", "is_said"),
    [
        ([("a.sqlite", 0), ("a.sqlite", 0)], 1, True),
        ([("a.sqlite", 0), ("a.sqlite", 1)], 2, False),
        ([("a.sqlite", 0), ("b.sqlite", 0)], 1, False),  # of two machines, as far as anybody knows
        ([("a.sqlite", 0), ("a.sqlite", 0)], None, False),  # numbers as the processes count them
    ],
)
def test_processes_share_a_gpu_where_their_report_says_so(rows, devices_seen, is_said):
    found = in_reports(*rows, devices_seen=devices_seen)
    assert [item.title.partition(":")[0] for item in found] == ["Ranks 0 and 1 run on one GPU"] * is_said
    assert all(item.caveat is None and "They share it" in item.title for item in found)
