"""Process groups: their ranks, names, purposes, and the mesh they span."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, stack
from traceanalyzer.analyses.grouping import Groups as Rows
from traceanalyzer.analyses.grouping import by_category
from traceanalyzer.analyses.host.activity import names_around_launches, user_ranges
from traceanalyzer.analyses.host.host_names import PHASES, UNATTRIBUTED
from traceanalyzer.analyses.kernels import MATRIX_CATEGORIES
from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.job.run_info import Wiring
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.meaning.columns import Column, declared, numbers
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_of,
    is_name,
    plain_texts,
    rows_where,
    text_array,
    whole,
)


def stride(ranks: Sequence[int]) -> int | None:
    """Distance between a group's neighbouring ranks, in ascending order; `None` where it is not always the same."""
    steps = {after - before for before, after in pairwise(ranks)}
    return steps.pop() if len(steps) == 1 else None


def ranks_text(ranks: Sequence[int], world_size: int | None) -> str:
    """`all 8 ranks`, `ranks 0–3`, `ranks 0, 4, 8, 12`, `ranks 0, 8, … 120`; unlike distances are counted."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if is_whole_job(ranks, world_size):
        return f"all {world_size} ranks"
    step = stride(ranks)
    if step == 1 and len(ranks) > 2:
        return f"ranks {ranks[0]}–{ranks[-1]}"
    if len(ranks) <= 8:
        return f"ranks {', '.join(map(str, ranks))}"
    if step is not None:
        return f"ranks {ranks[0]}, {ranks[1]}, … {ranks[-1]}"
    return f"{len(ranks)} ranks, {ranks[0]} to {ranks[-1]}"


def is_whole_job(ranks: Sequence[int], world_size: int | None) -> bool:
    """Whether they are all ranks of a job of more than two: these are not listed."""
    return world_size is not None and len(ranks) == world_size > 2


DATA, SHARD, REPLICATE = "data parallel", "HSDP shard", "HSDP replicate"
SHARDED = "sharded data parallel"
TENSOR, PIPELINE, CONTEXT, EXPERT = "tensor parallel", "pipeline", "context parallel", "expert parallel"
EMBEDDING = "tied embeddings"
NEIGHBOURS = "exchange between neighbours"
"""Every call sends as often as it receives: edges of a domain that is split over ranks, or parts that go round."""

TABLES = "embedding tables"
"""Of a recommender: each rank holds some, and the ranks exchange what was looked up."""
MODEL = "tensor and pipeline parallel"

_UNINFORMATIVE = frozenset({"", "default_pg", "undefined", "default", "none", "pg", "world"})
"""Descriptions that say nothing of what a group is for, as PyTorch's of the group of all ranks."""

# Device meshes call a group "mesh_<axis>" (PyTorch), Megatron "<WHAT>_GROUP[_WITH_CP]"; the first rule that fits.
_ROLE_PATTERNS = {
    "expert data parallel": r"expert_data|^edp|^efsdp|^ep_?dp|^expt_dp",
    "expert, tensor and pipeline parallel": r"^expert_tensor_model_pipeline_parallel",
    f"{EXPERT} and {TENSOR}": r"^expert_tensor_and_model_parallel|^tensor_and_expert",
    "expert tensor parallel": r"^expert_tensor(_model)?_parallel|^etp|^expt_tp",
    EXPERT: r"expert|^ep(_|$)|^moe",
    EMBEDDING: r"embedding",
    f"{TENSOR} and {DATA}": r"tensor_and_data|^(tp_dp|dp_tp)(_|$)",
    f"{TENSOR} and {CONTEXT}": r"tensor_and_context|^(tp_cp|cp_tp)(_|$)",
    REPLICATE: r"replicate|inter_partial_data|^ddp_?inter",
    SHARD: r"shard(?!_?map)|intra_partial_data|^fsdp|^zero",
    MODEL: r"^model_parallel|^mp(_|$)",
    CONTEXT: r"^(hierarchical_)?context|^cp(_|$)|sequence_parallel|^sp(_|$)|ulysses|ring_attn|^ring(_|$)|^sequence$",
    TENSOR: r"tensor|^tp(_|$)|^model$",
    PIPELINE: r"pipeline|^pp(_|$)|^stage$",
    DATA: r"data_parallel|^dp(_|$)|^data$|^ddp|^batch$|^loss(_|$)",
}

_AXIS = re.compile(r"^mesh_|_group(?:_gloo)?(?:_with_cp)?$|_with_cp_group$")


