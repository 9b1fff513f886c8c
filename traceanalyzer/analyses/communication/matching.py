"""Which calls of all ranks are one collective, or the two ends of one message."""

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
from msgspec import Struct

from traceanalyzer import kinds
from traceanalyzer.analyses.communication.alignment import LEAST_UNCERTAINTY_NS, Alignment, align
from traceanalyzer.analyses.communication.call_lists import (
    GROUP_UNKNOWN,
    NO_ARGUMENTS,
    NOT_ON_ALL,
    NOT_WAITING_ALIKE,
    OF_ONE_RANK,
    PEER_COPY,
    RANK_CUT,
    RANK_MISSING,
    CallLists,
    is_peer_copy,
)
from traceanalyzer.analyses.communication.candidates import METHODS
from traceanalyzer.analyses.communication.inferred_groups import (
    Attempt,
    Partition,
    decided,
    never_names_group,
    possible_groups,
    scatter_ns,
    spinning_without_group,
)
from traceanalyzer.analyses.communication.messages import match_messages, no_members
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, picked, table_of, under_each_other, with_columns


class Matching(Struct, frozen=True):
    """Outcome for a table of calls.

    Attributes:
        members: a row for each call in each instance that it is part of: `row` (position in the table),
            `instance` (numbered by its first start), `matched_by`, `is_ambiguous`.
        why_unmatched: for every call why it is in none, or in one that lacks a rank; `None` for all others.
    """

    members: pd.DataFrame
    why_unmatched: np.ndarray


INFERRED_METHODS = (*METHODS, *(f"{method}; group inferred" for method in METHODS))
"""Of calls that name no group the ranks that run them in the same order, to ends that fit, are taken for one."""


def match(calls: pd.DataFrame, ranks: Iterable[int], cut: frozenset[int] = frozenset()) -> Matching:
    """Match the calls of all ranks, in order of time within a rank; `ranks` are those that have a trace.

    Of the ranks in `cut` the files end before the others': what they lack is a call of the others all the same.
    Kernels that spin on peers but name no group are matched over all ranks of the job, or over those groups that the
    ranks' files list or other calls name: where their order and ends agree best.
    """
    present = frozenset(ranks)
    why = np.full(len(calls), None, dtype=object)
    scope = _scopes(calls)
    is_message = calls["collective"].isin(kinds.POINT_TO_POINT).to_numpy()
    is_copy = is_peer_copy(calls)
    why[is_copy] = PEER_COPY
    why[(scope == NONE) & ~is_copy] = NO_ARGUMENTS
    lists = CallLists(calls)
    collective = np.flatnonzero((scope != NONE) & ~is_message & ~is_copy)
    groups = _groups(scope[collective], collective)
    tables = [_collectives(calls, lists, rows, present, cut, why) for rows in groups]
    if calls["group"].isna().all():
        tables = [table for table in tables if _is_of_one_clock(calls, table, why)]
    spinning = spinning_without_group(calls, (scope == NONE) & ~is_copy)
    tables += [
        _inferred(lists, rows, choices, present, why) for rows, choices in possible_groups(calls, spinning, present)
    ]
    messages = np.flatnonzero((scope != NONE) & is_message)
    tables.append(match_messages(calls, lists, messages, scope, present, why))
    return Matching(_numbered(calls, [table for table in tables if len(table)]), why)


def _scopes(calls: pd.DataFrame) -> np.ndarray:
    """Code of each call's process group (name and ranks); -1 where the trace does not say.

    Where it never does, on any call of any rank, all calls are taken for one group: ends decide. Not so kernels that
    never name one: their group is inferred.
    """
    held = ~column_of(calls, "group").isna()
    if not held.any():
        return np.where(never_names_group(calls), NONE, 0)
    key = calls["group"].astype("object").fillna("") + "\n" + calls["group_ranks"].astype("object").fillna("")
    return np.where(held, pd.factorize(key)[0], NONE)


