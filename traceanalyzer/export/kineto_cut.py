"""A cut of a PyTorch-profiler trace: chosen ranks and steps, without what tells of the machine, for any other tool.

Kept events are the recorded ones, byte for byte, but for paths in their texts, of which file names stay.
"""

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from traceanalyzer.decoding.stream import PackedFile
from traceanalyzer.discovery.clustering import TraceFile
from traceanalyzer.errors import InputError
from traceanalyzer.files.bounds import BLOCK_BYTES
from traceanalyzer.loading import LoadOptions, read_capture
from traceanalyzer.model import RankTrace, Skipped
from traceanalyzer.model.schema import NONE

KEPT_KEYS = (
    "schemaVersion", "deviceProperties", "trace_id", "record_shapes", "profile_memory", "with_stack", "with_flops",
    "with_modules", "displayTimeUnit", "baseTimeNanoseconds", "cupti_version", "cuda_driver_version",
    "cuda_runtime_version", "roctracer_version", "hip_driver_version", "hip_runtime_version", "pytorch_version",
)  # fmt: skip
"""Of the keys beside the events: not the environment, the host, or what a user added."""

MADE_BY = b'"madeBy": "analyze-traces export --kineto"'
"""What each file says at its beginning."""

KEPT_OF_JOB = ("backend", "rank", "world_size", "pg_count", "pg_config", "nccl_version")

_PATH = re.compile(rb"""(?<![\w.<*&])(?:[A-Za-z]:)?[/](?:[^/\s"'()<>,;:*?|\\]+[/])+""")
"""The folders of an absolute path; a relative one, of a package's module, does not identify the machine."""

_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")


class _Args(msgspec.Struct, gc=False):
    correlation: Any = None


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = None
    name: Any = None
    ts: Any = 0
    dur: Any = 0
    id: Any = None
    args: _Args | None = None


def cut(capture: TraceFile, options: LoadOptions, folder: Path) -> list[Path]:
    """Write the chosen ranks of a file, `rank_<r>.pt.trace.json.gz` each; returns the files written.

    Raises:
        InputError: the file is none of the PyTorch profiler's, or damaged.
    """
    skipped: list[Skipped] = []
    traces = list(read_capture(capture, options, skipped))
    if skipped:
        raise InputError(f"{capture.path}: {skipped[0].why}")
    if any(trace.meta.is_truncated for trace in traces):
        raise InputError(f"{capture.path}: damaged, so no cut can be made of it: it ends before its events do")
    if any(trace.meta.format != "kineto" for trace in traces):
        raise InputError(f"{capture.path}: --kineto cuts traces of the PyTorch profiler; this is none")
    if not traces:
        return []
    with capture.whole() as whole:
        text = _text(whole)
    path = folder / f"rank_{traces[0].rank}.pt.trace.json.gz"
    with gzip.open(path, "wb", compresslevel=6) as file:
        file.writelines(_written(capture.path, text, traces))
    return [path]


def _text(path: Path) -> bytes:
    packed = PackedFile.open(path)
    with packed.file:
        return b"".join(iter(lambda: packed.read(BLOCK_BYTES), b""))


def _written(path: Path, text: bytes, traces: list[RankTrace]) -> Iterable[bytes]:
    try:
        rest = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        events = msgspec.json.decode(rest.get("traceEvents", b"[]"), type=list[msgspec.Raw])
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: damaged, so no cut can be made of it: {error}") from error
    known = {name: scrubbed(bytes(rest[name])) for name in KEPT_KEYS if name in rest}
    if "distributedInfo" in rest:
        job = msgspec.json.decode(rest["distributedInfo"])
        kept = {name: job[name] for name in KEPT_OF_JOB if name in job}
        known["distributedInfo"] = scrubbed(json.dumps(kept).encode())  # spaced as recorded: some tools search for that
    yield b"{\n" + MADE_BY + b",\n" + b"".join(b'"%s": %s,\n' % (name.encode(), value) for name, value in known.items())
    yield b'"traceEvents": [\n'
    base_ns = int(msgspec.json.decode(rest["baseTimeNanoseconds"])) if "baseTimeNanoseconds" in rest else 0
    parsed = [_parsed(event) for event in events]
    keeps = _kept(parsed, traces, base_ns)
    separator = b""
    for event, is_kept in zip(events, keeps, strict=True):
        if is_kept:
            yield separator + scrubbed(bytes(event))
            separator = b",\n"
    yield b"\n]}\n"


def scrubbed(text: bytes) -> bytes:
    """The text with the folders of absolute paths taken out."""
    return _PATH.sub(b"", text) if b"/" in text else text


def _parsed(event: msgspec.Raw) -> _Event:
    try:
        return msgspec.json.decode(event, type=_Event)
    except msgspec.MsgspecError:
        return _Event()