def role_of_description(description: object) -> str | None:
    """Role of a group that is called `mesh_dp_shard`, `TENSOR_MODEL_PARALLEL_GROUP`, `EP`; `None` where it has none.

    Names of PyTorch's device meshes (`mesh_<axis>`, flattened ones `mesh_dp_cp`), of Megatron's `parallel_state`, and
    the usual short forms (dp, tp, pp, cp, ep).
    """
    if not is_informative(description):
        return None
    plain = _AXIS.sub("", str(description).strip().lower())
    return next((role for role, pattern in _ROLE_PATTERNS.items() if re.search(pattern, plain)), None)


def is_informative(description: object) -> bool:
    """Whether a description says more than that there is a group."""
    return isinstance(description, str) and description.strip().lower() not in _UNINFORMATIVE


LARGE_BYTES = 64 << 10
"""Collectives that are smaller on average, or after one backward pass together, are losses, norms and flags."""

_EXCHANGES = ("all_to_all", "ep_dispatch", "ep_combine")


def roles_of_uses(uses: pd.DataFrame) -> tuple[str, ...]:
    """Every role that the calls of some groups alike show; none where they show nothing, or it could be several.

    A group that carries several things (all ranks are often one group for everything) has several roles.
    """
    found = [rule(uses) for rule in (_exchanges, _shards, _messages, _reductions)]
    return tuple(role for role in found if role is not None)


def role_of_messages(uses: pd.DataFrame) -> str | None:
    """What a rank's group is for that sends and receives, by its description, else by what stands next to them."""
    described = [role_of_description(text) for text in uses["group_description"].dropna().unique()]
    found = _messages(uses)
    return next((role for role in described if role), found)


def _messages(uses: pd.DataFrame) -> str | None:
    own = uses[uses["collective"].isin(POINT_TO_POINT)]
    if own.empty:
        return None
    if _are_mostly(own, "by_attention"):
        return CONTEXT
    if own["both_ways"].sum() == own["calls"].sum():  # a pipeline begins with an activation one way
        return NEIGHBOURS
    # A stage has two neighbours; more are those of one rank: a server, a coordinator.
    return PIPELINE if own["peers"].max() <= 2 else None


def _exchanges(uses: pd.DataFrame) -> str | None:
    own = uses[uses["collective"].isin(_EXCHANGES)]
    is_of_experts = own["collective"].isin(_EXCHANGES[1:]).any() or _are_mostly(own, "in_experts")
    rules = (
        (is_of_experts, EXPERT),
        # Queries, keys and values go in, one result comes out: at least half of the calls are next to attention.
        (_are_mostly(own, "by_attention"), CONTEXT),
        (_are_mostly(own, "of_tables"), TABLES),
        (own["uneven_calls"].sum(), EXPERT),
    )
    return next((role for holds, role in rules if holds), None)


def _shards(uses: pd.DataFrame) -> str | None:
    own = uses[uses["collective"].isin(("all_gather", "reduce_scatter"))]
    scatters = own[own["collective"] == "reduce_scatter"]
    if len(scatters) == len(own):
        return None
    rules = (
        (_are_mostly(own, "in_fsdp"), SHARDED),
        (not _is_large(own), None),
        (_are_of_every_forward_pass(scatters), TENSOR),  # activations, not gradients
        (_are_mostly(own, "by_attention"), CONTEXT),
        (len(scatters) and scatters["phase"].isin(_AFTER_FORWARD).all(), SHARDED),
    )
    return next((role for holds, role in rules if holds), None)


def _reductions(uses: pd.DataFrame) -> str | None:
    own = uses[uses["collective"] == "all_reduce"]
    if _are_of_every_forward_pass(own):
        return TENSOR
    return DATA if _is_large(own[own["phase"].isin(_AFTER_FORWARD)]) else None


_AFTER_FORWARD = ("backward", "communication", "optimizer")


def _are_mostly(uses: pd.DataFrame, column: str) -> bool:
    """Whether most of the calls are counted in a column: in a ring of n ranks n − 1 of n are between attention."""
    return bool(uses[column].sum() > SHARE * uses["calls"].sum())


def _are_of_every_forward_pass(uses: pd.DataFrame) -> bool:
    """Whether large ones run more than once in a forward pass of the busiest rank; in the capture without steps."""
    own = uses[uses["phase"] == "forward"]
    rates = (own["step_calls"] / own["steps"]).where(own["steps"] > 0, own["calls"])
    return bool((rates.groupby(own["rank"]).sum() > 1).any()) and _is_large(own)


