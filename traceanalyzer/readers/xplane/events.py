"""Events of a plane's lines as a table: times in ns, names, and the stats that are used."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from traceanalyzer.model.event_times import LATEST_NS, UNKNOWN_NS

_PS_A_NS = 1000

STATS = (
    "correlation_id", "hlo_op", "hlo_module", "program_id", "kernel_details", "memcpy_details", "memset_details",
    "step_num", "device_id", "global_device_id",
)  # fmt: skip

_COLUMNS = ("name", "line", "start_ns", "end_ns", *STATS)


def events(plane: Any, wanted: Callable[[str], bool], offset_ns: int) -> pd.DataFrame:
    """The events of the lines whose name is wanted; a stat that an event has not is `None`.

    Times are picoseconds from the line's start: start and end are each rounded to the nanosecond once.
    """
    names = {entry.key: _event_name(entry.value) for entry in plane.event_metadata}
    shared = _shared_stats(plane)
    keys = {entry.key: text_of(entry.value.name) for entry in plane.stat_metadata}
    used = {key: name for key, name in keys.items() if name in STATS}
    rows = [
        (
            names.get(event.metadata_id, ""),
            line.id,
            _time(line.timestamp_ns + offset_ns),
            event.offset_ps,
            event.duration_ps,
            shared.get(event.metadata_id, {}) | _stats(event.stats, used, keys),
        )
        for line in plane.lines
        if wanted(text_of(line.name))
        for event in line.events
    ]
    return _table(rows)


def integers(values: pd.Series) -> pd.Series:
    """Whole numbers of 62 bits; what is none, or larger, is absent."""
    found = [value if isinstance(value, int) and abs(value) < 1 << 62 else None for value in values]
    return pd.Series(pd.array(found, dtype="Int64"), index=values.index)


def _time(time_ns: int) -> int:
    return time_ns if abs(time_ns) <= LATEST_NS else UNKNOWN_NS


def stats_of(plane: Any) -> dict[str, Any]:
    """The plane's own stats, by name."""
    keys = {entry.key: text_of(entry.value.name) for entry in plane.stat_metadata}
    return _stats(plane.stats, keys, keys)


def _table(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    if not rows:
        return pd.DataFrame({name: pd.Series(dtype="object") for name in _COLUMNS})
    name, line, base, offset, duration, stats = zip(*rows, strict=True)
    first, length = np.array(offset, dtype=np.int64), np.array(duration, dtype=np.int64)
    start_ns = np.array(base, dtype=np.int64)
    table = {
        "name": list(name),
        "line": np.array(line, dtype=np.int64),
        "start_ns": start_ns + _rounded(first),
        "end_ns": start_ns + _rounded(first + length),
    }
    return pd.DataFrame(table | {key: pd.Series([one.get(key) for one in stats], dtype="object") for key in STATS})


def _rounded(time_ps: np.ndarray) -> np.ndarray:
    rounded: np.ndarray = (time_ps + _PS_A_NS // 2) // _PS_A_NS
    return rounded


def _shared_stats(plane: Any) -> dict[int, dict[str, Any]]:
    """Stats that all events of one name share."""
    keys = {entry.key: text_of(entry.value.name) for entry in plane.stat_metadata}
    used = {key: name for key, name in keys.items() if name in STATS}
    return {entry.key: _stats(entry.value.stats, used, keys) for entry in plane.event_metadata if entry.value.stats}


def _stats(stats: Iterable[Any], used: Mapping[int, str], texts: Mapping[int, str]) -> dict[str, Any]:
    return {used[stat.metadata_id]: value_of(stat, texts) for stat in stats if stat.metadata_id in used}


def value_of(stat: Any, texts: Mapping[int, str]) -> Any:
    """What a stat says; `texts` are those that it may refer to."""
    for field in ("uint64_value", "int64_value", "double_value"):
        if stat.HasField(field):
            return getattr(stat, field)
    if stat.HasField("ref_value"):
        return texts.get(stat.ref_value)
    return text_of(stat.str_value) if stat.HasField("str_value") else None


def _event_name(metadata: Any) -> str:
    return text_of(metadata.display_name or metadata.name).removesuffix(".kd")


def text_of(raw: bytes) -> str:
    """A text of the file; what is not UTF-8 in it stands as replacement characters."""
    return raw.decode(errors="replace")
