import pytest

from tests.samples import sample
from traceanalyzer.diff.tree_diff import tree_diff
from traceanalyzer.errors import InputError, UsageError


def test_a_step_and_itself_part_nowhere():
    assert tree_diff(sample("simple_ddp")[0], sample("simple_ddp")[0]).empty


def test_where_gradients_are_reduced_is_where_the_trees_part():
    table = tree_diff(sample("simple_ddp")[0], sample("pytorch_ddp")[0])
    top = {(row["path"], row["base"], row["other"]): row for row in table.to_dict("records")}
    bucketed = top[
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
        "",
        "torch::distributed::reducer::mul_out, c10d::allreduce_",
    ]
    assert bucketed["places"] == 8  # 8 buckets
    blocking = next(row for key, row in top.items() if key[1].startswith("c10d::allreduce_ ×37"))
    assert (blocking["path"], blocking["other"], blocking["other_gpu_ns"]) == ("", "", 0)
    back = tree_diff(sample("pytorch_ddp")[0], sample("simple_ddp")[0])
    assert back["change_gpu_ns"].sum() == -table["change_gpu_ns"].sum()


def test_what_cannot_be_looked_at_is_said():
    with pytest.raises(InputError, match="no operators"):
        tree_diff(sample("pytorch_ddp_nsys")[0], sample("pytorch_ddp")[0])
    with pytest.raises(UsageError, match="no step 99"):
        tree_diff(sample("pytorch_ddp")[0], sample("pytorch_ddp")[0], (99, None))