def _is_large(uses: pd.DataFrame) -> bool:
    known = uses[uses["unknown_sizes"] == 0]
    calls = int(known["calls"].sum())
    return bool(calls) and int(known["size_bytes"].sum()) >= LARGE_BYTES * calls


KEYS = ("group", "group_ranks", "collective", "phase")

_PHASES = np.array([*PHASES, UNATTRIBUTED], dtype=object)

_FSDP = re.compile(r"FSDP|FullyShardedDataParallel", re.IGNORECASE)
_EXPERTS = re.compile(r"moe|expert|router|dispatch|combine", re.IGNORECASE)
_TABLES = re.compile(r"all2all_data:kjt|alltoall_(?:fwd|bwd)_single|sparse_data_dist", re.IGNORECASE)
"""TorchRec's ranges around its all-to-alls."""

_LOOKUPS = re.compile(r"split_embedding\w*_codegen|EmbeddingBag_updateOutput|bounds_check_indices", re.IGNORECASE)
"""Kernels that look up several rows of a table and add them up, as recommenders do; language models look up one."""


def per_rank(
    trace: RankTrace, calls: pd.DataFrame, phase_of_op: np.ndarray, category_of_op: pd.Categorical
) -> pd.DataFrame:
    """One row for each group, collective and phase of the rank's calls whose group is known.

    `step_calls` are those of the whole steps, of which there are `steps`; `by_attention` counts calls
    launched next to an attention kernel: of the matrix products, convolutions and attention kernels launched before
    and after the call, the nearest one or the other is attention; `both_ways` those that
    send as often as they receive. `of_tables` counts those of a recommender's tables; `peers` are the
    ranks that messages go to or come from.
    """
    if not len(calls) or calls["group"].isna().all():
        return pd.DataFrame()
    held = columns_of(rows_where(calls, calls["group"].notna()))
    rows, sizes = held["gpu_op"], held["size_bytes"]
    steps = array_of(trace.steps, "step")[~array_of(trace.steps, "is_partial")]
    if trace.window.steps is not None:
        steps = steps[np.isin(steps, trace.window.steps)]
    messages = by_category(pd.Categorical(held["peers"]), re.compile(r"(send|recv) (\d+)").findall)
    ranges = pd.Categorical(names_around_launches(user_ranges(trace), trace, trace.launch[rows]))
    looks_up = any(_LOOKUPS.search(name) for name in trace.gpu_ops["name"].array.categories.tolist())
    counted = {
        "unknown_sizes": sizes.isna(),
        "step_calls": np.isin(whole(held["step"]), steps),
        "uneven_calls": held["is_uneven"].to_numpy(dtype=bool, na_value=False),
        "by_attention": _by_attention(trace, rows, category_of_op),
        "both_ways": np.array([bool(own) and 2 * sum(way == "send" for way, _ in own) == len(own) for own in messages]),
        "in_fsdp": by_category(ranges, _FSDP.search).astype(bool),
        "in_experts": by_category(ranges, _EXPERTS.search).astype(bool),
        "of_tables": by_category(ranges, _TABLES.search).astype(bool) | looks_up,
    }
    uses = Rows.of(
        {
            "group": text_array(plain_texts(held["group"])),
            "group_ranks": held["group_ranks"],
            "collective": text_array(held["collective"]),
            "phase": _PHASES[phase_of_op[rows]],
        },
        with_absent=True,
    )
    peers = {(use, peer) for use, own in zip(uses.of_row.tolist(), messages, strict=True) for _, peer in own or ()}
    return uses.table(
        **{name: uses.sums(mask) for name, mask in counted.items()},
        **{name: uses.first_known(held[name]) for name in ("group_description", "group_size")},
        world_size=pd.array([trace.meta.world_size] * len(uses), dtype="Int64"),
        calls=uses.counts(),
        size_bytes=uses.total(sizes),
        steps=np.full(len(uses), len(steps)),
        peers=np.bincount([use for use, _ in peers], minlength=len(uses)),
    )


def _by_attention(trace: RankTrace, rows: np.ndarray, category_of_op: pd.Categorical) -> np.ndarray:
    """Whether the nearest heavy kernel launched before, or after, each operation is attention."""
    launch = trace.launch
    heavy = np.flatnonzero(is_name(category_of_op, *MATRIX_CATEGORIES) & (launch != NONE))
    if not len(heavy):
        return np.zeros(len(rows), dtype=bool)
    heavy = heavy[np.argsort(launch[heavy], kind="stable")]
    is_attention = np.concatenate([[False], is_name(category_of_op[heavy], "attention"), [False]])
    place = np.searchsorted(launch[heavy], launch[rows])
    found: np.ndarray = (is_attention[place] | is_attention[place + 1]) & (launch[rows] != NONE)
    return found


