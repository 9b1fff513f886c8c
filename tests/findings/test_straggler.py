"""Stragglers: who, by what, what to do, and nobody on healthy jobs."""

import gzip
import json
import tempfile
from pathlib import Path

import pytest

import traceanalyzer as ta
from tests.asked import ASKED
from tests.simulator import kineto, scoreboard
from tests.simulator import workloads as usual
from tests.simulator.capture import Capture, capture
from tests.simulator.cases import EVERY_CASE
from tests.simulator.engine import run
from tests.simulator.faults import Fault
from traceanalyzer.analyses import run as analysed
from traceanalyzer.findings import find

MS = 1_000_000


def with_clocks(folder, slow_mhz):
    """Adds counters as Cuspy writes them (`test_copies_and_clocks_of_cuspy`); rank 2's clock falls."""
    for path in sorted(folder.iterdir()):
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        content = json.loads(text)
        events = content["traceEvents"]
        ends = [float(one["ts"]) for one in events if one.get("cat") == "kernel"]
        is_slow = content["distributedInfo"]["rank"] == 2
        for place in range(9):
            mhz = slow_mhz if is_slow and place else 1980
            events.append({"ph": "C", "cat": "gpu_environment", "name": "SM clock", "pid": 0, "tid": 0,
                           "ts": min(ends) + place * (max(ends) - min(ends)) / 9, "args": {"sm_clock_mhz": mhz}})  # fmt: skip
        made = json.dumps(content).encode()
        path.write_bytes(gzip.compress(made) if path.suffix == ".gz" else made)


def stragglers(*faults, ranks=4, steps=5, slow_mhz=None, **options):
    """Findings about stragglers in a data-parallel job, those that save something."""
    job = usual.ddp(ranks=ranks, steps=steps, faults=faults, **options)
    with tempfile.TemporaryDirectory() as folder:
        kineto.write(capture(run(job), Capture()), Path(folder))
        if slow_mhz is not None:
            with_clocks(Path(folder), slow_mhz)
        results = analysed(ta.load(folder).ranks, ASKED)
    return [item for item in find(results) if item.kind == "straggler" and not item.is_nothing]


@pytest.mark.parametrize(
    ("fault", "cause", "headline", "why", "fix"),
    [
        (
            Fault("throttle", 0, (2,), None, 1.5),
            "compute",
            "Straggler: rank 2 runs the same kernels 1.50× slower than its peers.",
            "The same kernels take 1.50× as long (7.35 ms, its peers: 4.90 ms); 3 ranks wait 1.83 ms/step in all-reduce.",
            "The work is the same: check clocks, power and temperature (nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE).",
        ),
        (
            Fault("compute", 4 * MS, (1,)),
            "compute",
            "Straggler: rank 1 computes 1.82× as long as its peers.",
            "Compute kernels (8.90 ms, its peers: 4.90 ms), mostly aten::mm of [8192, 8192] × [8192, 8192], 4 calls per step that its peers do not make; 3 ranks wait 2.94 ms/step in all-reduce.",
            "Remove the extra aten::mm calls of rank 1, or give the ranks equal work.",
        ),
        (
            Fault("gc", 5 * MS, (1,)),
            "host",
            "Straggler: rank 1 needs its CPU 5.00 ms/step longer than its peers.",
            "A step's CPU work takes 5.48 ms (its peers: at most 480 µs), mostly gc.collect; 3 ranks wait 3.97 ms/step in all-reduce.",
            "gc.disable() after warm-up, and gc.collect() in the same step on all ranks.",
        ),
        (
            Fault("data", 6 * MS, (3,)),
            "data",
            "Straggler: rank 3 loads data 5.99 ms/step longer than its peers.",
            "Waiting for data (6.02 ms, its peers: 20.0 µs), mostly enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__; 3 ranks wait 4.94 ms/step in all-reduce.",
            "On rank 3: more num_workers and prefetch_factor, persistent_workers=True; look for slow storage.",
        ),
        (
            Fault("copy", 5 * MS, (1,)),
            "copies",
            "Straggler: rank 1 copies 5.00 ms/step longer than its peers.",
            "Exposed copies (5.05 ms, its peers: 50.1 µs), mostly copy HtoD (pinned → device); 3 ranks wait 3.94 ms/step in all-reduce.",
            "Run the copies of rank 1 on a stream of their own, or move less.",
        ),
    ],
    ids=["slower GPU", "more work", "garbage", "loader", "copies"],
)
def test_what_a_straggler_does_is_told_with_its_fix(fault, cause, headline, why, fix):
    (found,) = stragglers(fault)
    assert (found.ranks, found.cause, found.steps) == (fault.ranks, cause, None)
    assert (found.headline, found.why, found.fix) == (headline, why, fix)


def test_a_slower_gpu_has_its_clock_as_the_reason():
    (found,) = stragglers(Fault("throttle", 0, (2,), None, 1.5), slow_mhz=1305)
    assert "SM clock 1,980 → 1,305 MHz, others 1,980 MHz; 3 ranks wait" in found.why
    (found,) = stragglers(Fault("throttle", 0, (2,), None, 1.5), slow_mhz=1965)
    assert "SM clock" not in found.why


def test_stragglers_that_hide_each_other_are_one_finding():
    (found,) = stragglers(Fault("compute", 4 * MS, (1,)), Fault("data", 5 * MS, (2,)))
    assert (found.ranks, found.cause) == ((1, 2), "data and compute")
    assert found.headline == "Stragglers: ranks 1 and 2 hide each other (data and compute)."
    assert {rank for change in found.changes for rank in change.ranks} == {1, 2}


def test_a_pause_in_some_steps_is_of_these_steps():
    (found,) = stragglers(Fault("gc", 8 * MS, (1,), (2, 4)), steps=8)
    assert (found.ranks, found.steps) == ((1,), (2, 4))


def test_nobody_is_a_straggler_where_nothing_is_wrong():
    assert stragglers() == []


def test_more_calls_of_an_operator_are_the_reason_of_more_work():
    (found, *_) = find(analysed(ta.load(Path(__file__).parents[1] / "captures" / "ddp_straggler").ranks, ASKED))
    assert "40 calls per step that rank 0 does not make;" in found.why
    assert found.fix == "Remove the extra aten::mm calls of rank 1, or give the ranks equal work."


def test_calls_are_those_of_the_steps_in_which_it_is_a_straggler():
    (case,) = (one for one in EVERY_CASE if one.name == "rank 0 evaluates before a barrier")
    found = next(item for item in scoreboard.report_of(case).findings if item.kind == "straggler")
    assert found.why.startswith("In steps 1 and 3 compute kernels")
    assert "10 calls per step that its peers do not make;" in found.why
