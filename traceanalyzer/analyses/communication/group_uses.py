"""What one rank does in each process group: collectives by phase, their sizes, and what stands next to them."""

import re

import numpy as np
import pandas as pd

from traceanalyzer.analyses.base import typed
from traceanalyzer.analyses.grouping import Groups
from traceanalyzer.analyses.host.host_activity import names_around_launches, user_ranges
from traceanalyzer.analyses.host.host_names import PHASES, UNATTRIBUTED
from traceanalyzer.analyses.kernels.kernel_names import MATRIX_CATEGORIES
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import NONE

KEYS = ("group", "group_ranks", "collective", "phase")

COLUMNS = (
    *KEYS, "group_description", "group_size", "world_size", "calls", "size_bytes", "unknown_sizes", "steps",
    "step_calls", "step_bytes", "uneven_calls", "by_attention", "in_fsdp", "in_experts", "of_tables",
)  # fmt: skip

_PHASES = np.array([*PHASES, UNATTRIBUTED], dtype=object)

_FSDP = re.compile(r"FSDP|FullyShardedDataParallel", re.IGNORECASE)
_EXPERTS = re.compile(r"moe|expert|router|dispatch|combine", re.IGNORECASE)
_TABLES = re.compile(r"all2all_data:kjt|alltoall_(?:fwd|bwd)_single|sparse_data_dist", re.IGNORECASE)
"""TorchRec's ranges around its all-to-alls."""

_LOOKUPS = re.compile(r"split_embedding\w*_codegen|EmbeddingBag_updateOutput|bounds_check_indices", re.IGNORECASE)
"""Kernels that look up several rows of a table and add them up, as recommenders do; language models look up one."""


def uses(
    trace: RankTrace, calls: pd.DataFrame, phase_of_op: np.ndarray, category_of_op: pd.Categorical
) -> pd.DataFrame:
    """One row for each group, collective and phase of the rank's calls whose group is known.

    `step_calls` and `step_bytes` are those of the whole steps, of which there are `steps`; `by_attention` counts calls
    launched next to an attention kernel: of the matrix products, convolutions and attention kernels launched before
    and after the call, the nearest one or the other is attention. `of_tables` counts those of a recommender's tables.
    """
    held = calls[calls["group"].notna()] if len(calls) else calls
    if not len(held):
        return pd.DataFrame()
    rows = held["gpu_op"].to_numpy()
    ranges = names_around_launches(user_ranges(trace), trace, trace.gpu_ops["launch"].to_numpy()[rows])
    whole = _whole_steps(trace)
    table = held[["group", "group_ranks", "collective", "group_description", "group_size", "size_bytes"]].assign(
        phase=_PHASES[phase_of_op[rows]],
        is_of_step=held["step"].isin(whole).to_numpy(),
        uneven_calls=held["is_uneven"].fillna(value=False).to_numpy(dtype=bool),
        by_attention=_by_attention(trace, rows, category_of_op),
        in_fsdp=_named(ranges, _FSDP),
        in_experts=_named(ranges, _EXPERTS),
        of_tables=_named(ranges, _TABLES) | _looks_up(trace),
    )
    table = table.assign(step_bytes=table["size_bytes"].where(table["is_of_step"], 0))
    groups = Groups.of(typed(table, {"group": "str", "collective": "str"}), KEYS, with_absent=True)
    counted = {name: table[name].to_numpy(dtype=np.int64) for name in _COUNTED}
    summed = groups.totals(table, ["size_bytes", "step_bytes"]).assign(
        **{name: groups.sums(mask) for name, mask in counted.items()},
        calls=groups.counts(),
        step_calls=groups.sums(table["is_of_step"].to_numpy(dtype=np.int64)),
        unknown_sizes=pd.array(groups.sums(table["size_bytes"].isna().to_numpy(dtype=np.int64)), "Int64"),
        group_description=groups.first_known(table["group_description"]),
        group_size=groups.first_known(table["group_size"]),
        steps=len(whole),
        world_size=pd.array([trace.meta.world_size] * len(groups), "Int64"),
    )
    return summed[list(COLUMNS)]


_COUNTED = ("uneven_calls", "by_attention", "in_fsdp", "in_experts", "of_tables")


def _whole_steps(trace: RankTrace) -> np.ndarray:
    """Numbers of the steps that are looked at and not cut by the capture."""
    steps = trace.steps[~trace.steps["is_partial"]]
    if trace.window.steps is not None:
        steps = steps[steps["step"].isin(trace.window.steps)]
    numbers: np.ndarray = steps["step"].to_numpy()
    return numbers


def _by_attention(trace: RankTrace, rows: np.ndarray, category_of_op: pd.Categorical) -> np.ndarray:
    """Whether the nearest heavy kernel launched before, or after, each operation is attention."""
    launch = trace.gpu_ops["launch"].to_numpy()
    heavy = np.flatnonzero(category_of_op.isin(MATRIX_CATEGORIES) & (launch != NONE))
    if not len(heavy):
        return np.zeros(len(rows), dtype=bool)
    heavy = heavy[np.argsort(launch[heavy], kind="stable")]
    is_attention = np.concatenate([[False], category_of_op[heavy] == "attention", [False]])
    place = np.searchsorted(launch[heavy], launch[rows])
    found: np.ndarray = (is_attention[place] | is_attention[place + 1]) & (launch[rows] != NONE)
    return found


def _looks_up(trace: RankTrace) -> bool:
    return any(_LOOKUPS.search(name) for name in trace.gpu_ops["name"].cat.categories)


def _named(ranges: np.ndarray | pd.Series, pattern: re.Pattern[str]) -> np.ndarray:
    names = pd.Series(ranges, dtype="object")
    known = {name: bool(pattern.search(name)) for name in names.dropna().unique()}
    return np.array([known.get(name, False) for name in names], dtype=bool)
