"""What a process group is for, as the collectives that run in it tell: which, in which phase, next to what."""

from collections.abc import Callable

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses.communication.group_names import (
    CONTEXT,
    DATA,
    EXPERT,
    NEIGHBOURS,
    PIPELINE,
    SHARDED,
    TABLES,
    TENSOR,
    role_of_description,
)
from traceanalyzer.kinds import POINT_TO_POINT
from traceanalyzer.model.tables import rows_where

LARGE_BYTES = 64 << 10
"""Collectives that are smaller on average (losses, norms, flags) do not tell what a group is for."""

REPEATED = 2
"""Collectives of a step's forward pass that are more than one of something."""

MOSTLY = 0.6
"""Share of calls from which on something holds of a group's calls. In a ring of n ranks n − 1 of n exchanges are
between attention kernels; of two at least half."""

NEIGHBOURS_OF_STAGE = 2
"""The stage before and the one after."""

_EXCHANGES = ("all_to_all", "ep_dispatch", "ep_combine")


class Role(Struct, frozen=True):
    """What a group is for, and how that is known."""

    name: str
    how_known: str


def roles_of_uses(uses: pd.DataFrame) -> tuple[Role, ...]:
    """Every role that the calls of some groups alike show; none where they show nothing, or it could be several.

    A group that carries several things (all ranks are often one group for everything) has several roles.
    """
    found = [rule(uses) for rule in _RULES]
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
    if int(own["peers"].max()) > NEIGHBOURS_OF_STAGE:  # of one rank: a server, a coordinator
        return None
    return Role(PIPELINE, "sends and receives between ranks")


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
    gathers, scatters = (rows_where(uses, uses["collective"] == name) for name in ("all_gather", "reduce_scatter"))
    own = pd.concat([gathers, scatters])
    if gathers.empty:
        return None
    if _share(own, "in_fsdp") >= MOSTLY:
        return Role(SHARDED, "all-gathers and reduce-scatters inside FSDP ranges")
    return _gathered(gathers, scatters) if _is_large(own) else None


def _gathered(gathers: pd.DataFrame, scatters: pd.DataFrame) -> Role | None:
    forward = _in(scatters, "forward")
    if _per_step(forward) >= REPEATED and _is_large(forward):
        return Role(TENSOR, "reduce-scatters in the forward pass: activations, not gradients")
    if _share(pd.concat([gathers, scatters]), "by_attention") >= MOSTLY:
        return Role(CONTEXT, "all-gathers next to attention kernels")
    if len(scatters) and scatters["is_after_forward"].all():
        return Role(SHARDED, "all-gathers, and reduce-scatters only after the forward pass: parameters and gradients")
    return None


def _reductions(uses: pd.DataFrame) -> Role | None:
    own = rows_where(uses, uses["collective"] == "all_reduce")
    forward, later = _in(own, "forward"), own[own["is_after_forward"]]
    if _per_step(forward) >= REPEATED and _is_large(forward):
        return Role(TENSOR, "all-reduces of every forward pass: activations, not gradients")
    if len(later) and _is_large(later):
        return Role(DATA, "all-reduces only after the forward pass: gradients")
    return None


_RULES: tuple[Callable[[pd.DataFrame], Role | None], ...] = (_exchanges, _shards, _messages, _reductions)


def with_marks(uses: pd.DataFrame) -> pd.DataFrame:
    """The table with `is_after_forward`: calls of the backward pass, of gradient synchronisation, of the optimizer."""
    return uses.assign(is_after_forward=uses["phase"].isin(["backward", "communication", "optimizer"]))


def _in(uses: pd.DataFrame, phase: str) -> pd.DataFrame:
    return rows_where(uses, uses["phase"] == phase)


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
