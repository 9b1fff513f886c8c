"""What a host launches most is said where it is in nothing in particular."""

import pandas as pd
import pytest

from traceanalyzer.analyses.operators.operator_launches import OperatorLaunches
from traceanalyzer.findings.hosts.host_words import most_launched

LAUNCHES = {"aten::copy_": 400, "aten::mm": 90, "aten::add": 200, "record_param_comms": 900, "aten::mul": 20,
            "c10d::allreduce_": 500, "(outside any operator)": 700}  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (
            2,
            " Rank 3's operators launch 355 times a step, most by aten::copy_ (200), aten::add (100) and aten::mm (45).",
        ),
        (4, ""),
    ],
    ids=["many", "few"],
)
def test_what_launches_most(steps, said):
    rows = [(rank, name, count) for rank in (2, 3) for name, count in LAUNCHES.items()]
    table = OperatorLaunches(pd.DataFrame(rows, columns=["rank", "operator", "launches"]))
    assert most_launched(table, 3, steps, "a step") == said