class Groups(Result):
    """One row for each process group that communicates: widest strides last."""

    title = "Process groups"
    keys = ("group", "group_ranks")
    stored = ("users",)
    is_of_one_run = True
    columns = declared(
        group_label=Column.text(
            "What the group is for, as far as that is known, and its ranks: its name in every other table.",
            label="process group",
            is_aside_when_one=True,
        ),
        role=Column.text("What the group is for, alone; absent where that is not known.", is_secondary=True),
        group_size="Number of ranks.",
        stride=Column.number("Distance between neighbouring ranks; absent where it is not always the same."),
        collectives="What runs in it, most calls first: calls of all ranks that were captured.",
        calls="Their number.",
        path=(
            "The farthest path between two of its GPUs, by the run's topology (`NV18`: eighteen NVLinks; then PIX, "
            "PXB, PHB, NODE, SYS; `network` between machines); absent without one, or where a GPU is not known."
        ),
        transport="How NCCL joins its ranks, as its log says, most channels first; absent without one.",
        group=Column.text(
            "Its name in the trace: a number, a hash of its ranks, a communicator's address.", replaced_by="group_label"
        ),
        group_description="Its description in the trace.",
        group_ranks=Column.text("Global ranks, as the trace lists them.", is_secondary=True, replaced_by="group_label"),
    )


def across(parts: Mapping[int, pd.DataFrame], ranks: Ranks, wiring: Wiring | None = None) -> Groups:
    """Name the groups: by description, else by what runs in all groups of the same make, else by their ranks.

    `wiring` is what the run's topology and NCCL's log tell of its machine.
    """
    uses = stack(parts)
    if uses.empty:
        return Groups.without_rows()
    uses = uses.assign(code=uses.groupby(["group", "group_ranks"], dropna=False).ngroup())
    table = _facts(uses)
    # Groups of one description, size and stride are axes of one mesh; those of ranks that lie anyhow are not.
    keys = table[["group_description", "group_size", "stride"]].astype("object").fillna("")
    family = keys.assign(own=table.index.where(table["stride"].isna(), -1)).groupby([*keys, "own"]).ngroup()
    named = {number: _role(own) for number, own in uses.groupby(uses["code"].map(family))}
    named = _hybrid(named, table["members"].groupby(family).agg(list))
    known = wiring.placed(ranks.table) if wiring else None
    table = table.assign(
        role=[named[number] for number in family],
        path=[known.path(own) if own and known else None for own in table["members"]],
        transport=[known.transport(own) if own and known else None for own in table["members"]],
        first=[own[0] if own else -1 for own in table["members"]],
    )
    table = table.assign(group_label=_labels(table)).astype({"stride": "Int64"})
    table = table.sort_values(["group_size", "stride", "first", "group"], kind="stable")
    return Groups(table[[*Groups.columns, *Groups.stored]].reset_index(drop=True))


def labels(groups: Result, frame: pd.DataFrame) -> pd.Series:
    """The label of each row's process group, by its `rank` and `group`, or its `group_ranks` too.

    Absent where the group is not known.
    """
    known = groups.table
    if known.empty or frame.empty:
        return pd.Series(None, index=frame.index, dtype="object")
    keys = ["group", "group_ranks"]
    if "group_ranks" not in frame:
        keys, known = ["group", "rank"], known.explode("users").rename(columns={"users": "rank"})
        known = known.astype({"rank": "int64"})
    found = frame[keys].merge(known.drop_duplicates(keys)[[*keys, "group_label"]], "left", keys)["group_label"]
    return found.set_axis(frame.index).astype("object").where(frame["group"].notna(), None)


