"""Process groups: their ranks, names, purposes, and the mesh they span."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.base import Result, all_known, plain_rows, stack
from traceanalyzer.analyses.grouping import Groups as Rows
from traceanalyzer.analyses.grouping import at_places, places_of
from traceanalyzer.analyses.host.activity import names_around_launches, user_ranges
from traceanalyzer.analyses.host.host_names import PHASES, UNATTRIBUTED
from traceanalyzer.analyses.kernels.kernel_names import MATRIX_CATEGORIES
from traceanalyzer.analyses.trace import Ranks
from traceanalyzer.job.run_info import Wiring
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.meaning.columns import Adds, Column, numbers
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import (
    array_of,
    columns_of,
    is_name,
    rows_where,
    table_of,
    whole_of,
    without_rows,
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
EXPERT_DATA, EXPERT_TENSOR = "expert data parallel", "expert tensor parallel"
EXPERT_MODEL = "expert, tensor and pipeline parallel"
EMBEDDING = "tied embeddings"
NEIGHBOURS = "exchange between neighbours"
"""Every call sends as often as it receives: edges of a domain that is split over ranks, or parts that go round."""

TABLES = "embedding tables"
"""Of a recommender: each rank holds some, and the ranks exchange what was looked up."""
MODEL = "tensor and pipeline parallel"

_NOTHING_SAID = frozenset({"", "default_pg", "undefined", "default", "none", "pg", "world"})
"""Descriptions that say nothing of what a group is for, as PyTorch's of the group of all ranks."""