def _kept(events: list[_Event], traces: list[RankTrace], base_ns: int) -> np.ndarray:
    """Mask of the events to keep: those of the chosen steps, on the host and on the GPU, and what they need.

    That is what runs on the GPU in a step's window, whoever launched it, and of the step after it its range and first
    operation: without these its window would have no end.
    """
    if any(trace.window.steps is None for trace in traces):
        return np.ones(len(events), dtype=bool)
    starts = np.array([_ns(event.ts, base_ns) for event in events], dtype=np.int64)
    ends = starts + np.array([_ns(event.dur, 0) for event in events], dtype=np.int64)
    category = np.array([event.cat for event in events], dtype=object)
    correlation = np.array([_number(event.args.correlation) if event.args else NONE for event in events])
    phase = np.array([event.ph for event in events], dtype=object)
    on_gpu, on_host, wanted = _stretches(traces)
    is_gpu = np.isin(category, _ON_GPU)
    is_host = (phase == "X") & ~is_gpu & (category != "gpu_user_annotation")
    kept_host = is_host & touches(starts, ends, on_host)
    wanted |= set(correlation[kept_host & (correlation > 0)].tolist())
    kept: np.ndarray = kept_host | (is_gpu & (touches(starts, ends, on_gpu) | np.isin(correlation, list(wanted))))
    kept |= (category == "gpu_user_annotation") & touches(starts, ends, on_gpu)
    of_kept = correlation[kept & is_gpu & (correlation > 0)]
    kept |= is_host & np.isin(correlation, of_kept)
    kept |= (category == "Trace") | pd.isna(category) | (phase == "M")
    kept |= (phase == "i") & touches(starts, starts + 1, on_host)
    names = np.array([event.name if isinstance(event.name, str) else "" for event in events], dtype=object)
    kept |= (category == "user_annotation") & _next_ranges(names, starts, traces)
    ids = np.array([_number(event.id) for event in events])
    kept |= (category == "ac2g") & np.isin(ids, of_kept)
    kept |= _whole_arrows(category, phase, ids, touches(starts, starts + 1, on_host))
    return kept


def _stretches(traces: list[RankTrace]) -> tuple[np.ndarray, np.ndarray, set[int]]:
    """Of the chosen steps [start, end) on the GPU and on the host, and correlations of the operations to keep."""
    on_gpu, on_host = [], []
    wanted: set[int] = set()
    for trace in traces:
        chosen = trace.steps[trace.steps["step"].isin(trace.window.steps or ())]
        on_host += list(zip(chosen["host_start_ns"], chosen["host_end_ns"], strict=True))
        on_device = chosen.dropna(subset=["start_ns", "end_ns"])
        on_gpu += list(zip(on_device["start_ns"], on_device["end_ns"], strict=True))
        ops = trace.gpu_ops
        needed = trace.counted | ops["end_ns"].isin(on_device["start_ns"]).to_numpy()  # with their end a step may begin
        wanted |= set(ops["correlation"][needed].tolist()) - {NONE, 0}
    return np.array(on_gpu, dtype=np.int64).reshape(-1, 2), np.array(on_host, dtype=np.int64).reshape(-1, 2), wanted


def touches(starts: np.ndarray, ends: np.ndarray, stretches: np.ndarray) -> np.ndarray:
    """Mask of the intervals that share time with one of these [start, end)."""
    found = np.zeros(len(starts), dtype=bool)
    for first, last in stretches.tolist():
        found |= (starts < last) & (ends > first)
    return found


def _next_ranges(names: np.ndarray, starts: np.ndarray, traces: list[RankTrace]) -> np.ndarray:
    """The ranges of the steps that follow the chosen ones; times in the file are rounded to microseconds."""
    found = np.zeros(len(names), dtype=bool)
    for trace in traces:
        after = trace.steps[trace.steps["step"].shift(1).isin(trace.window.steps or ())]
        for name, begin in zip(after["name"].astype("str"), after["host_start_ns"], strict=True):
            found |= (names == name) & (np.abs(starts - begin) < 1000)
    return found


def _whole_arrows(category: np.ndarray, phase: np.ndarray, ids: np.ndarray, is_inside: np.ndarray) -> np.ndarray:
    """Arrows from forward to backward both ends of which are kept."""
    is_arrow = (category == "fwdbwd") & is_inside
    both = np.intersect1d(ids[is_arrow & (phase == "s")], ids[is_arrow & (phase == "f")])
    found: np.ndarray = is_arrow & np.isin(ids, both)
    return found


def _ns(value: Any, base_ns: int) -> int:
    try:
        return base_ns + round(float(value) * 1000)
    except (TypeError, ValueError, OverflowError):
        return NONE


def _number(value: Any) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 62 else NONE
