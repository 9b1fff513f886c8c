"""What one rank does in each process group: collectives by phase, their sizes, and what stands next to them."""

import re
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import all_known
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host.host_activity import names_around_launches, user_ranges
from traceanalyzer.analyses.host.host_names import PHASES, UNATTRIBUTED
from traceanalyzer.analyses.kernels.kernel_names import MATRIX_CATEGORIES
from traceanalyzer.model import RankTrace
from traceanalyzer.model.plain import is_name, single_integer, whole_of
from traceanalyzer.model.schema import NONE
from traceanalyzer.model.tables import array_of, column_of, rows_where, table_of

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


_PEER = re.compile(r"(?:send|recv) (\d+)")


def uses(
    trace: RankTrace, calls: pd.DataFrame, phase_of_op: np.ndarray, category_of_op: pd.Categorical
) -> pd.DataFrame:
    """One row for each group, collective and phase of the rank's calls whose group is known.

    `step_calls` and `step_bytes` are those of the whole steps, of which there are `steps`; `by_attention` counts calls
    launched next to an attention kernel: of the matrix products, convolutions and attention kernels launched before
    and after the call, the nearest one or the other is attention; `both_ways` those that
    send as often as they receive. `of_tables` counts those of a recommender's tables; `peers` are the
    ranks that messages go to or come from.
    """
    held = rows_where(calls, ~column_of(calls, "group").isna()) if len(calls) else calls
    if not len(held):
        return pd.DataFrame()
    rows = array_of(held, "gpu_op")
    whole = _whole_steps(trace)
    is_of_step = np.isin(whole_of(held, "step"), whole)
    keys = {
        "group": column_of(held, "group").astype("str"),
        "group_ranks": column_of(held, "group_ranks"),
        "collective": column_of(held, "collective").astype("str"),
        "phase": _PHASES[phase_of_op[rows]],
    }
    groups = Groups.of(keys, KEYS, with_absent=True)
    sizes: Any = column_of(held, "size_bytes")
    of_steps = pd.arrays.IntegerArray(
        np.where(is_of_step, sizes.to_numpy(dtype=np.int64, na_value=0), 0), is_of_step & sizes.isna()
    )
    counted = _marks(trace, held, category_of_op)
    columns = {
        **groups.keys,
        "group_description": groups.first_known(column_of(held, "group_description")),
        "group_size": groups.first_known(column_of(held, "group_size")),
        "world_size": single_integer(trace.meta.world_size).take(np.zeros(len(groups), dtype=np.int64)),
        "calls": groups.counts(),
        **{name: groups.total(values) for name, values in (("size_bytes", sizes), ("step_bytes", of_steps))},
        "unknown_sizes": all_known(groups.sums(sizes.isna().astype(np.int64))),
        "steps": len(whole),
        "step_calls": groups.sums(is_of_step.astype(np.int64)),
        **{name: groups.sums(mask.astype(np.int64)) for name, mask in counted.items()},
        "peers": _count_of_peers(groups, array_of(held, "peers")),
    }
    return table_of({name: columns[name] for name in COLUMNS})


def _marks(trace: RankTrace, held: pd.DataFrame, category_of_op: pd.Categorical) -> dict[str, np.ndarray]:
    """What the calls tell of what their groups are for: by column a mark for each call."""
    rows = array_of(held, "gpu_op")
    ranges = names_around_launches(user_ranges(trace), trace, array_of(trace.gpu_ops, "launch")[rows])
    return {
        "uneven_calls": column_of(held, "is_uneven").to_numpy(dtype=bool, na_value=False),
        "by_attention": _by_attention(trace, rows, category_of_op),
        "both_ways": np.array([_is_both_ways(peers) for peers in column_of(held, "peers").tolist()], dtype=bool),
        "in_fsdp": _named(ranges, _FSDP),
        "in_experts": _named(ranges, _EXPERTS),
        "of_tables": _named(ranges, _TABLES) | _looks_up(trace),
    }


def _whole_steps(trace: RankTrace) -> np.ndarray:
    """Numbers of the steps that are looked at and not cut by the capture."""
    numbers: np.ndarray = array_of(trace.steps, "step")[~array_of(trace.steps, "is_partial")]
    return numbers if trace.window.steps is None else numbers[np.isin(numbers, trace.window.steps)]


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


def _count_of_peers(groups: Groups, peers: np.ndarray) -> np.ndarray:
    """How many ranks the messages of each group's rows name: of `send 1, recv 1, recv 2` two."""
    named: list[set[str]] = [set() for _ in range(len(groups))]
    for row, text in {*zip(groups.of_row.tolist(), peers.tolist(), strict=True)}:
        if isinstance(text, str):
            named[row].update(_PEER.findall(text))
    return np.array([len(each) for each in named], dtype=np.int64)


def _is_both_ways(peers: object) -> bool:
    """Whether `send 1, recv 3` names as many sends as receives."""
    verbs = [part.split(" ")[0] for part in peers.split(", ")] if isinstance(peers, str) else []
    return 0 < verbs.count("send") == verbs.count("recv")


def _looks_up(trace: RankTrace) -> bool:
    return any(_LOOKUPS.search(name) for name in column_of(trace.gpu_ops, "name").categories.tolist())


def _named(ranges: np.ndarray, pattern: re.Pattern[str]) -> np.ndarray:
    names = ranges.tolist()
    known = {name: name is not None and bool(pattern.search(name)) for name in {*names}}
    return np.array([known[name] for name in names], dtype=bool)
