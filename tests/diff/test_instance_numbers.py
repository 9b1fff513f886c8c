"""Names of ranges and modules are joined whatever the number of their instance."""

import pandas as pd
import pytest

from traceanalyzer.diff import joins
from traceanalyzer.diff.captures import Capture
from traceanalyzer.diff.instance_numbers import plain
from traceanalyzer.diff.scales import STEP


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("blocks.9", "blocks.*"), ("model.blocks.11.mlp", "model.blocks.*.mlp"), ("ProfilerStep#2", "ProfilerStep#*"),
        ("FSDP::pre_forward (blocks.3)", "FSDP::pre_forward (blocks.*)"), ("step_12", "step_*"), ("layer 3", "layer *"),
        ("Optimizer.step#AdamW.step", "Optimizer.step#AdamW.step"), ("conv2d", "conv2d"), ("gemm_128x64", "gemm_128x64"),
        ("forward", "forward"),
    ],
)  # fmt: skip
def test_names_without_instance_numbers(name, expected):
    assert plain(name) == expected


def modules(*paths):
    frame = pd.DataFrame({"rank": 0, "path": paths, "autograd": "forward", "calls": 2, "gpu_total_ns": 100})
    return Capture("run", "traces", {"modules": frame}, (1,), is_exact=True)


def test_moved_instances_are_one_row():
    (table,) = joins.tables(modules("blocks.0", "blocks.1"), modules("blocks.1", "blocks.2"), STEP)
    (row,) = table.frame.to_dict("records")
    assert (row["path"], row["status"], row["base_calls"], row["other_calls"]) == ("blocks.*", "SAME", 4, 4)
