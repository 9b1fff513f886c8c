"""Kineto events as tables, and why a file is no trace that can be read."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from traceanalyzer.decoding.columns import ABSENT, Coded, to_ns
from traceanalyzer.decoding.decoder import DEVICES, FOREIGN, OUT_OF_TREE, EventDecoder, are_of_several
from traceanalyzer.decoding.stream import EventText
from traceanalyzer.decoding.tables import TableBuilder
from traceanalyzer.files.other_tools import written_by
from traceanalyzer.model.schema import printable
from traceanalyzer.model.tables import names_of, table_of
from traceanalyzer.readers.kineto.head import Properties

# The profiler's arrows from forward to backward operators, where a capture lost the numbers that say the same.
#
# Operators carry autograd's sequence number, from which the profiler makes its `fwdbwd` flows. Traces that tools have
# thinned of their arguments keep the flows alone. Only such a file is read a second time.


CATEGORY = b"fwdbwd"

_ARROW = re.compile(rb'\{[^{}]*"fwdbwd"[^{}]*\}')


class _End(msgspec.Struct, gc=False):
    """Where an arrow begins (`s`) or ends (`f`): at an operator's thread and start, in µs."""

    ph: str
    id: int | str
    tid: int
    ts: Decimal


def linked(path: Path, host_ops: pd.DataFrame, base_ns: int) -> pd.DataFrame:
    """The operators, with the arrows' numbers as sequence numbers where none has one of its own."""
    if host_ops.empty or host_ops["sequence"].notna().any():
        return host_ops
    ends = _ends(path)
    if ends.empty:
        return host_ops
    ends["start_ns"] += base_ns
    # Of operators that start together on a thread the first is the one around the others.
    first = host_ops.reset_index(drop=True).reset_index(names="row").drop_duplicates(["thread", "start_ns"])
    ends = ends.merge(first[["thread", "start_ns", "row"]], on=["thread", "start_ns"])
    begins = ends[ends["is_begin"]].drop_duplicates("id").set_index("id")
    targets = ends[~ends["is_begin"] & ends["id"].isin(begins.index)].drop_duplicates("id")
    sequence, thread = (np.full(len(host_ops), -1, dtype=np.int64) for _ in range(2))
    sequence[begins["row"]] = begins.index
    sequence[targets["row"]] = targets["id"]
    thread[targets["row"]] = begins["thread"].loc[targets["id"]]
    return host_ops.assign(sequence=_known(sequence), forward_thread=_known(thread))


def _ends(path: Path) -> pd.DataFrame:
    """Every arrow's two ends: its number in the file, thread and time without the file's base."""
    decode = msgspec.json.Decoder(_End).decode
    found: list[_End] = []
    for chunk in EventText.open(path).chunks():
        for text in _ARROW.findall(chunk) if CATEGORY in chunk else ():
            try:
                found.append(decode(text))
            except msgspec.DecodeError:  # damaged, or written by others: no arrow that can be followed
                continue
    return pd.DataFrame(
        {
            "id": pd.factorize(np.array([str(end.id) for end in found], dtype=object))[0],
            "is_begin": [end.ph == "s" for end in found],
            "thread": np.array([end.tid for end in found], dtype=np.int64),
            "start_ns": to_ns([end.ts for end in found]),
        }
    )


def _known(numbers: np.ndarray) -> pd.Series:
    return pd.Series(pd.array(numbers, dtype="Int64")).mask(numbers < 0)


# Decoded columns as tables.


def frame_of(builder: TableBuilder, name: str) -> pd.DataFrame:
    """What has been collected for a table; it is handed over, so that no event is in memory twice: ask for it once."""
    collected = builder.taken(name)
    columns = {column: _array(values) for column, values in collected.taken(builder.base_ns)}
    return table_of(columns, pd.RangeIndex(collected.rows))


def _array(values: np.ndarray | Coded) -> Any:
    if isinstance(values, Coded):
        return pd.Categorical.from_codes(values.codes, dtype=names_of(values.texts))
    absent = values == ABSENT
    if not absent.any():
        return values
    values[absent] = 1
    return pd.arrays.IntegerArray(values, absent)


# The machine that a trace was recorded on: from its metadata, else from the name that the profiler gave the file.


# As tensorboard_trace_handler names files: host and process, then nanoseconds.
_OF_HANDLER = re.compile(r"(?P<host>.+)_(?P<process>\d+)\.\d{10,}\.pt\.trace\.json(?:\.(?:gz|zst|xz|bz2))?")


