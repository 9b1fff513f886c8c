"""Why a rank's copies take longer is told beside its lateness: more bytes, a slower link, or what only it copies."""

from types import SimpleNamespace

import pandas as pd
import pytest

from tests.findings.late.test_other_work import Rows
from traceanalyzer.findings.devices.copies import other_copies

MS, MB = 1_000_000, 1_000_000
COPIES = ["rank", "direction", "source_memory", "target_memory", "copies", "size_bytes", "total_ns"]
OTHER = (0, "HtoD", "pinned", "device", 4, 100 * MB, 2 * MS)
UPLOAD = "Memcpy HtoD (Pinned -> Device)"


def row_of(name=UPLOAD, **changed):
    return {"ranks": "1", "cause": "copies", "name": name, "is_in_every_step": True, "own_ns": 8 * MS, "peers_ns": 2 * MS,
            "gain_ns": 6 * MS, "step_ns": 30 * MS, "together": None, "joint_gain_ns": None, "place": None, "episode": 0,
            "joint_unprofiled_gain_ns": None, "unprofiled_gain_ns": None, "gain_is_bound": False, "own_host_ns": None,
            "peers_host_ns": None, "apart_host_ns": None, "steps": 3, "set": "rank", "numbers": None, "is_in_turn": False,
            "gain_is_of_capture": False, "same_work_ratio": None, "what": "copy"} | changed  # fmt: skip


@pytest.mark.parametrize(
    ("own", "says", "to_do"),
    [
        (
            (1, "HtoD", "pinned", "device", 4, 100 * MB, 8 * MS),
            "Rank 1 copies 100 MB host to device in the capture, as many bytes as the others: at 12.5 GB/s, they at 50 GB/s.",
            "PCI Express",
        ),
        (
            (1, "HtoD", "pinned", "device", 4, 400 * MB, 8 * MS),
            "Rank 1 copies 400 MB host to device in the capture, the others 100 MB.",
            "Let rank 1 copy as much as the others",
        ),
        (
            (1, "DtoH", "device", "pinned", 4, 400 * MB, 8 * MS),
            "Rank 1 copies 400 MB device to host in the capture, which no other rank does.",
            "Find what rank 1 copies there",
        ),
    ],
)
def test_why_copies_take_longer(own, says, to_do):
    copies = pd.DataFrame([OTHER, (2, *OTHER[1:]), own], columns=COPIES).assign(rate_gbps=1.0)
    (found,) = other_copies(SimpleNamespace(worth_pct=1.0, rows=lambda: [row_of(UPLOAD)]), Rows(frame=copies))
    assert found.title.replace("\u202f", " ").replace("\u00a0", " ") == says
    assert to_do in found.recommendation


@pytest.mark.parametrize(
    ("own", "changed"),
    [
        (OTHER, {}),
        ((1, "HtoD", "pinned", "device", 4, 110 * MB, 8 * MS), {}),
        ((1, "HtoD", "pinned", "device", 4, 400 * MB, 8 * MS), {"is_in_every_step": False}),
        ((1, "HtoD", "pinned", "device", 4, 400 * MB, 8 * MS), {"cause": "compute"}),
        ((1, "HtoD", "pageable", "device", 4, 100 * MB, 8 * MS), {"name": "Memcpy HtoD (Pageable -> Device)"}),
    ],
)
def test_nothing_is_told_that_explains_less_than_half(own, changed):
    copies = pd.DataFrame([OTHER, (2, *OTHER[1:]), (1, *own[1:])], columns=COPIES).assign(rate_gbps=1.0)
    assert other_copies(SimpleNamespace(worth_pct=1.0, rows=lambda: [row_of(**changed)]), Rows(frame=copies)) == []
