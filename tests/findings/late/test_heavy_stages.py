"""Late hosts of pipeline stages that have more to do than the others."""

from types import SimpleNamespace

import pandas as pd
import pytest

from traceanalyzer.findings.stragglers import wording

LATE = {"ranks": "0", "cause": "host", "own_host_ns": 200, "peers_host_ns": 100}


def gain(row, calls=(200, 100, 100), compute_ns=(30, 10, 10)):
    """Of three stages of a pipeline: operator calls of each host, and what each computes."""
    stages = pd.DataFrame({"rank": range(3), "pipeline": 0, "stage": range(3), "compute_ns": compute_ns})
    table = pd.DataFrame({"rank": range(3), "operator": "aten::mm", "calls": calls, "host_self_ns": 100})
    operators = SimpleNamespace(to_frame=lambda: table)
    pipeline = SimpleNamespace(table=stages)
    return wording.even_gain(LATE | row, pipeline, operators, None, uneven_times=1.1, busy_times=1.15)


@pytest.mark.parametrize(
    ("row", "made", "is_of_stages"),
    [
        ({}, {}, True),
        ({"cause": "data"}, {}, False),
        ({"own_host_ns": None}, {}, False),
        ({"own_host_ns": 266}, {}, True),  # the more calls explain six tenths of it
        ({"own_host_ns": 268}, {}, False),
        ({}, {"calls": (110, 100, 100)}, False),
        ({}, {"compute_ns": (10, 10, 10)}, False),
        ({"ranks": "0,1"}, {}, False),  # of the other one not
        ({"ranks": "0,1"}, {"calls": (200, 200, 100)}, True),
    ],
)
def test_layers_are_why_a_host_launches_more(monkeypatch, row, made, is_of_stages):
    monkeypatch.setattr(wording, "gain_of", lambda _, *changes: [(change.ranks, change.to) for change in changes])
    found = gain(row, **made)
    assert (found is not None) == is_of_stages
    if is_of_stages:
        assert [round(factor, 2) for _, factor in found] == [0.56, 1.67, 1.67]
