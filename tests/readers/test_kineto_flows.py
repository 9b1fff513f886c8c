"""Without sequence numbers the profiler's arrows join forward and backward; without those nothing is guessed."""

import gzip
import json

import pytest

from tests.samples import RUNNERS
from traceanalyzer import load
from traceanalyzer.analyses import run

NUMBERS = ("Sequence number", "Fwd thread id")
(SAMPLE,) = (RUNNERS / "simple_ddp" / "rank_0").glob("*.json.gz")


def thinned(folder, *, has_numbers=False, has_arrows=True):
    """The sample without the ranges that name phases, and without what else is not wanted."""
    trace = json.loads(gzip.decompress(SAMPLE.read_bytes()))
    events = [event for event in trace["traceEvents"] if event.get("cat") != "user_annotation"]
    if not has_arrows:
        events = [event for event in events if event.get("cat") != "fwdbwd"]
    for event in events if not has_numbers else ():
        for name in NUMBERS:
            event.get("args", {}).pop(name, None)
    folder.mkdir()
    (folder / "rank0.json").write_text(json.dumps({**trace, "traceEvents": events}))
    return folder


@pytest.fixture(scope="module")
def compute_ns(tmp_path_factory):
    """For each way of thinning a capture its compute by phase."""
    folder = tmp_path_factory.mktemp("flows")
    ways = {
        "numbers": {"has_numbers": True, "has_arrows": False},
        "arrows": {},
        "neither": {"has_arrows": False},
    }
    made = {}
    for name, kept in ways.items():
        phases = run(load(thinned(folder / name, **kept)), ["phases"])["phases"].to_frame()
        whole = phases[phases["step"].isna()]
        made[name] = dict(zip(whole["phase"], whole["compute_ns"], strict=True))
    return made


def test_arrows_tell_what_the_numbers_tell(compute_ns):
    assert compute_ns["numbers"]["forward"] > 0
    assert compute_ns["arrows"] == compute_ns["numbers"]


def test_without_either_forward_is_told_unknown(compute_ns):
    assert "forward" not in compute_ns["neither"]
    assert compute_ns["neither"]["unattributed"] >= compute_ns["numbers"]["forward"]