# Device meshes call a group "mesh_<axis>" (PyTorch), Megatron "<WHAT>_GROUP[_WITH_CP]"; the first rule that fits.
_GROUP_NAMES_RULES = (
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
    (DATA, re.compile(r"data_parallel|^dp(_|$)|^data$|^ddp|^batch$|^loss(_|$)")),
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
    return next((role for role, pattern in _GROUP_NAMES_RULES if pattern.search(plain)), None)


def is_telling(description: object) -> bool:
    """Whether a description says more than that there is a group."""
    return isinstance(description, str) and description.strip().lower() not in _NOTHING_SAID


LARGE_BYTES = 64 << 10
"""Collectives that are smaller on average (losses, norms, flags) do not tell what a group is for."""

REPEATED = 2
"""Collectives of a step's forward pass that are more than one of something."""

MOSTLY = 0.6
"""Share of calls from which on something holds of a group's calls. In a ring of n ranks n − 1 of n exchanges are
between attention kernels; of two at least half."""


_EXCHANGES = ("all_to_all", "ep_dispatch", "ep_combine")


class Role(Struct, frozen=True):
    """What a group is for, and how that is known."""

    name: str
    how_known: str


def roles_of_uses(uses: pd.DataFrame) -> tuple[Role, ...]:
    """Every role that the calls of some groups alike show; none where they show nothing, or it could be several.

    A group that carries several things (all ranks are often one group for everything) has several roles.
    """
    is_after = uses["phase"].isin(["backward", "communication", "optimizer"])
    uses = uses.assign(is_after_forward=is_after)
    found = [rule(uses) for rule in (_exchanges, _shards, _messages, _reductions)]
    return tuple(role for role in found if role is not None)


def role_of_messages(uses: pd.DataFrame) -> str | None:
    """What a rank's group is for that sends and receives, by its description, else by what stands next to them."""
    described = [role_of_description(text) for text in uses["group_description"].dropna().unique()]
    found = _messages(uses)
    return next((role for role in described if role), found.name if found else None)


def _messages(uses: pd.DataFrame) -> Role | None:
    own = rows_where(uses, uses["collective"].isin(POINT_TO_POINT))
    if own.empty:
        return None
    if _share(own, "by_attention") >= MOSTLY:
        return Role(CONTEXT, "sends and receives between attention kernels")
    if int(own["both_ways"].sum()) == int(own["calls"].sum()):  # a pipeline begins with an activation one way
        return Role(NEIGHBOURS, "every call sends as much as it receives")
    # A stage has two neighbours; more are those of one rank: a server, a coordinator.
    return Role(PIPELINE, "sends and receives between ranks") if int(own["peers"].max()) <= 2 else None


def _exchanges(uses: pd.DataFrame) -> Role | None:
    own = rows_where(uses, uses["collective"].isin(_EXCHANGES))
    if own.empty:
        return None
    if own["collective"].isin(_EXCHANGES[1:]).any():
        return Role(EXPERT, "dispatch and combine of experts' tokens")
    if _share(own, "in_experts") >= MOSTLY:
        return Role(EXPERT, "all-to-alls inside ranges of experts")
    # Queries, keys and values go in, one result comes out: at least half of the calls are next to attention.
    if _share(own, "by_attention") >= MOSTLY:
        return Role(CONTEXT, "all-to-alls next to attention kernels")
    if _share(own, "of_tables") >= MOSTLY:
        return Role(
            TABLES, "all-to-alls of what was looked up in tables (TorchRec's ranges, or table lookups' kernels)"
        )
    return Role(EXPERT, "all-to-alls with uneven split sizes") if own["uneven_calls"].sum() else None


def _shards(uses: pd.DataFrame) -> Role | None:
    own = rows_where(uses, uses["collective"].isin(("all_gather", "reduce_scatter")))
    scatters = own[own["collective"] == "reduce_scatter"]
    if len(scatters) == len(own):
        return None
    if _share(own, "in_fsdp") >= MOSTLY:
        return Role(SHARDED, "all-gathers and reduce-scatters inside FSDP ranges")
    forward, role = scatters[scatters["phase"] == "forward"], None
    if not _is_large(own):
        return None
    if _per_step(forward) >= REPEATED and _is_large(forward):
        role = Role(TENSOR, "reduce-scatters in the forward pass: activations, not gradients")
    elif _share(own, "by_attention") >= MOSTLY:
        role = Role(CONTEXT, "all-gathers next to attention kernels")
    elif len(scatters) and scatters["is_after_forward"].all():
        how = "all-gathers, and reduce-scatters only after the forward pass: parameters and gradients"
        role = Role(SHARDED, how)
    return role


def _reductions(uses: pd.DataFrame) -> Role | None:
    own = rows_where(uses, uses["collective"] == "all_reduce")
    forward, later = own[own["phase"] == "forward"], own[own["is_after_forward"]]
    if _per_step(forward) >= REPEATED and _is_large(forward):
        return Role(TENSOR, "all-reduces of every forward pass: activations, not gradients")
    if len(later) and _is_large(later):
        return Role(DATA, "all-reduces only after the forward pass: gradients")
    return None


def _share(uses: pd.DataFrame, column: str) -> float:
    """Share of the calls that are counted in a column."""
    calls = int(uses["calls"].sum())
    return float(uses[column].sum()) / calls if calls else 0.0


def _per_step(uses: pd.DataFrame) -> float:
    """Calls a step of the busiest rank; of the whole capture where there are no steps."""
    if uses.empty:
        return 0.0
    has_steps = uses["steps"] > 0
    rates = (uses["step_calls"] / uses["steps"].where(has_steps)).where(has_steps, uses["calls"])
    return float(rates.groupby(uses["rank"]).sum().max())


def _is_large(uses: pd.DataFrame) -> bool:
    known = uses[uses["unknown_sizes"] == 0]
    calls = int(known["calls"].sum())
    return bool(calls) and int(known["size_bytes"].sum()) >= LARGE_BYTES * calls


KEYS = ("group", "group_ranks", "collective", "phase")

COLUMNS = (
    *KEYS, "group_description", "group_size", "world_size", "calls", "size_bytes", "unknown_sizes", "steps",
    "step_calls", "step_bytes", "uneven_calls", "by_attention", "both_ways", "peers", "in_fsdp", "in_experts",
    "of_tables",
)  # fmt: skip

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

    `step_calls` and `step_bytes` are those of the whole steps, of which there are `steps`; `by_attention` counts calls
    launched next to an attention kernel: of the matrix products, convolutions and attention kernels launched before
    and after the call, the nearest one or the other is attention; `both_ways` those that
    send as often as they receive. `of_tables` counts those of a recommender's tables; `peers` are the
    ranks that messages go to or come from.
    """
    held = rows_where(calls, ~calls["group"].array.isna()) if len(calls) else calls
    if not len(held):
        return pd.DataFrame()
    rows = array_of(held, "gpu_op")
    steps = array_of(trace.steps, "step")[~array_of(trace.steps, "is_partial")]
    if trace.window.steps is not None:
        steps = steps[np.isin(steps, trace.window.steps)]
    is_of_step = np.isin(whole_of(held, "step"), steps)
    keys = {
        "group": held["group"].array.astype("str"),
        "group_ranks": held["group_ranks"].array,
        "collective": held["collective"].array.astype("str"),
        "phase": _PHASES[phase_of_op[rows]],
    }
    groups = Rows.of(keys, KEYS, with_absent=True)
    sizes: Any = held["size_bytes"].array
    peers = pd.Series(array_of(held, "peers"), dtype="object").fillna("")
    sends, receives = (peers.str.count(rf"\b{verb} ") for verb in ("send", "recv"))
    named = peers.str.findall(r"(?:send|recv) (\d+)").explode().dropna()
    ranges = names_around_launches(user_ranges(trace), trace, array_of(trace.gpu_ops, "launch")[rows])
    count_of_peers = named.groupby(groups.of_row[named.index]).nunique().reindex(range(len(groups)), fill_value=0)
    looks_up = any(_LOOKUPS.search(name) for name in trace.gpu_ops["name"].array.categories.tolist())
    counted = {
        "uneven_calls": held["is_uneven"].array.to_numpy(dtype=bool, na_value=False),
        "by_attention": _by_attention(trace, rows, category_of_op),
        "both_ways": ((sends > 0) & (sends == receives)).to_numpy(),
        "in_fsdp": _named(ranges, _FSDP),
        "in_experts": _named(ranges, _EXPERTS),
        "of_tables": _named(ranges, _TABLES) | looks_up,
    }
    columns = {
        **groups.keys,
        "group_description": groups.first_known(held["group_description"].array),
        "group_size": groups.first_known(held["group_size"].array),
        "world_size": pd.array([trace.meta.world_size] * len(groups), dtype="Int64"),
        "calls": groups.counts(),
        "size_bytes": groups.total(sizes),
        "step_bytes": groups.total(pd.Series(sizes).where(is_of_step, 0).array),
        "unknown_sizes": all_known(groups.sums(sizes.isna().astype(np.int64))),
        "steps": len(steps),
        "step_calls": groups.sums(is_of_step.astype(np.int64)),
        **{name: groups.sums(mask.astype(np.int64)) for name, mask in counted.items()},
        "peers": count_of_peers.array,
    }
    return table_of({name: columns[name] for name in COLUMNS})


def _by_attention(trace: RankTrace, rows: np.ndarray, category_of_op: pd.Categorical) -> np.ndarray:
    """Whether the nearest heavy kernel launched before, or after, each operation is attention."""
    launch = array_of(trace.gpu_ops, "launch")
    heavy = np.flatnonzero(is_name(category_of_op, *MATRIX_CATEGORIES) & (launch != NONE))
    if not len(heavy):
        return np.zeros(len(rows), dtype=bool)
    heavy = heavy[np.argsort(launch[heavy], kind="stable")]
    is_attention = np.concatenate([[False], is_name(category_of_op[heavy], "attention"), [False]])
    place = np.searchsorted(launch[heavy], launch[rows])
    found: np.ndarray = (is_attention[place] | is_attention[place + 1]) & (launch[rows] != NONE)
    return found


def _named(ranges: np.ndarray, pattern: re.Pattern[str]) -> np.ndarray:
    names = ranges.tolist()
    known = {name: name is not None and bool(pattern.search(name)) for name in {*names}}
    return np.array([known[name] for name in names], dtype=bool)


SHORT_NAME = 12
"""A process group's own name of more characters (a hash, a communicator's address) is cut where it must be shown."""


class Groups(Result):
    """One row for each process group that communicates: widest strides last."""

    title = "Process groups"
    keys = ("group", "group_ranks")
    is_of_one_run = True
    columns = {
        "group_label": Column.text(
            "What the group is for, as far as that is known, and its ranks: its name in every other table.",
            label="process group",
            is_aside_when_one=True,
        ),
        "role": Column.text("What the group is for, alone; absent where that is not known.", is_secondary=True),
        "how_known": Column.text("What tells so: the description that its maker gave it, or what runs in it."),
        "group_size": Column.number("Number of ranks.", is_aside=True),
        "stride": Column.number("Distance between neighbouring ranks; absent where it is not always the same."),
        "collectives": Column.text("What runs in it, most calls first: calls of all ranks that were captured."),
        "calls": Column.count("Their number.", is_aside=True),
        "step_bytes": Column.size(
            "Sizes of a rank's calls (full arrays) of a mean whole step, mean over ranks; n/a when one is "
            "unknown, or there are no steps.",
            adds=Adds.DERIVED,
        ),
        "path": Column.text(
            "The farthest path between two of its GPUs, by the run's topology (`NV18`: eighteen NVLinks; then PIX, "
            "PXB, PHB, NODE, SYS; `network` between machines); absent without one, or where a GPU is not known."
        ),
        "transport": Column.text("How NCCL joins its ranks, as its log says, most channels first; absent without one."),
        "group": Column.text(
            "Its name in the trace: a number, a hash of its ranks, a communicator's address.", replaced_by="group_label"
        ),
        "group_description": Column.text("Its description in the trace.", is_secondary=True, replaced_by="group_label"),
        "group_ranks": Column.text(
            "Global ranks, as the trace lists them.", is_secondary=True, replaced_by="group_label"
        ),
    }


def across(parts: Mapping[int, pd.DataFrame], ranks: Ranks, wiring: Wiring | None = None) -> Groups:
    """Name the groups: by description, else by what runs in all groups of the same make, else by their ranks.

    `wiring` is what the run's topology and NCCL's log tell of its machine.
    """
    uses = stack(parts, COLUMNS)
    if uses.empty:
        return Groups(without_rows([*Groups.columns, "users"]))
    keyed = uses.assign(code=uses.groupby(["group", "group_ranks"], dropna=False).ngroup())
    table = _facts(keyed)
    table = table.assign(family=_families(table))
    keyed = keyed.assign(family=keyed["code"].map(table.set_index("code")["family"]))
    named = _hybrid({int(family): _role(own) for family, own in keyed.groupby("family")}, table)
    known = wiring.placed(ranks.table) if wiring else None
    table = table.assign(
        role=[named[family][0] for family in table["family"]],
        how_known=[named[family][1] for family in table["family"]],
        path=[known.path(own) if own and known else None for own in table["members"]],
        transport=[known.transport(own) if own and known else None for own in table["members"]],
        first=[own[0] if own else -1 for own in table["members"]],
    )
    table = table.assign(group_label=_labels(table))
    table = table.sort_values(["group_size", "stride", "first", "group"], kind="stable")
    return Groups(table[[*Groups.columns, "users"]].astype({"stride": "Int64"}).reset_index(drop=True))


def labels(groups: Result, frame: pd.DataFrame) -> pd.Series:
    """The label of each row's process group, by its `rank` and `group`, or its `group_ranks` too.

    Absent where the group is not known.
    """
    table = groups.table
    if table.empty or frame.empty:
        return pd.Series(None, index=frame.index, dtype="object")
    known = columns_of(table)
    keys = ["group", "group_ranks"] if "group_ranks" in frame else ["group", "rank"]
    if keys[1] == "rank":
        rows = np.repeat(np.arange(len(table)), [len(users) for users in known["users"]])
        users = np.array([rank for users in known["users"] for rank in users], dtype=np.int64)
        known = {name: known[name].take(rows) for name in ("group", "group_label")} | {"rank": users}
    found = at_places(known["group_label"], places_of(frame, known, keys))
    found[np.asarray(frame["group"].array.isna())] = None
    return pd.Series(found, index=frame.index, dtype="object")


def _facts(keyed: pd.DataFrame) -> pd.DataFrame:
    """What is true of each group, from all ranks' calls in it: a row for each `code`, in order."""
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in plain_rows(keyed):
        rows.setdefault(row["code"], []).append(row)
    return pd.DataFrame(
        [{"code": code} | _facts_of(rows[code]) for code in sorted(rows)], dtype="object"
    ).infer_objects()