def recorded_on(path: Path, named: str | None, operators: pd.DataFrame) -> tuple[str | None, int | None]:
    """Host and process.

    A file's name is believed only when one of the threads that recorded `operators` bears its process's number, as
    Linux numbers a process's main thread: other names end in a number too.
    """
    match = _OF_HANDLER.fullmatch(path.name)
    if match is None or operators.empty or not (operators["thread"] == int(match["process"])).any():
        return (printable(named) if named else None), None
    return printable(named or match["host"]), int(match["process"])


# Why a file of events is no trace that can be read, and what to record or give instead.


_OF_NPUS = re.compile(r"^(?:trace_view|msprof\w*)\.json")
"""Names under which Ascend's profilers write."""

_OF_ANY_OTHER = f"a capture of {DEVICES[OUT_OF_TREE]}"

_SPLIT = "a rank's recording is a file of its own: split it where its second list of traceEvents begins"

_ONE_PATH = (
    "several ranks wrote to this path, each over parts of the others' recording; record again with the rank in the "
    "file's name, such as tensorboard_trace_handler(folder, worker_name=f'rank_{rank}')"
)

_APART = "give the files that it was made of, as the profilers wrote them, one for each rank, in a folder of their own"


def why_refused(text: EventText, decoder: EventDecoder, builder: TableBuilder, known: Properties,
                without_category: int, *, has_ops: bool, has_host: bool) -> str | None:  # fmt: skip
    """Why what was decoded gives no trace; `None` where it does: of a GPU's work, or of the host alone."""
    if decoder.followed:
        return f"{decoder.followed + 1} traces, one behind the other; {_SPLIT}"
    if are_of_several(builder.origins):
        return _of_several(known)
    if has_ops:
        return None
    if of_others := _of_others(text, builder, without_category):
        return of_others
    if has_host and not text.is_truncated:
        return None
    return _of_another_tool(text) or _why_empty(text, decoder, without_category, has_host=has_host)


def _of_several(known: Properties) -> str:
    """A file's header names one rank, unless a tool made the file."""
    if known.rank is None:
        return f"the recordings of several processes, merged into one file; {_APART}"
    lost = f"rank {1 - known.rank}" if known.world_size == 2 else "each other rank that wrote to it"
    return f"parts of several ranks' recordings, under the header of rank {known.rank}: {lost} is lost; {_ONE_PATH}"


def _of_others(text: EventText, builder: TableBuilder, without_category: int) -> str | None:
    for category, count in builder.foreign.most_common(1):
        return (
            f"{FOREIGN.get(category, _OF_ANY_OTHER)}: its events ({count:,} of category {category}) are not read, only "
            "kernels and copies that are recorded as kernel, gpu_memcpy and gpu_memset"
        )
    for category, count in builder.called.most_common(1):
        device = category.rpartition("_")[0]
        return (
            f"a capture of {DEVICES.get(device, f'{device.upper()} devices')}: it holds calls of their runtime "
            f"({count:,} of category {category}) and none of their operations as kernel, gpu_memcpy and gpu_memset, "
            "which alone are read"
        )
    if without_category and _OF_NPUS.match(text.path.name):
        return f"a capture of NPU devices, whose events ({without_category:,}) are not read"
    return _of_another_tool(text) if without_category else None


def _of_another_tool(text: EventText) -> str | None:
    again = EventText.open(text.path)
    again.file.close()
    return written_by(again.begin)


def unread(count: int) -> str:
    """How many events are left out."""
    return f"{count:,} event{'s have' if count > 1 else ' has'} no category and {'are' if count > 1 else 'is'} not read"


def _why_empty(text: EventText, decoder: EventDecoder, without_category: int, *, has_host: bool) -> str:
    if text.is_truncated:
        what = "GPU operation" if has_host else "event"
        return f"cut off before its first {what}; copy the whole file, or record it again"
    if decoder.skipped:
        return f"none of its {decoder.skipped} events can be read"
    if without_category:
        return (
            f"a Chrome trace whose {unread(without_category)}, as PyTorch's old torch.autograd.profiler writes them; "
            "record with torch.profiler"
        )
    return (
        "a Chrome trace without PyTorch operators or GPU operations; so is one whose profiler's schedule had begun "
        "anew when it was exported: export in on_trace_ready, or with torch.profiler.schedule(…, repeat=1)"
    )
