"""The columns of every table of a trace, and frames brought to them.

All times are int64 nanoseconds. A column that points at a row of another table holds its position, or -1
where there is none; a *quantity* that is not known is `NA`, never 0 or -1. Names are categoricals.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.kinds import ACTIVITIES, KINDS
from traceanalyzer.meaning.rows import NONE as NONE  # noqa: PLC0414 - readers find it here too
from traceanalyzer.model.tables import columns_of, table_of

_CATEGORY, _NS, _INT, _MAYBE_INT = "category", "int64", "int64", "Int64"

GPU_OPS: Mapping[str, str] = MappingProxyType(
    {
        "start_ns": _NS,
        "end_ns": _NS,
        "name": _CATEGORY,
        "kind": _CATEGORY,  # kinds.KINDS
        "activity": _CATEGORY,  # kinds.ACTIVITIES
        "stream": _INT,
        "correlation": _INT,
        "launch": _INT,  # row in api_calls
        "bytes": _MAYBE_INT,  # of a copy or memset
        "direction": _CATEGORY,  # of a copy: HtoD, DtoH, DtoD, PtoP, HtoH
        "source_memory": _CATEGORY,  # pinned, pageable, device, managed
        "target_memory": _CATEGORY,
        "peer_device": _MAYBE_INT,  # the other GPU of a PtoP copy
        "grid": _CATEGORY,  # "24x1x1"
        "block": _CATEGORY,
        "graph_node": _MAYBE_INT,
        "captured_ns": _MAYBE_INT,  # of a replayed graph: its launch among the operators that captured it
        # What Kineto records of a kernel, as text: launches of one kernel say the same.
        "registers": _CATEGORY,  # of a thread
        "occupancy_pct": _CATEGORY,  # that its block allows, as the profiler estimates it
        "limiting_factors": _CATEGORY,  # of the occupancy: "WARPS|REGS"
        "priority": _CATEGORY,  # of its stream: "-5" comes before "0"
        "channel": _CATEGORY,  # of the hardware that it was queued in
    }
)
"""Kernels, copies and memsets of one rank, sorted by start."""

API_CALLS: Mapping[str, str] = MappingProxyType(
    {
        "start_ns": _NS,
        "end_ns": _NS,
        "name": _CATEGORY,
        "thread": _INT,
        "correlation": _INT,
        "kernel": _CATEGORY,  # that it launches, where the call itself says it (ROCm)
        "has_gpu_op": "bool",  # a GPU operation of the process has its correlation id, on any GPU, or may have it
    }
)
"""CUDA runtime and driver calls of the rank's process, launches among them, sorted by start."""

HOST_OPS: Mapping[str, str] = MappingProxyType(
    {
        "start_ns": _NS,
        "end_ns": _NS,
        "name": _CATEGORY,
        "thread": _INT,
        "external_id": _INT,
        "sequence": _MAYBE_INT,  # autograd's sequence number, joins forward and backward
        "forward_thread": _MAYBE_INT,  # not 0/NA on operators that autograd runs
        "shapes": _CATEGORY,  # JSON text as recorded: "[[8,512],[]]"
        "strides": _CATEGORY,  # of the same arguments, in elements: "[[512,1],[]]"
        "dtypes": _CATEGORY,
        "arguments": _CATEGORY,  # JSON text of the values, of attention and convolution only: strides, is_causal
    }
)
"""CPU operators, sorted by start."""

RANGES: Mapping[str, str] = MappingProxyType(
    {
        "start_ns": _NS,
        "end_ns": _NS,
        "name": _CATEGORY,
        "thread": _INT,
        "domain": _CATEGORY,
        "size_bytes": _MAYBE_INT,  # of a collective that the CPU carries out: of its inputs on this rank
        "is_open": "bool",  # the capture does not hold its end
    }
)
"""The user's ranges on the host (`record_function`, NVTX push/pop and start/end), sorted by start."""

XLA_MODULES = "XLA module"
"""Domain of ranges that are runs of a module that XLA compiled."""

XLA_PHASES = "JAX autodiff"
"""Domain of ranges around launches of one phase of training: XLA mixes phases as it likes, so they are no passes."""

FRAMES: Mapping[str, str] = MappingProxyType({"start_ns": _NS, "end_ns": _NS, "name": _CATEGORY, "thread": _INT})
"""Python frames, sorted by start: `nn.Module: Linear_0` and `file.py(12): function`.

Of built-in functions `gc.collect` alone."""

