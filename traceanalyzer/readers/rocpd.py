"""AMD's rocpd databases: `rocprofv3 --output-format rocpd` writes `<process>_results.db`."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from traceanalyzer.errors import NotATraceError
from traceanalyzer.files.other_tools import database_of
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.model.make import UNKNOWN_NS
from traceanalyzer.readers.base import Format, Header, RankHint, is_sqlite
from traceanalyzer.readers.rocprof import NO_GPU_OPS, RCCL_DOMAIN, ROCTX_DOMAIN, Gpu, ProcessTables, extents, traces

FORMAT = Format("rocprofv3 --output-format rocpd", "_results.db", suffixes=(".db",), vendor="AMD")


def recognises(path: Path) -> bool:
    """Whether the file is an SQLite database with a table of rocpd's."""
    if not is_sqlite(path):
        return False
    try:
        return any(table.startswith("rocpd_") for table in Database(path).tables)
    except NotATraceError:
        return False


def peek(path: Path) -> Header:
    """Nothing: the file names no rank, and its times are no times of day; see `Reader.peek`."""
    database = Database(path)
    if not database.suffixes:
        raise NotATraceError(f"{path}: {database_of(database.tables) or NO_GPU_OPS}")
    return Header()


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """A rank for each GPU of the file's processes; see `Reader.read`."""
    captures = Database(path).captures()
    if not captures:
        raise NotATraceError(f"{path}: {NO_GPU_OPS}")
    yield from traces(captures, path, hint, rules)


# The tables as captures, one a process.
#
# Schema 3 keeps times, process, thread and place in each row; later ones move them to tables of timestamps and tracks.
# Only the tables named here are read: not those of nodes, environment and command lines.


_DISPATCH = "rocpd_kernel_dispatch"

_PLACES = ("pid", "tid", "agent_id", "queue_id", "stream_id")

_AXES = ("x", "y", "z")

_SIZES = tuple(f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in _AXES)


