"""Tables of a rocpd database (`rocprofv3 --output-format rocpd`) as captures, one a process.

Schema 3 keeps times, process, thread and place in each row; later ones move them to tables of timestamps and tracks.
Only the tables named here are read: not those of nodes, environment and command lines.
"""

import json
import re
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from traceanalyzer.model.make import UNKNOWN_NS
from traceanalyzer.readers.nsys.source import SqliteSource, int_values, maybe_ints, text_values
from traceanalyzer.readers.rocprof.capture import RCCL_DOMAIN, ROCTX_DOMAIN, Gpu, ProcessTables

_DISPATCH = "rocpd_kernel_dispatch"

_PLACES = ("pid", "tid", "agent_id", "queue_id", "stream_id")

_AXES = ("x", "y", "z")

_SIZES = tuple(f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in _AXES)


class Database:
    """One file; several runs that were merged into it keep tables of their own, told apart by a suffix."""

    def __init__(self, path: Path) -> None:
        self._source = SqliteSource(path)
        self.tables = self._source.tables
        found = (re.fullmatch(rf"{_DISPATCH}(.*)", table) for table in sorted(self.tables))
        self.suffixes = [match[1] for match in found if match]

    def captures(self) -> list[ProcessTables]:
        """A capture for each process of each run."""
        return [capture for suffix in self.suffixes for capture in self._of_run(suffix)]

    def _of_run(self, suffix: str) -> list[ProcessTables]:
        strings, events = self._strings(suffix), self._events(suffix)
        kernels, copies = self._kernels(suffix, events), self._copies(suffix, strings, events)
        regions = self._regions(suffix, strings, events)
        gpus = self._gpus(suffix)
        spans = self._spans(suffix)
        processes = sorted({*kernels["process"], *copies["process"]})
        return [
            ProcessTables(
                process=process,
                gpus={agent: gpu for (owner, agent), gpu in gpus.items() if owner == process},
                kernels=kernels[kernels["process"] == process],
                copies=copies[copies["process"] == process],
                calls=regions[(regions["process"] == process) & regions["is_call"]],
                ranges=regions[(regions["process"] == process) & regions["domain"].notna()],
                start_ns=spans.get(process, (None, None))[0],
                end_ns=spans.get(process, (None, None))[1],
            )
            for process in processes
        ]

    def _strings(self, suffix: str) -> dict[int, str]:
        rows = self._source.read(f"rocpd_string{suffix}", ints=("id",), texts=("string",))
        return dict(zip(int_values(rows, "id").tolist(), text_values(rows, "string"), strict=True))

    def _events(self, suffix: str) -> pd.DataFrame:
        """By id: category's number, correlation (the profiler's stack id) and further data as JSON."""
        rows = self._source.read(f"rocpd_event{suffix}", ints=("id", "category_id", "stack_id"), texts=("extdata",))
        columns = {"category": int_values(rows, "category_id"), "correlation": int_values(rows, "stack_id")}
        return _once(pd.DataFrame({**columns, "extra": text_values(rows, "extdata")}, index=int_values(rows, "id")))

    def _categories(self, suffix: str, strings: dict[int, str]) -> dict[int, str]:
        rows = self._source.read(f"rocpd_info_category{suffix}", ints=("id",), texts=("name",))
        return dict(zip(int_values(rows, "id").tolist(), text_values(rows, "name"), strict=True)) or strings

    def _gpus(self, suffix: str) -> dict[tuple[int, int], Gpu]:
        table = f"rocpd_info_agent{suffix}"
        numbers, texts = ("id", "pid", "type_index", "logical_index"), ("type", "product_name", "name")
        rows = self._source.read(table, ints=numbers, texts=texts)
        held = [*(int_values(rows, name).tolist() for name in numbers), *(text_values(rows, name) for name in texts)]
        return {
            (process, agent): Gpu(number if number >= 0 else logical, product or name or None)
            for agent, process, number, logical, kind, product, name in zip(*held, strict=True)
            if kind == "GPU"
        }

    def _spans(self, suffix: str) -> dict[int, tuple[int, int]]:
        rows = self._source.read(f"rocpd_info_process{suffix}", ints=("pid", "init", "fini"))
        held = [int_values(rows, name).tolist() for name in ("pid", "init", "fini")]
        return {process: (begin, end) for process, begin, end in zip(*held, strict=True) if end > begin >= 0}

    def _kernels(self, suffix: str, events: pd.DataFrame) -> pd.DataFrame:
        table = f"{_DISPATCH}{suffix}"
        frame, rows = self._timed(table, suffix, ints=("kernel_id", "event_id", *_SIZES))
        symbols = self._source.read(
            f"rocpd_info_kernel_symbol{suffix}", ints=("id",), texts=("display_name", "kernel_name")
        )
        names = dict(zip(int_values(symbols, "id").tolist(), _either(symbols), strict=True))
        items, group = (
            np.maximum(np.stack([int_values(rows, f"{what}_size_{axis}", 1) for axis in _AXES], axis=1), 1)
            for what in ("grid", "workgroup")
        )
        return frame.assign(
            name=pd.Series(int_values(rows, "kernel_id")).map(names).astype("object").fillna("(unnamed)").to_numpy(),
            correlation=_correlations(rows, events),
            grid=_extents(-(-items // group)),  # the profiler counts work-items
            block=_extents(group),
        )

    def _copies(self, suffix: str, strings: dict[int, str], events: pd.DataFrame) -> pd.DataFrame:
        wanted = ("name_id", "src_agent_id", "dst_agent_id", "size", "event_id")
        frame, rows = self._timed(f"rocpd_memory_copy{suffix}", suffix, ints=wanted)
        return frame.drop(columns="agent").assign(
            operation=pd.Series(int_values(rows, "name_id"))
            .map(strings)
            .astype("object")
            .fillna("")
            .to_numpy(dtype=object),
            source=int_values(rows, "src_agent_id"),
            target=int_values(rows, "dst_agent_id"),
            bytes=maybe_ints(rows, "size"),
            correlation=_correlations(rows, events),
        )

    def _regions(self, suffix: str, strings: dict[int, str], events: pd.DataFrame) -> pd.DataFrame:
        """Host calls and ranges; a marker's name is in its event's data, other regions are named themselves."""
        frame, rows = self._timed(f"rocpd_region{suffix}", suffix, ints=("name_id", "event_id"))
        of_event = events.reindex(int_values(rows, "event_id"))
        category = of_event["category"].map(self._categories(suffix, strings)).astype("object").fillna("").astype(str)
        category = category.reset_index(drop=True)
        names = pd.Series(int_values(rows, "name_id")).map(strings).astype("object")
        is_marker = category.str.startswith("MARKER_CORE") & (names != "roctxMarkA")
        texts = of_event["extra"].reset_index(drop=True)
        messages = {text: _message(text) for text in texts[is_marker].dropna().unique()}
        is_rccl = category == "RCCL_API"
        domain = pd.Series(np.select([is_marker, is_rccl], [ROCTX_DOMAIN, RCCL_DOMAIN], ""), dtype="object")
        named = names.where(~is_marker, texts.map(messages))
        return frame.assign(
            name=named.fillna("(unnamed)"),
            correlation=_correlations(rows, events),
            is_call=category.str.startswith("HIP_"),
            domain=domain.where((domain != "") & named.notna(), None),
        )

    def _timed(self, table: str, suffix: str, *, ints: tuple[str, ...]) -> tuple[pd.DataFrame, pa.Table]:
        """Times and places of a table's rows, wherever its schema keeps them, and the rows with the other columns."""
        stamps = ("start", "end", "start_id", "end_id", "track_id")
        rows = self._source.read(table, ints=(*ints, *stamps, *_PLACES))
        has = self._source.columns(table)
        values = {name: int_values(rows, name, UNKNOWN_NS) for name in ("start", "end")}
        values |= {name: int_values(rows, name) for name in _PLACES}
        if "start_id" in has and "start" not in has:
            time = self._lookup(f"rocpd_timestamp{suffix}", "value")
            ids = {name: int_values(rows, f"{name}_id") for name in ("start", "end")}
            values |= {name: time.reindex(own, fill_value=UNKNOWN_NS).to_numpy() for name, own in ids.items()}
        if "track_id" in has and "pid" not in has:
            track = int_values(rows, "track_id")
            places = {name: self._lookup(f"rocpd_track{suffix}", name) for name in _PLACES}
            values |= {name: place.reindex(track, fill_value=-1).to_numpy() for name, place in places.items()}
        frame = pd.DataFrame(values)
        stream = frame["stream_id"].where(frame["stream_id"] >= 0, frame["queue_id"])
        names = {"start": "start_ns", "end": "end_ns", "pid": "process", "tid": "thread", "agent_id": "agent"}
        return frame.rename(columns=names).drop(columns=["queue_id", "stream_id"]).assign(stream=stream), rows

    def _lookup(self, table: str, column: str) -> pd.Series:
        rows = self._source.read(table, ints=("id", column))
        return _once(pd.Series(int_values(rows, column), index=int_values(rows, "id")))


_Table = TypeVar("_Table", pd.DataFrame, pd.Series)


def _once(table: _Table) -> _Table:
    """By id; of rows with one id (a damaged file's) the first."""
    return table[~table.index.duplicated()]


def _correlations(rows: pa.Table, events: pd.DataFrame) -> np.ndarray:
    numbers: np.ndarray = events["correlation"].reindex(int_values(rows, "event_id"), fill_value=-1).to_numpy()
    return numbers


def _extents(sizes: np.ndarray) -> pd.Categorical:
    """Rows of three sizes as `24x1x1`."""
    distinct, codes = np.unique(sizes.reshape(-1, len(_AXES)), axis=0, return_inverse=True)
    names = ["x".join(map(str, row)) for row in distinct.tolist()]
    return pd.Categorical.from_codes(codes.reshape(-1), categories=pd.Index(names, dtype="str"))


def _either(symbols: pa.Table) -> list[str]:
    shown, raw = text_values(symbols, "display_name"), text_values(symbols, "kernel_name")
    return [one or other.removesuffix(".kd") or "(unnamed)" for one, other in zip(shown, raw, strict=True)]


def _message(text: str) -> str | None:
    try:
        content = json.loads(text)
    except ValueError:
        return None
    message = content.get("message") if isinstance(content, dict) else None
    return message if isinstance(message, str) and message else None
