"""What a process group is for, as the framework that made it says in its description."""

import re

WORLD = "default_pg"
"""PyTorch's description of the group of all ranks: it says nothing of what the group is for."""

DATA, SHARD, REPLICATE = "data parallel", "HSDP shard", "HSDP replicate"
SHARDED = "sharded data parallel"
TENSOR, PIPELINE, CONTEXT, EXPERT = "tensor parallel", "pipeline", "context parallel", "expert parallel"
EXPERT_DATA, EXPERT_TENSOR = "expert data parallel", "expert tensor parallel"
EXPERT_MODEL = "expert, tensor and pipeline parallel"
EMBEDDING = "tied embeddings"
NEIGHBOURS = "exchange between neighbours"
"""Every call sends as often as it receives: edges of a domain that is split over ranks, or parts that go round."""

TABLES = "embedding tables"
"""Of a recommender: each rank holds some, and the ranks exchange what was looked up."""
MODEL = "tensor and pipeline parallel"

_NOTHING_SAID = frozenset({"", WORLD, "undefined", "default", "none", "pg", "world"})

# Device meshes call a group "mesh_<axis>" (PyTorch), Megatron "<WHAT>_GROUP[_WITH_CP]"; the first rule that fits.
_RULES = (
    (EXPERT_DATA, re.compile(r"expert_data|^edp|^efsdp|^ep_?dp|^expt_dp")),
    (EXPERT_MODEL, re.compile(r"^expert_tensor_model_pipeline_parallel")),
    (f"{EXPERT} and {TENSOR}", re.compile(r"^expert_tensor_and_model_parallel|^tensor_and_expert")),
    (EXPERT_TENSOR, re.compile(r"^expert_tensor(_model)?_parallel|^etp|^expt_tp")),
    (EXPERT, re.compile(r"expert|^ep(_|$)|^moe")),
    (EMBEDDING, re.compile(r"embedding")),
    (f"{TENSOR} and {DATA}", re.compile(r"tensor_and_data|^(tp_dp|dp_tp)(_|$)")),
    (f"{TENSOR} and {CONTEXT}", re.compile(r"tensor_and_context|^(tp_cp|cp_tp)(_|$)")),
    (REPLICATE, re.compile(r"replicate|inter_partial_data|^ddp_?inter")),
    (SHARD, re.compile(r"shard(?!_?map)|intra_partial_data|^fsdp|^zero")),
    (MODEL, re.compile(r"^model_parallel|^mp(_|$)")),
    (
        CONTEXT,
        re.compile(
            r"^(hierarchical_)?context|^cp(_|$)|sequence_parallel|^sp(_|$)|ulysses|ring_attn|^ring(_|$)|^sequence$"
        ),
    ),
    (TENSOR, re.compile(r"tensor|^tp(_|$)|^model$")),
    (PIPELINE, re.compile(r"pipeline|^pp(_|$)|^stage$")),
    (DATA, re.compile(r"data_parallel|^dp(_|$)|^data$|^ddp|^batch$|^loss$")),
)

_AXIS = re.compile(r"^mesh_|_group(?:_gloo)?(?:_with_cp)?$|_with_cp_group$")


def role_of_description(description: object) -> str | None:
    """Role of a group that is called `mesh_dp_shard`, `TENSOR_MODEL_PARALLEL_GROUP`, `EP`; `None` where it has none.

    Names of PyTorch's device meshes (`mesh_<axis>`, flattened ones `mesh_dp_cp`), of Megatron's `parallel_state`, and
    the usual short forms (dp, tp, pp, cp, ep).
    """
    if not is_telling(description):
        return None
    plain = _AXIS.sub("", str(description).strip().lower())
    return next((role for role, pattern in _RULES if pattern.search(plain)), None)


def is_telling(description: object) -> bool:
    """Whether a description says more than that there is a group."""
    return isinstance(description, str) and description.strip().lower() not in _NOTHING_SAID