COMM_ARGS: Mapping[str, str] = MappingProxyType(
    {
        "gpu_op": _INT,  # row in gpu_ops when the kernel itself carries the arguments, else -1
        "start_ns": _NS,  # of the host operation; of the kernel when `gpu_op` is set
        "end_ns": _NS,
        "thread": _INT,
        "external_id": _INT,
        "collective": _CATEGORY,  # kinds.collective
        "group": _CATEGORY,  # process group (nsys: communicator)
        "group_description": _CATEGORY,
        "group_ranks": _CATEGORY,  # "0,1"
        "group_size": _MAYBE_INT,
        "dtype": _CATEGORY,
        "in_elements": _MAYBE_INT,
        "out_elements": _MAYBE_INT,
        "in_split": _CATEGORY,  # "6144,2048"
        "out_split": _CATEGORY,
        "sequence": _MAYBE_INT,  # the call's number within its group, or its id on all ranks
        "reduction": _CATEGORY,  # sum, product, max, min, avg; of a collective that reduces, where the trace says it
        "root": _MAYBE_INT,  # of a rooted collective
        "peer": _MAYBE_INT,  # of send and recv: its position in the group
        "size_bytes": _MAYBE_INT,  # where the trace says bytes instead of elements (nsys payloads)
        "has_inferred_size": "bool",  # by who calls the communicator, as the capture does not hold its making
    }
)
"""Arguments of communication operations, from kernels and from the host operations that launched them."""

STREAM_WAITS: Mapping[str, str] = MappingProxyType(
    {
        "start_ns": _NS,  # of the host call
        "end_ns": _NS,
        "stream": _INT,  # that waits: with what is launched on it from then on
        "source_stream": _MAYBE_INT,  # that the event was recorded on; NA when the trace does not say
        "record_correlation": _INT,  # of the call that recorded the event
        "record": _INT,  # row of that call in api_calls
    }
)
"""Calls that make a stream wait for an event (`cudaStreamWaitEvent`), sorted by start; empty when not recorded."""

COUNTERS: Mapping[str, str] = MappingProxyType(
    {
        "time_ns": _NS,
        "name": _CATEGORY,
        "value": "float64",
        "thread": _INT,  # of the host, -1 where none
        "address": _MAYBE_INT,  # of the block that `memory_allocated_bytes` changed by
    }
)
"""Sampled quantities: `memory_allocated_bytes`, `memory_reserved_bytes`, GPU metrics."""

TABLES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "gpu_ops": GPU_OPS,
        "api_calls": API_CALLS,
        "host_ops": HOST_OPS,
        "ranges": RANGES,
        "frames": FRAMES,
        "comm_args": COMM_ARGS,
        "stream_waits": STREAM_WAITS,
        "counters": COUNTERS,
    }
)
"""Every event table of a `RankTrace`, by field name."""

STEPS: Mapping[str, str] = MappingProxyType(
    {
        "step": _INT,  # the number in its name, else its ordinal
        "name": _CATEGORY,
        "host_start_ns": _NS,
        "host_end_ns": _NS,
        "start_ns": _MAYBE_INT,  # its window; NA when the step launched nothing that was recorded
        "end_ns": _MAYBE_INT,
        "is_partial": "bool",  # cut by the capture
    }
)
"""Steps of one rank in order, as `selection` finds them."""

_FIXED_CATEGORIES = {"kind": KINDS, "activity": ACTIVITIES}


UNNAMED = "(unnamed)"
"""Stands for a name that a trace does not give: analyses meet texts only."""


def printable(text: str) -> str:
    """`text` with what a terminal, a page or a file of UTF-8 would choke on replaced.

    Control characters, halves of characters and those that turn the direction of writing become a mark, blanks of
    every kind a blank.
    """
    if text.isprintable():
        return text
    mark = "\N{REPLACEMENT CHARACTER}"
    return "".join(one if one.isprintable() else " " if one.isspace() else mark for one in text)


LONGEST_NAME = 16_384
"""Characters of a name that are kept: templates of kernels have some thousand, and patterns take long on more."""


def _kept(name: str) -> str:
    return f"{name[:LONGEST_NAME]}… ({len(name):,} characters)" if len(name) > LONGEST_NAME else name