def _facts(uses: pd.DataFrame) -> pd.DataFrame:
    """What is true of each group, from all ranks' calls in it: a row for each `code`, in order."""
    by_code = uses.groupby("code")
    table = by_code[["group", "group_ranks", "group_description", "group_size"]].first()
    users = by_code["rank"].agg(lambda ranks: tuple(sorted({*ranks})))
    listed = [tuple(sorted(numbers(text))) for text in table["group_ranks"]]
    sizes = [len(own) if pd.isna(size) else size for own, size in zip(users, table["group_size"], strict=True)]
    members = [
        known or (own if len(own) == size and (len(own) > 1 or not pd.isna(recorded_size)) else None)
        for known, own, size, recorded_size in zip(listed, users, sizes, table["group_size"], strict=True)
    ]
    calls = uses.groupby(["code", "collective"])["calls"].sum().reset_index()
    calls = calls.sort_values(["calls", "collective"], ascending=[False, True])
    texts = calls["collective"].map(collective_words) + " " + calls["calls"].astype("str")
    return table.assign(
        members=pd.Series(members, table.index, dtype="object"),
        users=users,
        group_size=[len(own) if own else size for own, size in zip(members, table["group_size"], strict=True)],
        stride=[(stride(own) if own else None) or pd.NA for own in members],
        world_size=by_code["world_size"].max(),
        collectives=texts.groupby(calls["code"]).agg(", ".join).reindex(table.index, fill_value=""),
        calls=calls.groupby("code")["calls"].sum().reindex(table.index, fill_value=0),
    )


def _role(uses: pd.DataFrame) -> str | None:
    description = next(iter(uses["group_description"].dropna()), None)
    found = role_of_description(description) or " and ".join(dict.fromkeys(roles_of_uses(uses)))
    return found or (str(description) if is_informative(description) else None)


def _hybrid(roles: dict[int, str | None], members: pd.Series) -> dict[int, str | None]:
    """Groups that reduce what others have sharded are the replicas of hybrid sharding, the others its shards.

    Frameworks call the axis of shards alike with and without replicas: without, it is plain sharding.

    Args:
        roles: of each family of groups.
        members: for each family the ranks of each of its groups.
    """
    if REPLICATE not in roles.values():
        roles = {family: SHARDED if role == SHARD else role for family, role in roles.items()}
    sharded, reduced = ([family for family, role in roles.items() if role == name] for name in (SHARDED, DATA))
    if len(sharded) != 1 or len(reduced) != 1:
        return roles
    crossings = [len({*one} & {*other}) if one and other else 2
                 for one in members[sharded[0]] for other in members[reduced[0]]]  # fmt: skip
    return roles | ({sharded[0]: SHARD, reduced[0]: REPLICATE} if max(crossings) == 1 else {})


def _labels(table: pd.DataFrame) -> list[str]:
    """What each group is called; groups that would be called alike say their own name too, long ones cut."""
    columns = (table[name] for name in ("members", "group_size", "role", "world_size"))
    plain = [_label(*row) for row in zip(*columns, strict=True)]
    short = table["group"].astype("str").str.replace(r"^(.{8}).{5,}$", r"\1…", regex=True)
    return [f"{text}, group {name}" if plain.count(text) > 1 else text for text, name in zip(plain, short, strict=True)]


def _label(members: tuple[int, ...] | None, size: object, role: str | None, world_size: int | None) -> str:
    if not members:
        of = "group of unknown ranks" if pd.isna(size) else f"group of {size} ranks"
        return f"{role}, {of}" if isinstance(role, str) else of
    text = ranks_text(members, None if pd.isna(world_size) else world_size)
    if isinstance(role, str):  # absent beside other groups' is no None
        return f"{role} ({text})"
    return text if text.startswith("all ") else f"group of {size} ranks ({text.removeprefix('ranks ')})"


def mesh(groups: pd.DataFrame, world_size: int | None) -> str | None:
    """`data parallel 2 × tensor parallel 4`, outermost first; `None` where the groups span no mesh of all ranks.

    Axes multiply: each one's stride is the product of the sizes of those inside it, and all sizes make the world's. A
    group of all ranks is the mesh only when there is no other.
    """
    axes = groups.dropna(subset=["stride", "group_size"]).groupby(["stride", "group_size"])["role"]
    found = {axis: [*dict.fromkeys(own.dropna())] for axis, own in axes}
    inner = {axis: roles for axis, roles in found.items() if axis[1] != world_size} or found
    texts: list[str] = []
    reach = 1
    for (stride, size), roles in inner.items():
        if stride != reach:
            return None
        reach *= size
        # Losses and norms are reduced over the ranks of shards, too.
        aside = {DATA} if {SHARDED, SHARD, REPLICATE} & {*roles} else {}
        texts.insert(0, f"{' and '.join(role for role in roles if role not in aside) or 'axis'} {size}")
    return " × ".join(texts) if reach == world_size and any(inner.values()) else None