def _groups(codes: np.ndarray, rows: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of each code, in their order."""
    order = np.argsort(codes, kind="stable")
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    return (part for part in np.split(rows[order], cuts) if len(part))


def _collectives(
    calls: pd.DataFrame,
    lists: CallLists,
    rows: np.ndarray,
    present: frozenset[int],
    cut: frozenset[int],
    why: np.ndarray,
) -> pd.DataFrame:
    """Instances of one group: every rank is aligned with the one that has most calls.

    Of a group of which some ranks have no trace those that have one, from two on: `why` says that the instances lack a
    rank.
    """
    by_rank = {int(lists.rank[part[0]]): part for part in _groups(lists.rank[rows], rows)}
    expected = group_members(calls.iloc[rows[0]], by_rank, present)
    here = expected & present if expected is not None else frozenset[int]()
    cut = cut if len(here - cut) > 1 else frozenset()
    if expected == here or len(here) < 2:
        return _aligned(lists, rows, expected, present, why, cut)
    table = _aligned(lists, rows, here, present, why, cut)
    why[rows] = RANK_MISSING
    return table


def _is_of_one_clock(calls: pd.DataFrame, instances: pd.DataFrame, why: np.ndarray) -> bool:
    """Whether ranks of one file, whose clock is one, end calls that are taken for one collective at one moment.

    Where they do not, calls of several groups that look alike were taken for one: none is told. Collectives of one root
    do not end together: those of one process, as `nn.DataParallel` makes them, are taken as they come.
    """
    if instances.empty or "file" not in calls:
        return True
    rows = array_of(instances, "row")
    held = calls[["rank", "file", "end_ns"]].take(rows).assign(instance=array_of(instances, "instance"))
    held = held[~calls["collective"].take(rows).isin(NOT_WAITING_ALIKE).to_numpy()]
    if held.empty:
        return True
    first = held.groupby(["instance", "file"], observed=True)["end_ns"].transform("first")
    apart_ns = (held["end_ns"] - first).groupby([held["file"], held["rank"]], observed=True).median()
    spread = apart_ns.groupby("file", observed=True).agg(lambda apart: apart.max() - apart.min())
    if spread.max() <= LEAST_UNCERTAINTY_NS:
        return True
    why[rows] = GROUP_UNKNOWN
    return False


def _inferred(
    lists: CallLists, rows: np.ndarray, choices: list[Partition], present: frozenset[int], why: np.ndarray
) -> pd.DataFrame:
    """Instances of groups that no call names, of the choice that fits best; `matched_by` says so."""
    found = decided([_attempt(lists, rows, partition, present) for partition in choices])
    why[rows] = GROUP_UNKNOWN if found is None else found.why
    if found is None:
        return no_members()
    return found.members.assign(matched_by=found.members["matched_by"] + len(METHODS))


def _attempt(lists: CallLists, rows: np.ndarray, partition: Partition, present: frozenset[int]) -> Attempt:
    """The calls in `rows` matched within the groups; those of no group have no partner."""
    why = np.full(len(lists.rank), GROUP_UNKNOWN, dtype=object)
    tables: list[pd.DataFrame] = []
    for group in partition:
        held = rows[np.isin(lists.rank[rows], list(group))]
        table = _aligned(lists, held, group, present, why)
        base = sum(len(earlier) for earlier in tables)
        tables.append(table.assign(instance=table["instance"] + base))
    members = under_each_other(tables) if tables else no_members()
    return Attempt(partition, members, why[rows], scatter_ns(members, lists.rank, lists.end_ns))


def _aligned(
    lists: CallLists,
    rows: np.ndarray,
    expected: frozenset[int] | None,
    present: frozenset[int],
    why: np.ndarray,
    cut: frozenset[int] = frozenset(),
) -> pd.DataFrame:
    """Instances of the calls in `rows` over the ranks of their group, those in `cut` as far as they have them."""
    by_rank = {int(lists.rank[part[0]]): part for part in _groups(lists.rank[rows], rows)}
    if expected is None or not expected <= present:
        why[rows] = GROUP_UNKNOWN if expected is None else RANK_MISSING
        return no_members()
    why[rows] = NOT_ON_ALL if len(expected) > 1 else OF_ONE_RANK
    if len(expected) < 2 or not expected - cut <= set(by_rank):
        return no_members()
    reference = max(sorted(expected - cut), key=lambda rank: len(by_rank[rank]))
    others = (expected & set(by_rank)) - {reference}
    aligned = {rank: align(lists.of(by_rank[reference]), lists.of(by_rank[rank])) for rank in others}
    return _complete(by_rank, reference, aligned, why, cut & expected)


def group_members(call: pd.Series, holders: Iterable[int], present: frozenset[int]) -> frozenset[int] | None:
    """Global ranks of a call's group; `None` when the trace does not tell.

    The list in a trace may be cut short (`0, 1, ..., 1023`): then those that use the group, if all are there. Where
    not even the group's size is known, they are the ranks that use it.
    """
    if told := numbers(call["group_ranks"]):
        return frozenset(told)
    if pd.isna(call["group"]):
        return present
    size = call["group_size"]
    found = frozenset(holders)
    if pd.isna(size):  # Nsight Systems names the communicator, and its size only when it is made in the capture
        return found if len(found) > 1 else None
    return found if len(found) == size else None


def _complete(
    by_rank: dict[int, np.ndarray],
    reference: int,
    aligned: dict[int, Alignment],
    why: np.ndarray,
    cut: frozenset[int],
) -> pd.DataFrame:
    """The reference's calls that have a partner on every other rank, but for those whose files end before."""
    rows = by_rank[reference]
    partners = np.full((len(rows), len(aligned)), NONE, dtype=np.int64)
    method = np.zeros(len(rows), dtype=np.int64)
    for column, (rank, found) in enumerate(aligned.items()):
        partners[found.left, column] = by_rank[rank][found.right]
        # The weakest way in which a member was found speaks for the instance.
        method[found.left] = np.maximum(method[found.left], found.method)
    is_wanted = np.array([rank not in cut for rank in aligned], dtype=bool)
    held = np.flatnonzero((partners[:, is_wanted] != NONE).all(axis=1))
    members = np.concatenate([rows[held, None], partners[held]], axis=1)
    is_here = members != NONE
    is_whole = is_here.all(axis=1) & (cut <= set(by_rank))
    why[members[is_whole].ravel()] = None
    why[members[~is_whole][is_here[~is_whole]]] = RANK_CUT
    return table_of(
        {
            "row": members[is_here],
            "instance": np.nonzero(is_here)[0],
            "matched_by": np.repeat(method[held], is_here.sum(axis=1)),
            "is_ambiguous": any(found.is_ambiguous for found in aligned.values()),
        }
    )


def _numbered(calls: pd.DataFrame, tables: list[pd.DataFrame]) -> pd.DataFrame:
    """The tables under each other, instances numbered over all of them by their first start."""
    if not tables:
        return no_members()
    bases = np.cumsum([0, *(int(table["instance"].max()) + 1 for table in tables)])
    parts = [with_columns(table, instance=table["instance"] + base) for table, base in zip(tables, bases, strict=False)]
    members = under_each_other(parts)
    number = array_of(members, "instance")
    instances = Groups.of_numbers(number)
    first = instances.smallest(array_of(calls, "start_ns")[members["row"]])[instances.of_row]
    members = picked(members, np.lexsort((number, first)))
    return with_columns(
        members,
        instance=pd.factorize(array_of(members, "instance"))[0],
        matched_by=pd.Series(np.array(INFERRED_METHODS, dtype=object)[members["matched_by"]]),
    )