class Database:
    """One file; several runs that were merged into it keep tables of their own, with a suffix each."""

    def __init__(self, path: Path) -> None:
        from traceanalyzer.readers.nsys.source import SqliteSource

        self._source = SqliteSource(path)
        self.tables = self._source.tables
        found = (re.fullmatch(rf"{_DISPATCH}(.*)", table) for table in sorted(self.tables))
        self.suffixes = [match[1] for match in found if match]

    def captures(self) -> list[ProcessTables]:
        """A capture for each process of each run."""
        return [capture for suffix in self.suffixes for capture in self._of_run(suffix)]

    def _of_run(self, suffix: str) -> list[ProcessTables]:
        strings = self._texts(f"rocpd_string{suffix}", "string")
        # Category's number, correlation (the profiler's stack id) and further data as JSON.
        events = self._source.frame(
            f"rocpd_event{suffix}", ints=("id", "category_id", "stack_id"), texts=("extdata",)
        ).pipe(_by_id)
        kernels, copies = self._kernels(suffix, events), self._copies(suffix, strings, events)
        regions = self._regions(suffix, strings, events)
        gpus = self._gpus(suffix)
        processes = self._source.rows(f"rocpd_info_process{suffix}", ints=("pid", "init", "fini"))
        spans = {process: (begin, end) for process, begin, end in processes if end > begin >= 0}
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
            for process in sorted({*kernels["process"], *copies["process"]})
        ]

    def _texts(self, table: str, column: str) -> dict[int, str]:
        return dict(self._source.rows(table, ints=("id",), texts=(column,)))

    def _gpus(self, suffix: str) -> dict[tuple[int, int], Gpu]:
        numbers, texts = ("id", "pid", "type_index", "logical_index"), ("type", "product_name", "name")
        rows = self._source.rows(f"rocpd_info_agent{suffix}", ints=numbers, texts=texts)
        return {
            (process, agent): Gpu(number if number >= 0 else logical, product or name or None)
            for agent, process, number, logical, kind, product, name in rows
            if kind == "GPU"
        }

    def _kernels(self, suffix: str, events: pd.DataFrame) -> pd.DataFrame:
        rows = self._timed(f"{_DISPATCH}{suffix}", suffix, "kernel_id", *_SIZES, missing=dict.fromkeys(_SIZES, 1))
        symbols = f"rocpd_info_kernel_symbol{suffix}"
        names = {
            symbol: shown or raw.removesuffix(".kd") or "(unnamed)"
            for symbol, shown, raw in self._source.rows(symbols, ints=("id",), texts=("display_name", "kernel_name"))
        }
        items, group = (np.maximum(rows[[*own]].to_numpy(), 1) for own in (_SIZES[:3], _SIZES[3:]))
        return rows.assign(
            name=_named(rows["kernel_id"], names).fillna("(unnamed)"),
            correlation=_correlations(rows, events),
            grid=extents(-(-items // group)),  # the profiler counts work-items
            block=extents(group),
        )

    def _copies(self, suffix: str, strings: dict[int, str], events: pd.DataFrame) -> pd.DataFrame:
        wanted = ("name_id", "src_agent_id", "dst_agent_id", "size")
        rows = self._timed(f"rocpd_memory_copy{suffix}", suffix, *wanted).drop(columns="agent")
        return rows.assign(
            operation=_named(rows["name_id"], strings).fillna(""),
            source=rows["src_agent_id"],
            target=rows["dst_agent_id"],
            bytes=rows["size"],
            correlation=_correlations(rows, events),
        )

    def _regions(self, suffix: str, strings: dict[int, str], events: pd.DataFrame) -> pd.DataFrame:
        """Host calls and ranges; a marker's name is in its event's data, other regions are named themselves."""
        rows = self._timed(f"rocpd_region{suffix}", suffix, "name_id")
        of_event = events.reindex(rows["event_id"]).reset_index(drop=True)
        categories = self._texts(f"rocpd_info_category{suffix}", "name") or strings
        category = _named(of_event["category_id"], categories).fillna("").astype(str)
        names, texts = _named(rows["name_id"], strings), of_event["extdata"]
        is_marker = category.str.startswith("MARKER_CORE") & (names != "roctxMarkA")
        messages = {text: _message(text) for text in texts[is_marker].dropna().unique()}
        domains = np.select([is_marker, category == "RCCL_API"], [ROCTX_DOMAIN, RCCL_DOMAIN], "")
        named = names.where(~is_marker, texts.map(messages))
        return rows.assign(
            name=named.fillna("(unnamed)"),
            correlation=_correlations(rows, events),
            is_call=category.str.startswith("HIP_"),
            domain=pd.Series(domains, dtype="object").where((domains != "") & named.notna(), None),
        )

    def _timed(self, table: str, suffix: str, *ints: str, missing: Mapping[str, int] | None = None) -> pd.DataFrame:
        """Times, places and events of a table's rows, wherever its schema keeps them, and these columns."""
        stamps = ("start", "end", "start_id", "end_id", "track_id", "event_id")
        unknown = {"start": UNKNOWN_NS, "end": UNKNOWN_NS, **(missing or {})}
        rows = self._source.frame(table, unknown, ints=(*ints, *stamps, *_PLACES))
        has = self._source.columns(table)
        if "start_id" in has and "start" not in has:
            time = self._source.frame(f"rocpd_timestamp{suffix}", ints=("id", "value")).pipe(_by_id)["value"]
            for name in ("start", "end"):
                rows[name] = time.reindex(rows[f"{name}_id"], fill_value=UNKNOWN_NS).to_numpy()
        if "track_id" in has and "pid" not in has:
            tracks = self._source.frame(f"rocpd_track{suffix}", ints=("id", *_PLACES)).pipe(_by_id)
            rows[[*_PLACES]] = tracks.reindex(rows["track_id"], fill_value=-1).to_numpy()
        names = {"start": "start_ns", "end": "end_ns", "pid": "process", "tid": "thread", "agent_id": "agent"}
        stream = rows["stream_id"].where(rows["stream_id"] >= 0, rows["queue_id"])
        return rows.rename(columns=names).assign(stream=stream)


def _by_id(rows: pd.DataFrame) -> pd.DataFrame:
    """By id; of rows with one id (a damaged file's) the first."""
    with np.errstate(all="ignore"):  # ids that are no numbers are hashed like others
        return rows.drop_duplicates("id").set_index("id")


def _named(ids: pd.Series, names: Mapping[int, str]) -> pd.Series:
    return ids.map(names).astype("object")


def _correlations(rows: pd.DataFrame, events: pd.DataFrame) -> np.ndarray:
    return events["stack_id"].reindex(rows["event_id"], fill_value=-1).to_numpy()


def _message(text: str) -> str | None:
    try:
        content = json.loads(text)
    except ValueError:
        return None
    message = content.get("message") if isinstance(content, dict) else None
    return message if isinstance(message, str) and message else None
