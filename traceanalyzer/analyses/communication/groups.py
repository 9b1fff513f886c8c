"""Which process groups the job has, what each is for, and the one name by which reports call it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import Result, plain_rows, stack, typed
from traceanalyzer.analyses.communication import group_uses
from traceanalyzer.analyses.communication.group_members import ranks_text, stride
from traceanalyzer.analyses.communication.group_names import (
    DATA,
    REPLICATE,
    SHARD,
    SHARDED,
    is_telling,
    role_of_description,
)
from traceanalyzer.analyses.communication.group_roles import roles_of_uses, with_marks
from traceanalyzer.analyses.names import GroupsColumn
from traceanalyzer.analyses.same_keys import at_places, places_of
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.job.wiring import Wiring
from traceanalyzer.meaning.columns import Adds, Column
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.model import RankTrace
from traceanalyzer.model.tables import column_of, columns_of, only, without_rows

SHORT_NAME = 12
"""A process group's own name of more characters (a hash, a communicator's address) is cut where it must be shown."""


class Groups(Result[GroupsColumn]):
    """One row for each process group that communicates: widest strides last."""

    title: ClassVar[str] = "Process groups"
    keys: ClassVar[tuple[str, ...]] = ("group", "group_ranks")
    is_of_one_run: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Column]] = {
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


def per_rank(
    trace: RankTrace, calls: pd.DataFrame, phase_of_op: np.ndarray, category_of_op: pd.Categorical
) -> pd.DataFrame:
    """What the rank does in each of its groups."""
    return group_uses.uses(trace, calls, phase_of_op, category_of_op)


def across(parts: Mapping[int, pd.DataFrame], ranks: Ranks, wiring: Wiring | None = None) -> Groups:
    """Name the groups: by description, else by what runs in all groups of the same make, else by their ranks.

    `wiring` is what the run's topology and NCCL's log tell of its machine.
    """
    uses = with_marks(stack(parts, group_uses.COLUMNS))
    if uses.empty:
        return Groups(without_rows([*Groups.columns, "users"]))
    keyed = uses.assign(code=uses.groupby(["group", "group_ranks"], dropna=False).ngroup())
    table = _facts(keyed)
    table = table.assign(family=_families(table))
    keyed = keyed.assign(family=keyed["code"].map(table.set_index("code")["family"]))
    named = _hybrid({int(family): _role(own) for family, own in keyed.groupby("family")}, table)
    table = table.assign(role=[named[family][0] for family in table["family"]],
                         how_known=[named[family][1] for family in table["family"]])  # fmt: skip
    table = table.assign(group_label=_labels(table), **_joined(table["members"], ranks, wiring))
    order = table.assign(first=[members[0] if members else -1 for members in table["members"]])
    table = table.loc[order.sort_values(["group_size", "stride", "first", "group"], kind="stable").index]
    return Groups(typed(only(table, [*Groups.columns, "users"]), {"stride": "Int64"}).reset_index(drop=True))


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
    found[np.asarray(column_of(frame, "group").isna())] = None
    return pd.Series(found, index=frame.index, dtype="object")


def _joined(members: pd.Series, ranks: Ranks, wiring: Wiring | None) -> dict[str, list[str | None]]:
    """The groups' paths and transports."""
    known = (wiring or Wiring()).placed(ranks.table)
    return {
        "path": [known.path(own) if own and wiring else None for own in members],
        "transport": [known.transport(own) if own and wiring else None for own in members],
    }


def _facts(keyed: pd.DataFrame) -> pd.DataFrame:
    """What is true of each group, from all ranks' calls in it: a row for each `code`, in order."""
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in plain_rows(only(keyed, _OF_FACTS)):
        rows.setdefault(row["code"], []).append(row)
    facts = [{"code": code} | _facts_of(rows[code]) for code in sorted(rows)]
    return pd.DataFrame(
        {name: pd.Series([own[name] for own in facts], dtype="object") for name in facts[0]}
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


_OF_FACTS = (
    *("code", "rank", "group", "group_ranks", "group_description", "group_size", "world_size"),
    *("collective", "calls", "unknown_sizes", "steps", "step_bytes"),
)


def _first(values: pd.Series) -> str | None:
    held = values.dropna()
    return str(held.iloc[0]) if len(held) else None


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
    keys = only(table, ["group_description", "group_size", "stride"]).astype("object").fillna("")
    # Groups whose ranks lie anyhow are alike only to themselves.
    own = table["code"].where(table["stride"].isna(), -1)
    codes: np.ndarray = keys.assign(own=own).groupby([*keys, "own"], dropna=False).ngroup().to_numpy()
    return codes


def _role(uses: pd.DataFrame) -> tuple[str | None, str]:
    description = _first(uses["group_description"])
    named = role_of_description(description)
    if named:
        return named, f"its description: {description}"
    if found := roles_of_uses(uses):
        return " and ".join(dict.fromkeys(role.name for role in found)), "; ".join(role.how_known for role in found)
    if is_telling(description):
        return description, "its description"
    return None, "not known: what runs in it does not tell"


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
