"""The adapter that reads a published job's operations into the same graph."""

import sys
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "experiments"))
import straggler_analysis

STAGE_S = (0.010, 0.030)
"""What a pass takes on each stage, forward and backward alike."""

MESSAGE_S = 0.001


def operation(stage, kind, start_s, duration_s):
    return {"dp_rank": 0, "stage": stage, "rank": stage, "step": 3, "optype": kind, "start_ts": start_s,
            "duration": duration_s, "seq_id": 0, "mb_id": 0}  # fmt: skip


def one_microbatch():
    """Two stages, one after the other and back; receives are posted when their rank is free."""
    first, second = STAGE_S
    sent, came = first, first + MESSAGE_S
    turned = came + 2 * second
    back = turned + MESSAGE_S
    rows = [
        operation(0, "forward-compute", 0.0, first),
        operation(0, "forward-send", sent, MESSAGE_S),
        operation(0, "backward-recv", sent, back - sent),
        operation(0, "backward-compute", back, first),
        operation(1, "forward-recv", 0.0, came),
        operation(1, "forward-compute", came, second),
        operation(1, "backward-compute", came + second, second),
        operation(1, "backward-send", turned, MESSAGE_S),
    ]
    return pd.DataFrame(rows), back + first


def test_a_step_is_given_back_and_only_the_slower_stage_costs():
    table, length_s = one_microbatch()
    (step,) = straggler_analysis.measured(table).to_dict("records")
    assert step["step"] == 3
    assert step["recorded"] == pytest.approx(length_s)
    assert step["replayed"] == pytest.approx(length_s)
    # Of one microbatch the sum counts: even stages take as long, and only one as recorded is half the difference off.
    half_s = STAGE_S[1] - sum(STAGE_S) / 2
    assert step["ideal"] == pytest.approx(length_s)
    assert step["stage 1"] - step["ideal"] == pytest.approx(2 * half_s)
    assert step["ideal"] - step["stage 0"] == pytest.approx(2 * half_s)


def test_an_operation_that_begins_late_without_a_reason_is_replayed_at_once():
    """There are no hosts to launch it: what held it back is not in the job."""
    table, length_s = one_microbatch()
    last = (table["stage"] == 0) & (table["optype"] == "backward-compute")
    table.loc[last, "start_ts"] += 0.005
    (step,) = straggler_analysis.measured(table).to_dict("records")
    assert step["recorded"] == pytest.approx(length_s + 0.005)
    assert step["replayed"] == pytest.approx(length_s, abs=1e-5), "but for a turnaround between operations"
