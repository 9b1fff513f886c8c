"""PyTorch-profiler (Kineto) Chrome traces, `.json`, plain or packed: old and new, whole and damaged."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from traceanalyzer.cuda_graphs import with_annotations
from traceanalyzer.decoding.batches import WORTH_BYTES, decode_all
from traceanalyzer.decoding.decoder import EventDecoder
from traceanalyzer.decoding.stream import EVENT_BYTES_MOST, EventText
from traceanalyzer.decoding.tables import TableBuilder
from traceanalyzer.errors import NotATraceError
from traceanalyzer.execution import CORES_A_FILE
from traceanalyzer.files.archives import is_json
from traceanalyzer.files.other_tools import written_by
from traceanalyzer.files.safe_pickle import without_collection
from traceanalyzer.kinds import CUT_LIST, KindRules
from traceanalyzer.model import ProcessGroup, RankMeta, RankTrace, trace_of
from traceanalyzer.model.make import args_of_kept_ops
from traceanalyzer.model.schema import GPU_OPS, conform, printable
from traceanalyzer.model.tables import array_of, pairs_of, rows_where, texts_as_category, whole_of, with_columns
from traceanalyzer.readers.base import DEVICE_ORDER, Format, Header, RankHint
from traceanalyzer.readers.kineto.events import frame_of, linked, recorded_on, unread, why_refused
from traceanalyzer.readers.kineto.head import Properties, properties

FORMAT = Format(
    "PyTorch Profiler", ".json, plain or packed as .gz, .zst, .xz or .bz2", framework="torch", has_one_process=True,
    is_general=True,
)  # fmt: skip

_EXPORT = re.compile(rb'"otherData":\{"label":[^{}]*"zero_ns":')

_ANOTHER_UNIT = re.compile(rb'"displayTimeUnit"\s*:\s*"us"')
"""Kineto writes `ms`, Triton's Proton this one, beside kernels that look like Kineto's."""


def recognises(path: Path) -> bool:
    """By name: `.json`, or packed `.json.gz`, `.zst`, `.xz`, `.bz2`."""
    return path.is_file() and is_json(path.name)


def peek(path: Path) -> Header:
    """Rank, world size, trace id and start of the capture, from the file's first MiB.

    Raises:
        NotATraceError: the file cannot be read or has no events' array.
    """
    text = EventText.open(path)
    known = properties(text.head)
    first = text.first_time_us()
    if _ANOTHER_UNIT.search(text.head) and (other := written_by(text.begin)):
        raise NotATraceError(f"{path}: {other}")
    if _EXPORT.search(text.head):
        raise NotATraceError(f"{path}: made by `analyze-traces export`; name the traces that it was made from")
    return Header(
        ranks=None if known.rank is None else (known.rank,),
        world_size=known.world_size,
        trace_id=known.trace_id,
        start_ns=None if first is None else known.base_ns + round(first * 1000),
    )


def ended_ns(path: Path) -> int | None:
    """When the capture ended, by the mark that the profiler leaves at the file's end; see `Reader`."""
    text = EventText.open(path)
    last = text.window_end_us()
    return None if last is None else properties(text.head).base_ns + round(last * 1000)


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """The ranks of one file: one, or one for each GPU when the file names no rank.

    Raises:
        NotATraceError: the file cannot be read, or holds no GPU operations.
    """
    yield from _one_per_device(*_parsed(path, hint), rules)  # no name here: what is read would be held while it is used


def _parsed(path: Path, hint: RankHint) -> tuple[RankMeta, Properties, TableBuilder, pd.DataFrame, pd.DataFrame]:
    """What of the file is known, its other tables, and the operators and GPU operations in it."""
    with without_collection():
        text, decoder, builder = _decoded(path)
    known = properties(text.head, text.tail)
    builder.base_ns = known.base_ns
    ops, host_ops = frame_of(builder, "gpu_ops"), frame_of(builder, "host_ops")
    without_category = builder.foreign.pop("", 0)
    is_host_only = ops.empty and not text.is_truncated and not host_ops.empty
    has = {"has_ops": not ops.empty, "has_host": not host_ops.empty}
    if why := why_refused(text, decoder, builder, known, without_category, **has):
        raise NotATraceError(f"{path}: {why}")
    meta = _meta(path, hint, known, text, decoder, frame_of(builder, "spans"))
    host, process = recorded_on(path, known.host, host_ops)
    meta = replace(meta, host=host, process=process)
    if is_host_only:
        left = (f"{unread(without_category)}: a device's, where it had work.",) if without_category else ()
        notes = (*meta.notes, *left)
        meta = replace(meta, is_host_only=True, has_api_calls=builder.holds("api_calls"), notes=notes)
    return meta, known, builder, linked(path, host_ops, known.base_ns), conform(ops, GPU_OPS) if ops.empty else ops


def _decoded(path: Path) -> tuple[EventText, EventDecoder, TableBuilder]:
    text, decoder, builder = EventText.open(path), EventDecoder(), TableBuilder()
    processes = CORES_A_FILE.get() if text.file.expected_bytes > WORTH_BYTES else 1
    decode_all(text.chunks(), decoder, builder, processes)
    return text, decoder, builder


