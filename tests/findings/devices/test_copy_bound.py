"""A rank that does nothing but copy is bound by its copies, and the link's limit is named."""

import pytest
from traceanalyzer.findings.devices import copies

import traceanalyzer as ta
from tests.builders import rank_trace
from tests.findings.needed import needed_by
from tests.samples import SAMPLES
from traceanalyzer.analyses import run

MS = 1_000_000


def found(traces):
    return copies.copy_bound(**run(traces, needed_by(copies.copy_bound)))


def test_a_broadcast_by_two_uploads_fills_the_link():
    (one,) = found(ta.load(SAMPLES / "streams" / "broadcast1.json.gz").ranks)
    title = one.title.replace("\u202f", " ")
    assert title.startswith(
        "Both ranks are bound by copies: for 100 % of the time nothing else runs; most of it host to device"
    )
    assert (
        "from pinned memory, 268 MB in the capture at 55.4 GB/s of the 63 GB/s that its link carries that way." in title
    )
    assert one.recommendation.startswith("Move fewer bytes over the link, which is full ")
    # The program computes nothing: nothing could hide the copies.
    assert title.endswith("Nothing computes there that could hide them: what they can gain cannot be told.")
    assert one.gain_ns is None
    assert "computed" not in one.recommendation


@pytest.mark.parametrize(
    ("copy_ns", "said"),
    [
        (60, "Rank 0 is bound by copies: for 60 % of the time nothing else runs"),
        (40, "On rank 0 for 40 % of the time nothing but copies runs"),
        (9, None),
    ],
)
def test_half_of_the_window_binds_and_a_tenth_is_worth_hiding(copy_ns, said):
    findings = found([rank_trace([("compute", 0, 100 - copy_ns), ("copy", 100 - copy_ns, 100)])])
    assert [one.title.startswith(said) for one in findings] == ([True] if said else [])
    assert all(one.gain_ns == copy_ns and one.is_of_ideal == (copy_ns < 50) for one in findings)