def legible(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with printable texts, and names that are not too long; almost always the table itself."""
    found = {}
    for name, column in columns_of(frame).items():
        if isinstance(column, pd.Categorical):
            texts = column.categories.tolist()
            is_cut = name == "name" and max(map(len, texts), default=0) > LONGEST_NAME
            if is_cut or not all(map(str.isprintable, texts)):
                plain = {text: printable(_kept(text) if is_cut else text) for text in texts}
                found[name] = pd.Series(column).astype("object").map(plain).astype("category")
    return frame.assign(**found) if found else frame


def named(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with `UNNAMED` where it has no name."""
    names = frame["name"]
    if not (names.array.codes == NONE).any():
        return frame
    known = names if UNNAMED in names.cat.categories else names.cat.add_categories([UNNAMED])
    return frame.assign(name=known.fillna(UNNAMED))


_LEAST_QUANTITY: Mapping[str, int] = MappingProxyType(
    {"bytes": 0, "size_bytes": 0, "in_elements": 0, "out_elements": 0, "group_size": 1}
)
_MOST_QUANTITY = 1 << 48
"""Bytes or elements: no operation moves 256 TiB, and sums of thousands of them are still exact."""


def conform(frame: pd.DataFrame | None, schema: Mapping[str, str]) -> pd.DataFrame:
    """`frame` with exactly the schema's columns and dtypes, in order; absent columns become NA, -1 or empty.

    Quantities that cannot be (bytes or elements below 0 or beyond 2⁴⁸, groups of no rank) are NA: they are not known.
    """
    if frame is None:
        return _without_rows(tuple(schema.items())).copy(deep=False)
    # On arrays: a trace has eight such tables, and pandas' own way takes as long as reading a megabyte of text.
    count, held = len(frame), columns_of(frame)
    columns = {
        name: _column(held[name], name, dtype) if name in held else _absent(count, name, dtype)
        for name, dtype in schema.items()
    }
    return table_of(columns, pd.RangeIndex(count))


@cache
def _without_rows(schema: tuple[tuple[str, str], ...]) -> pd.DataFrame:
    return table_of({name: _absent(0, name, dtype) for name, dtype in schema}, pd.RangeIndex(0))


def _column(values: Any, name: str, dtype: str) -> Any:
    if name in _FIXED_CATEGORIES and isinstance(values, pd.Categorical):
        return _of_categories(values, _FIXED_CATEGORIES[name])
    if name in _FIXED_CATEGORIES:
        return pd.Series(values).astype(pd.CategoricalDtype(list(_FIXED_CATEGORIES[name]))).array
    if str(values.dtype) != dtype:
        values = _as(values, dtype)
    if name in _LEAST_QUANTITY:
        can_be = _can_be(values, _LEAST_QUANTITY[name])
        return values if can_be.all() else pd.Series(values, copy=False).where(can_be).array
    has_names = dtype != _CATEGORY or len(values.categories) > 0
    # Where no row has a name, the categories would be of whatever type the absent values had.
    return values if has_names else _absent(len(values), name, dtype)


def _can_be(values: Any, least: int) -> np.ndarray:
    """Quantities that are not absurd, or absent."""
    plain: np.ndarray = values if isinstance(values, np.ndarray) else values.to_numpy(dtype=np.int64, na_value=least)
    return (plain >= least) & (plain <= _MOST_QUANTITY)


def _of_categories(values: pd.Categorical, names: Sequence[str]) -> pd.Categorical:
    """The same names by these categories; others are absent."""
    place = {name: code for code, name in enumerate(names)}
    codes = np.array([*(place.get(name, NONE) for name in values.categories.tolist()), NONE], dtype=np.int8)
    return pd.Categorical.from_codes(codes[values.codes], categories=list(names))


def _as(values: Any, dtype: str) -> Any:
    if dtype == _MAYBE_INT and values.dtype == np.int64:  # pandas asks of each value whether it is whole
        return pd.arrays.IntegerArray(values.copy(), np.zeros(len(values), dtype=bool))
    column = pd.Series(values, copy=False).astype(dtype)
    return column.to_numpy() if isinstance(column.dtype, np.dtype) else column.array


@cache
def _names_of(name: str) -> pd.CategoricalDtype:
    # Not as this file is loaded: how texts are stored may be set then.
    fixed = _FIXED_CATEGORIES.get(name)
    return pd.CategoricalDtype(pd.Index([], dtype="str") if fixed is None else list(fixed))


def _absent(length: int, name: str, dtype: str) -> Any:
    if dtype == _CATEGORY:
        # Not from a list of absent values, each of which pandas would look at.
        return pd.Categorical.from_codes(np.full(length, NONE, dtype=np.int8), dtype=_names_of(name))
    if dtype == _MAYBE_INT:
        return pd.arrays.IntegerArray(np.ones(length, dtype=np.int64), np.ones(length, dtype=bool))
    return np.full(length, NONE if dtype == _INT else 0, dtype=dtype)