def _meta(
    path: Path, hint: RankHint, known: Properties, text: EventText, decoder: EventDecoder, spans: pd.DataFrame
) -> RankMeta:
    notes = []
    if text.file.is_damaged:
        notes.append("The file's packed data are damaged: what could be unpacked is used.")
    if text.is_truncated:
        notes.append(f"The file ends early: its {decoder.read:,} whole events are read.")
    if text.oversized:
        notes.append(f"Stretches of over {EVENT_BYTES_MOST >> 20} MiB without the end of an event are left out.")
    if text.beyond:
        notes.append(f"{text.beyond} events after the end of the list of events are left out.")
    return RankMeta(
        rank=hint.rank if known.rank is None else known.rank,
        rank_source=hint.source if known.rank is None else "distributedInfo",
        files=(printable(path.name),),
        format="kineto",
        world_size=known.world_size,
        trace_id=known.trace_id,
        groups=known.groups,
        versions=known.versions,
        capture_start_ns=None if spans.empty else int(array_of(spans, "start_ns").min()),
        capture_end_ns=None if spans.empty else int(array_of(spans, "end_ns").max()),
        is_truncated=text.is_truncated,
        events_skipped=decoder.skipped + text.beyond + text.oversized,
        notes=tuple(notes),
    )


def _one_per_device(
    meta: RankMeta,
    known: Properties,
    builder: TableBuilder,
    host_ops: pd.DataFrame,
    ops: pd.DataFrame,
    rules: KindRules,
) -> Iterator[RankTrace]:
    notes, comm_args = frame_of(builder, "graph_notes"), _with_all_ranks(frame_of(builder, "comm_args"), known.groups)
    held = {"gpu_ops": ops, "comm_args": comm_args, "host_ops": host_ops}
    held |= {name: frame_of(builder, name) for name in ("api_calls", "ranges", "frames", "stream_waits", "counters")}
    devices: list[int | None] = [*ops["device"].value_counts().index] if len(ops) else [None]
    # A job of one process drives all the GPUs that it uses: each is a rank then.
    if known.rank is not None and known.world_size != 1 and len(devices) > 1 and not _drives_the_world(known, ops):
        others = int((ops["device"] != devices[0]).sum())
        meta = replace(meta, notes=(*meta.notes, f"{others} operations on other GPUs than this rank's are left out."))
        devices = devices[:1]
    ranks = list(enumerate(sorted(devices, key=lambda device: device or 0)))
    del host_ops, ops, comm_args
    for index, device in ranks:
        gpu = known.device(device)
        of_rank = replace(
            meta,
            rank=meta.rank + index,
            rank_source=DEVICE_ORDER if len(ranks) > 1 else meta.rank_source,
            device=None if device is None else int(device),
            device_name=gpu.name or None,
            device_bytes=gpu.totalGlobalMem or None,
            multiprocessors=gpu.numSms,
            devices_seen=sum(bool(each.name) for each in known.devices) or None,
        )
        own = _of_device(held, device)
        process_ops = held["gpu_ops"]["correlation"]
        if index == len(ranks) - 1:
            held.clear()  # what is analysed then has its own, sorted
        trace = trace_of(of_rank, own, process_ops, rules)
        del process_ops
        yield with_annotations(trace, notes) if len(notes) else trace


def _of_device(held: Mapping[str, pd.DataFrame], device: int | None) -> dict[str, pd.DataFrame]:
    """Tables of one GPU of the process: its operations, and what the host did."""
    own = {name: _where(table, _rows_of(table, device)) for name, table in held.items()}
    return own | {"comm_args": args_of_kept_ops(held["comm_args"], _rows_of(held["gpu_ops"], device))}


def _drives_the_world(known: Properties, ops: pd.DataFrame) -> bool:
    """Whether the job's first process runs kernels on as many GPUs as the job has ranks, on all of them about as many.

    `nn.DataParallel` in a script that torchrun started with a process for each GPU: the others do nothing.
    """
    kernels = ops.loc[(ops["activity"] == "kernel").to_numpy(dtype=bool), "device"].value_counts()
    return known.rank == 0 and len(kernels) == known.world_size and 2 * kernels.min() >= kernels.max()


def _with_all_ranks(comm_args: pd.DataFrame, groups: tuple[ProcessGroup, ...]) -> pd.DataFrame:
    """The arguments with their groups' ranks in full: PyTorch writes 30 of them (`0, 1, ..., 63`), or none."""
    if comm_args.empty:
        return comm_args
    ranks = {group.name: ",".join(map(str, group.ranks)) for group in groups if group.ranks}
    pairs, of_row = pairs_of(comm_args["group_ranks"].array, comm_args["group"].array)
    texts = [ranks.get(group, text) if text is None or CUT_LIST in text else text for text, group in pairs]
    return with_columns(comm_args, group_ranks=texts_as_category(texts).take(of_row))


def _rows_of(frame: pd.DataFrame, device: int | None) -> np.ndarray:
    if device is None or "device" not in frame:
        return np.ones(len(frame), dtype=bool)
    rows: np.ndarray = (whole_of(frame, "device") == device) & frame["device"].notna().to_numpy()
    return rows


def _where(frame: pd.DataFrame, mask: np.ndarray) -> pd.DataFrame:
    return frame if mask.all() else rows_where(frame, mask)
