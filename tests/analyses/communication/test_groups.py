"""What process groups are called: by description, by what runs in them, by their ranks."""

import pandas as pd
import pytest

from tests import once
from tests.simulator import scenarios
from tests.simulator.analysed import analysed
from tests.simulator.jobs import meshes
from traceanalyzer.analyses.communication.groups import Groups, across, labels, mesh, role_of_description
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
       "step_bytes": 40 << 20, "uneven_calls": 0, "by_attention": 0, "both_ways": 0, "peers": 2, "in_fsdp": 0, "in_experts": 0,
       "of_tables": 0}  # fmt: skip


def of(*rows, ranks=(0,)):
    table = pd.DataFrame([USE | row for row in rows])
    integers = ("group_size", "world_size", "size_bytes", "step_bytes")
    return across(
        {rank: table.astype(dict.fromkeys(integers, "Int64")) for rank in ranks}, Ranks.without_rows()
    ).to_frame()


LATER = {"phase": "backward"}
MESSAGES = {"collective": "send_recv"}
GATHER, SCATTER = {"collective": "all_gather"}, {"collective": "reduce_scatter"}
SMALL = {"size_bytes": 400, "step_bytes": 400}


@pytest.mark.parametrize(
    ("rows", "label"),
    [
        ([{}, LATER], "tensor parallel (ranks 0–3)"),
        ([LATER], "data parallel (ranks 0–3)"),
        ([{"phase": "communication"}], "data parallel (ranks 0–3)"),
        ([{"phase": "unattributed"}], "group of 4 ranks (0–3)"),
        ([SMALL, LATER], "data parallel (ranks 0–3)"),
        ([SMALL], "group of 4 ranks (0–3)"),
        ([{"calls": 2, "step_calls": 2}], "group of 4 ranks (0–3)"),
        ([LATER | {"size_bytes": pd.NA, "unknown_sizes": 40}], "group of 4 ranks (0–3)"),
        ([GATHER, SCATTER, GATHER | LATER, SCATTER | LATER], "tensor parallel (ranks 0–3)"),
        ([GATHER, GATHER | LATER, SCATTER | LATER], "sharded data parallel (ranks 0–3)"),
        ([GATHER | {"by_attention": 40}, SCATTER | LATER | {"by_attention": 40}], "context parallel (ranks 0–3)"),
        ([GATHER | {"phase": "unattributed", "in_fsdp": 40}], "sharded data parallel (ranks 0–3)"),
        ([GATHER], "group of 4 ranks (0–3)"),
        ([MESSAGES, MESSAGES | LATER], "pipeline (ranks 0–3)"),
        ([MESSAGES | {"by_attention": 30}], "context parallel (ranks 0–3)"),
        ([MESSAGES | {"both_ways": 40}], "exchange between neighbours (ranks 0–3)"),
        ([MESSAGES | {"both_ways": 39}], "pipeline (ranks 0–3)"),
        ([MESSAGES, MESSAGES | {"peers": 3}], "group of 4 ranks (0–3)"),
        ([{"collective": "all_to_all", "uneven_calls": 3}], "expert parallel (ranks 0–3)"),
        ([{"collective": "all_to_all", "uneven_calls": 3, "of_tables": 40}], "embedding tables (ranks 0–3)"),
        ([{"group_description": "mesh_dp_shard"}], "sharded data parallel (ranks 0–3)"),
        ([{"collective": "all_to_all"}], "group of 4 ranks (0–3)"),
        ([{"collective": "all_to_all", "by_attention": 30}], "context parallel (ranks 0–3)"),
        ([{"collective": "all_to_all", "in_experts": 40}], "expert parallel (ranks 0–3)"),
        ([{"collective": "all_to_all", "uneven_calls": 3}, LATER], "expert parallel and data parallel (ranks 0–3)"),
        ([{"group_description": "mesh_tp"} | LATER], "tensor parallel (ranks 0–3)"),
        ([{"group_description": "adapters", "phase": "unattributed"}], "adapters (ranks 0–3)"),
        ([{"group_ranks": "0,1,2,3,4,5,6,7", "group_size": 8, **SMALL}], "all 8 ranks"),
        ([{"group_ranks": None, **SMALL}], "group of 4 ranks"),
        ([{"group_ranks": None, "group_size": pd.NA, **SMALL}], "group of unknown ranks"),
    ],
)
def test_what_runs_in_a_group_names_it(rows, label):
    assert of(*rows)["group_label"].tolist() == [label]


def test_ranks_that_use_a_communicator_are_its_members_when_all_are_there():
    assert of({"group_ranks": None} | SMALL, ranks=range(4))["group_label"].tolist() == ["group of 4 ranks (0–3)"]


