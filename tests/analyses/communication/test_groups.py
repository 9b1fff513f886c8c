"""What process groups are called: by description, by what runs in them, by their ranks."""

import pandas as pd
import pytest

from tests import once
from tests.simulator import scenarios
from tests.simulator.analysed import analysed
from traceanalyzer.analyses.communication.groups import across, role_of_description
from traceanalyzer.analyses.trace import Ranks


@pytest.mark.parametrize(
    ("description", "role"),
    [
        ("mesh_dp", "data parallel"), ("mesh_dp_replicate", "HSDP replicate"), ("mesh_dp_shard", "HSDP shard"),
        ("mesh_dp_shard_cp", "HSDP shard"), ("mesh_tp", "tensor parallel"), ("mesh_pp", "pipeline"),
        ("mesh_cp", "context parallel"), ("mesh_ep", "expert parallel"), ("mesh_dim_0", None), ("mesh_foo", None),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tensor parallel"), ("DATA_PARALLEL_GROUP_WITH_CP", "data parallel"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"), ("CONTEXT_PARALLEL_GROUP", "context parallel"),
        ("MODEL_PARALLEL_GROUP", "tensor and pipeline parallel"), ("EMBEDDING_GROUP", "tied embeddings"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "expert parallel"), ("EXPERT_DATA_PARALLEL_GROUP", "expert data parallel"),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "expert tensor parallel"),
        ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", "expert parallel and tensor parallel"),
        ("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", "expert, tensor and pipeline parallel"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", "tensor parallel and data parallel"),
        ("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", "HSDP shard"),
        ("default_pg", None), ("undefined", None), ("", None), (None, None), (float("nan"), None), ("adapter", None),
    ],
)  # fmt: skip
def test_descriptions(description, role):
    assert role_of_description(description) == role


HASH = "3f786850e387550fdab836ed7e6dc881de23001b"

USE = {"group": HASH, "group_ranks": "0,1,2,3", "collective": "all_reduce", "phase": "forward", "group_description": None,
       "group_size": 4, "world_size": 8, "calls": 40, "size_bytes": 40 << 20, "unknown_sizes": 0, "steps": 2, "step_calls": 40,
       "uneven_calls": 0, "by_attention": 0, "both_ways": 0, "peers": 2, "in_fsdp": 0, "in_experts": 0,
       "of_tables": 0}  # fmt: skip


def of(*rows, ranks=(0,)):
    table = pd.DataFrame([USE | row for row in rows])
    integers = ("group_size", "world_size", "size_bytes")
    return across(
        {rank: table.astype(dict.fromkeys(integers, "Int64")) for rank in ranks}, Ranks.without_rows()
    ).to_frame()


GATHER, SCATTER = {"collective": "all_gather"}, {"collective": "reduce_scatter"}
SMALL = {"size_bytes": 400}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("ddp", "data parallel (ranks 0, 1)"), ("fsdp_full", "sharded data parallel (ranks 0, 1)"),
        ("pp", "pipeline (ranks 0, 1)"), ("moe", "expert parallel (ranks 0, 1)"),
    ],
)  # fmt: skip
def test_real_captures(name, label):
    results = once.results(name, ["groups", "nccl", "collectives", "comm_phases"])
    assert [set(result.to_frame()["group_label"]) for result in results.values()] == [{label}] * 4


def test_a_simulated_mesh():
    _, results = analysed(scenarios.hsdp(), "groups")
    assert set(results["groups"].to_frame()["group_label"].str.replace(r" \(.*", "", regex=True)) == {
        "HSDP shard", "HSDP replicate",
    }  # fmt: skip
