"""Ranks that give one step another number are told, and their single steps are not held against each other."""

import gzip
import json
from functools import cache

import pytest

import traceanalyzer as ta
from tests.asked import ASKED
from tests.simulator import capture, kineto, run, workloads
from tests.simulator.faults import Fault
from traceanalyzer import findings

MS = 1_000_000


@cache
def told(folder, by):
    """The checks and rules that find something where rank 1 is late in one step, and numbers its steps otherwise."""
    job = workloads.ddp(2, 8, (Fault("compute", 6 * MS, (1,), steps=(3,)),))
    _, renamed = kineto.write(capture(run(job)), folder)
    content = json.loads(gzip.decompress(renamed.read_bytes()))
    for event in content["traceEvents"]:
        if event["name"].startswith("ProfilerStep#"):
            event["name"] = f"ProfilerStep#{int(event['name'][13:]) + by}"
    renamed.write_bytes(gzip.compress(json.dumps(content).encode()))
    results = ta.analyse(ta.load(folder), *ASKED)
    checks = {row["check"]: row["sentence"] for row in results["integrity"].rows()}
    return checks, findings.find(results)


@pytest.mark.parametrize(
    ("by", "said"),
    [(1, "1 higher than rank 0's"), pytest.param(2, "2 higher than rank 0's", marks=pytest.mark.thorough)],
)
def test_numbers_that_differ_are_told_and_no_single_step_is(tmp_path, by, said):
    checks, found = told(tmp_path, by)
    assert said in checks["shifted_steps"]
    assert not [item for item in found if item.steps and item.ranks]


@pytest.mark.thorough
def test_where_they_agree_the_late_step_is_named(tmp_path):
    checks, found = told(tmp_path, 0)
    assert "shifted_steps" not in checks
    assert (found[0].kind, found[0].ranks, found[0].steps) == ("straggler", (1,), (3,))