def test_hybrid_sharding_is_two_axes_of_one_mesh():
    shards = [{**GATHER, "group": "s"}, {**SCATTER, **LATER, "group": "s"}]
    replica = {**LATER, "group": "r", "group_ranks": "0,4", "group_size": 2}
    assert of(*shards, replica)["group_label"].tolist() == ["HSDP replicate (ranks 0, 4)", "HSDP shard (ranks 0–3)"]


def test_groups_of_one_make_are_named_together():
    # The loss is reduced in one of them only; its make is told by the others.
    rows = [{}, SMALL | {"group": "b", "group_ranks": "4,5,6,7"}]
    assert of(*rows)["group_label"].tolist() == ["tensor parallel (ranks 0–3)", "tensor parallel (ranks 4–7)"]


def test_a_group_without_role_beside_one_that_has_it():
    rows = [LATER, SMALL | {"group": "b", "group_size": 2, "group_ranks": None}]
    assert sorted(of(*rows)["group_label"]) == ["data parallel (ranks 0–3)", "group of 2 ranks"]


def test_two_groups_of_the_same_ranks_say_their_own_names():
    rows = [LATER, LATER | {"group": "7"}]
    assert of(*rows)["group_label"].tolist() == [
        "data parallel (ranks 0–3), group 3f786850…",
        "data parallel (ranks 0–3), group 7",
    ]


def test_a_rows_label_is_that_of_its_own_ranks_group():
    # A name that every rank gives its own group.
    groups = across({rank: pd.DataFrame([USE | SMALL | {"group": "1", "group_ranks": ranks, "group_size": 2}])
                     for rank, ranks in ((0, "0,1"), (2, "2,3"))}, Ranks.without_rows())  # fmt: skip
    rows = pd.DataFrame({"rank": [0, 2, 2, 5], "group": ["1", "1", None, "1"]})
    named = ["group of 2 ranks (0, 1)", "group of 2 ranks (2, 3)", None, None]
    assert [None if pd.isna(label) else label for label in labels(groups, rows)] == named


def test_bytes_a_step_are_of_a_rank():
    assert of({}, LATER)["step_bytes"].tolist() == [40 << 20]
    assert of({"unknown_sizes": 1})["step_bytes"].isna().all()


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


@pytest.mark.parametrize("describes", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_mesh_of_tensor_and_data_parallelism(describes):
    _, results = analysed(meshes.tensor_by_data(4, 2, describes=describes), "groups", "pipelines")
    frame = results["groups"].to_frame()
    assert frame["group_label"].tolist() == [
        *(f"data parallel (ranks {rank}, {rank + 4})" for rank in range(4)),
        "tensor parallel (ranks 0–3)",
        "tensor parallel (ranks 4–7)",
    ]
    assert frame["stride"].tolist() == [4, 4, 4, 4, 1, 1]
    # A layer's 2 MB, forward and backward; a layer's 8 MB of gradients.
    assert frame["step_bytes"].tolist() == [4 * 8_000_000] * 4 + [2 * 4 * 2_000_000] * 2


@pytest.mark.parametrize("is_ring", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_context_parallelism_is_no_pipeline(is_ring):
    _, results = analysed(meshes.context_parallel(4, is_ring=is_ring), "groups", "pipelines", "pipeline_schedule")
    assert results["groups"].to_frame()["group_label"].tolist() == ["context parallel (all 4 ranks)"]
    assert (len(results["pipelines"]), len(results["pipeline_schedule"])) == (0, 0)


AXES = {
    "one group of all": ([("data parallel", 1, 8)], 8, "data parallel 8"),
    "two axes, and the group of all": (
        [("tensor parallel", 1, 4), ("data parallel", 4, 2), (None, 1, 8)], 8, "data parallel 2 × tensor parallel 4"),
    "three": (
        [("tensor parallel", 1, 2), ("HSDP shard", 2, 4), ("HSDP replicate", 8, 2)], 16,
        "HSDP replicate 2 × HSDP shard 4 × tensor parallel 2"),
    "an axis that is not known": ([("tensor parallel", 1, 4), (None, 4, 2)], 8, "axis 2 × tensor parallel 4"),
    "two uses of one axis": (
        [("data parallel", 1, 2), ("expert parallel", 1, 2)], 2, "data parallel and expert parallel 2"),
    "a hole": ([("tensor parallel", 1, 2), ("data parallel", 4, 2)], 8, None),
    "not all ranks": ([("tensor parallel", 1, 4)], 8, None),
    "nothing known": ([(None, 1, 8)], 8, None),
    "world unknown": ([("data parallel", 1, 8)], None, None),
}  # fmt: skip


@pytest.mark.parametrize(("axes", "world_size", "text"), AXES.values(), ids=AXES)
def test_the_mesh_that_groups_span(axes, world_size, text):
    table = pd.DataFrame(axes, columns=["role", "stride", "group_size"])
    assert mesh(Groups(table), world_size) == text