def _facts_of(uses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    users = tuple(sorted({row["rank"] for row in uses}))
    size = next((row["group_size"] for row in uses if row["group_size"] is not None), None)
    is_whole = len(users) == size if size is not None else len(users) > 1
    members = tuple(sorted(numbers(uses[0]["group_ranks"]))) or (users if is_whole else None)
    worlds = [row["world_size"] for row in uses if row["world_size"] is not None]
    counts: Counter[str] = Counter()
    for row in sorted((row for row in uses if row["collective"] is not None), key=itemgetter("collective")):
        counts[row["collective"]] += row["calls"]
    return {
        "group": uses[0]["group"],
        "group_ranks": uses[0]["group_ranks"],
        "group_description": next(
            (row["group_description"] for row in uses if row["group_description"] is not None), None
        ),
        "members": members,
        "users": users,
        "group_size": len(members) if members else pd.NA if size is None else size,
        "stride": (stride(members) if members else None) or pd.NA,
        "world_size": int(max(worlds)) if worlds else None,
        "collectives": ", ".join(f"{collective_words(name)} {calls}" for name, calls in counts.most_common()),
        "calls": counts.total(),
        "step_bytes": _step_bytes(uses),
    }


def _step_bytes(uses: Sequence[Mapping[str, Any]]) -> int | None:
    if any(row["unknown_sizes"] for row in uses) or not min(row["steps"] for row in uses):
        return None
    sums: Counter[int] = Counter()
    for row in uses:
        sums[row["rank"]] += row["step_bytes"] or 0
    steps = {row["rank"]: row["steps"] for row in reversed(uses)}
    return round(float(np.mean([sums[rank] / steps[rank] for rank in sorted(steps)])))


def _families(table: pd.DataFrame) -> np.ndarray:
    """Number of each group's make: groups of one description, size and stride are axes of one mesh."""
    keys = table[["group_description", "group_size", "stride"]].astype("object").fillna("")
    # Groups whose ranks lie anyhow are alike only to themselves.
    keys = keys.assign(own=table["code"].where(table["stride"].isna(), -1))
    return np.asarray(keys.groupby([*keys], dropna=False).ngroup())


def _role(uses: pd.DataFrame) -> tuple[str | None, str]:
    description = next(iter(uses["group_description"].dropna()), None)
    named = role_of_description(description)
    if named:
        return named, f"its description: {description}"
    if found := roles_of_uses(uses):
        return " and ".join(dict.fromkeys(role.name for role in found)), "; ".join(role.how_known for role in found)
    if is_telling(description):
        return str(description), "its description"
    return None, "unknown from its calls"


def _hybrid(roles: dict[int, tuple[str | None, str]], table: pd.DataFrame) -> dict[int, tuple[str | None, str]]:
    """Groups that reduce what others have sharded are the replicas of hybrid sharding, the others its shards.

    Frameworks call the axis of shards alike with and without replicas: without, it is plain sharding.
    """
    if REPLICATE not in {role for role, _ in roles.values()}:
        roles = {family: (SHARDED if role == SHARD else role, how) for family, (role, how) in roles.items()}
    sharded, reduced = ([family for family, (role, _) in roles.items() if role == name] for name in (SHARDED, DATA))
    if len(sharded) != 1 or len(reduced) != 1:
        return roles
    shard, replica = (table[table["family"] == families[0]] for families in (sharded, reduced))
    is_crossing = all(
        len(set(one) & set(other)) == 1
        for one in shard["members"] for other in replica["members"] if one and other and set(one) & set(other)
    )  # fmt: skip
    if not is_crossing or shard["members"].isna().any() or replica["members"].isna().any():
        return roles
    how = (roles[sharded[0]][1], f"{roles[reduced[0]][1]}, already sharded by other groups")
    return roles | {sharded[0]: (SHARD, how[0]), reduced[0]: (REPLICATE, how[1])}


def _labels(table: pd.DataFrame) -> list[str]:
    """What each group is called; groups that would be called alike say their own name too."""
    plain = [_label(row) for row in table.to_dict("records")]
    short = [name if len(name) <= SHORT_NAME else f"{name[:8]}…" for name in table["group"].astype("str")]
    return [f"{text}, group {name}" if plain.count(text) > 1 else text for text, name in zip(plain, short, strict=True)]


def _label(row: Mapping[str, object]) -> str:
    members, size = row["members"], row["group_size"]
    role = row["role"] if isinstance(row["role"], str) else None  # absent beside other groups' is no None
    if not members:
        of = "group of unknown ranks" if pd.isna(size) else f"group of {size} ranks"
        return f"{role}, {of}" if role else of
    text = ranks_text(members, row["world_size"])  # type: ignore[arg-type]
    if role:
        return f"{role} ({text})"
    return text if text.startswith("all ") else f"group of {size} ranks ({text.removeprefix('ranks ')})"


def mesh(groups: Result, world_size: int | None) -> str | None:
    """As `mesh_of`, of a Result."""
    return mesh_of(groups.table, world_size)


def mesh_of(groups: pd.DataFrame, world_size: int | None) -> str | None:
    """`data parallel 2 × tensor parallel 4`, outermost first; `None` where the groups span no mesh of all ranks.

    Axes multiply: each one's stride is the product of the sizes of those inside it, and all sizes make the world's. A
    group of all ranks is the mesh only when there is no other.
    """
    rows = groups[["stride", "group_size", "role"]].dropna(subset=["stride", "group_size"])
    found: dict[tuple[int, int], list[str]] = {}
    for stride, size, role in rows.itertuples(index=False):
        held = found.setdefault((int(stride), int(size)), [])
        if isinstance(role, str) and role not in held:
            held.append(role)
    inner = {axis: roles for axis, roles in found.items() if axis[1] != world_size} or found
    texts: list[str] = []
    reach = 1
    for stride, size in sorted(inner):
        if stride != reach:
            return None
        reach *= size
        roles = inner[stride, size]
        if any(role in (SHARDED, SHARD, REPLICATE) for role in roles):
            roles = [role for role in roles if role != DATA]  # losses and norms are reduced over the same ranks
        texts.insert(0, f"{' and '.join(roles) or 'axis'} {size}")
    return " × ".join(texts) if reach == world_size and any(inner.values()) else None
