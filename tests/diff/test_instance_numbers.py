"""Names of ranges and modules are joined whatever the number of their instance."""

import pandas as pd
import pytest

from traceanalyzer.diff import joins
from traceanalyzer.diff.captures import STEP, Capture
from traceanalyzer.diff.joins import plain


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("blocks.9", "blocks.*"), ("model.blocks.11.mlp", "model.blocks.*.mlp"), ("ProfilerStep#2", "ProfilerStep#*"),
        ("FSDP::pre_forward (blocks.3)", "FSDP::pre_forward (blocks.*)"), ("step_12", "step_*"), ("layer 3", "layer *"),
        ("Optimizer.step#AdamW.step", "Optimizer.step#AdamW.step"), ("conv2d", "conv2d"), ("gemm_128x64", "gemm_128x64"),
        ("forward", "forward"), ("Linear_11", "Linear_*"), ("FSDP::all_gather (5)", "FSDP::all_gather (*)"),
        ("FSDPSequential_0/FSDPBlock_5/Linear_11", "Sequential_*/Block_*/Linear_*"),
        ("DistributedDataParallel_0/Sequential_0", "Sequential_*"), ("DistributedDataParallel_0", "DistributedDataParallel_*"),
        ("forward/DistributedDataParallel.forward/block_3", "forward/block_*"),
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


def test_renamed_blocks_are_one_row_with_the_reason():
    base = modules(
        "Model_0", "Model_0/layers.0", "Model_0/layers.0/Linear_0", "Model_0/layers.0/Linear_1", "Model_0/Norm_0"
    )
    other = modules(
        "Model_0", "Model_0/blocks.0", "Model_0/blocks.0/Linear_0", "Model_0/blocks.0/Linear_1", "Model_0/Norm_0"
    )
    (table,) = joins.tables(base, other, STEP)
    rows = table.frame.set_index("path")
    assert rows["status"].to_dict() == {
        "Model_*": "SAME", "Model_*/Norm_*": "SAME", "Model_*/layers.*": "CHANGED", "Model_*/layers.*/Linear_*": "CHANGED",
    }  # fmt: skip
    assert rows.loc["Model_*/layers.*", "moved"] == "renamed: layers.* → blocks.*"


def test_what_may_be_either_of_two_is_not_renamed():
    base, other = modules("Model_0/attn", "Model_0/mlp"), modules("Model_0/first", "Model_0/second")
    (table,) = joins.tables(base, other, STEP)
    assert sorted(table.frame["status"]) == ["NEW", "NEW", "REMOVED", "REMOVED"]
