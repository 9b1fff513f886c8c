"""Which streams were made to wait for which events, from the tables of synchronisations and of recorded events."""

import pandas as pd

from traceanalyzer.readers.nsys.ids import process_number, process_of
from traceanalyzer.readers.nsys.source import Source, int_values

SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CUDA_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
CONTEXT = "TARGET_INFO_CUDA_CONTEXT_INFO"
WAIT_TABLES = (SYNCHRONIZATION, CUDA_EVENT, CONTEXT)

_STREAM_WAIT = 2
"""`ENUM_CUPTI_SYNC_TYPE`: a stream waits for an event."""

_EVENT = ["process", "eventId", "eventSyncId"]


def read_stream_waits(source: Source) -> pd.DataFrame:
    """Waits with columns of `model.STREAM_WAITS`, `process` and `device` (NA where unknown); the export's own times.

    An event may be recorded again and again: `eventSyncId` tells which time a wait is for.
    """
    names = ("start", "end", "contextId", "streamId", "globalPid", "syncType", "eventId", "eventSyncId")
    waits = _frame(source, SYNCHRONIZATION, names)
    waits = waits[waits["syncType"] == _STREAM_WAIT]
    events = _frame(source, CUDA_EVENT, ("streamId", "correlationId", "globalPid", "eventId", "eventSyncId"))
    events = events.drop_duplicates(_EVENT).rename(columns={"streamId": "source"})
    table = waits.merge(events[[*_EVENT, "source", "correlationId"]], on=_EVENT, how="left")
    return pd.DataFrame(
        {
            "process": table["process"],
            "device": _devices(source, table),
            "start_ns": table["start"],
            "end_ns": table["end"],
            "stream": table["streamId"],
            "source_stream": table["source"].astype("Int64"),
            "record_correlation": table["correlationId"].fillna(-1).astype("int64"),
        }
    )


def _frame(source: Source, table: str, names: tuple[str, ...]) -> pd.DataFrame:
    rows = source.read(table, ints=names)
    frame = pd.DataFrame({name: int_values(rows, name) for name in names})
    return frame.assign(process=process_of(frame["globalPid"].to_numpy()))


def _devices(source: Source, waits: pd.DataFrame) -> pd.Series:
    """The GPU of each wait's context: a wait's own `deviceId` is always 0."""
    rows = source.read(CONTEXT, ints=("processId", "contextId", "deviceId"))
    keys = zip(int_values(rows, "processId").tolist(), int_values(rows, "contextId").tolist(), strict=True)
    known = dict(zip(keys, int_values(rows, "deviceId").tolist(), strict=True))
    places = zip(map(process_number, waits["process"].tolist()), waits["contextId"].tolist(), strict=True)
    return pd.Series([known.get(place) for place in places], index=waits.index, dtype="Int64")
