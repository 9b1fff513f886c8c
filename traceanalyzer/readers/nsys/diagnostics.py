"""What the capture lacks, in sentences of our own: its diagnostics name files and processes."""

import re

import numpy as np
import pandas as pd

from traceanalyzer.model.schema import NONE
from traceanalyzer.readers.nsys.api import RUNTIME
from traceanalyzer.readers.nsys.gpu_ops import GPU_TABLES, GRAPH, KERNEL
from traceanalyzer.readers.nsys.ids import process_of
from traceanalyzer.readers.nsys.nccl import Nccl
from traceanalyzer.readers.nsys.nvtx import NVTX, Nvtx
from traceanalyzer.readers.nsys.session import Session
from traceanalyzer.readers.nsys.source import Source, int_values, text_values

DIAGNOSTICS = "DIAGNOSTIC_EVENT"
_ERROR = 3

_DROPPED = re.compile(
    r"(?<!\d)(\d{1,15})[^.\d]*\b(?:dropped|lost)\b|\b(?:dropped|lost)\b[^.\d]*(\d{1,15})(?!\d)", re.IGNORECASE
)


def notes_of_export(source: Source, session: Session, nvtx: Nvtx, nccl: Nccl, placeless: int) -> tuple[str, ...]:
    """Sentences that hold for every rank of the export, of whose operations `placeless` are left out."""
    lost = (_NO_PLACE.format(count=placeless),) if placeless else ()
    return lost + tuple(_absences(source, session, nvtx)) + tuple(_nccl_notes(nccl)) + tuple(_said(source))


def plain_diagnostic(text: str | None) -> str:
    """A diagnostic with nothing in it but what is read of it."""
    match = _DROPPED.search(text or "")
    return f"{match[1] or match[2]} dropped" if match else ""


def dropped_events(source: Source) -> dict[int, int]:
    """Events that were dropped, by process; those of no process count for all, under -1."""
    rows = source.read(DIAGNOSTICS, ints=("globalPid",), texts=("text",))
    pids = int_values(rows, "globalPid")
    processes = np.where(pids < 0, NONE, process_of(pids)).tolist()
    dropped: dict[int, int] = {}
    for process, text in zip(processes, text_values(rows, "text"), strict=True):
        if match := _DROPPED.search(text):
            dropped[process] = dropped.get(process, 0) + int(match[1] or match[2])
    return dropped


def notes_of_rank(gpu_ops: pd.DataFrame) -> tuple[str, ...]:
    """Sentences on one rank's operations."""
    graphs = gpu_ops[(gpu_ops["activity"] == "graph").to_numpy()]
    if graphs.empty:
        return ()
    busy_ns = int((graphs["end_ns"] - graphs["start_ns"]).sum())
    return (_WHOLE_GRAPHS.format(count=len(graphs), busy_ms=busy_ns / 1e6),)


_WHOLE_GRAPHS = (
    "{count} CUDA graph launches ({busy_ms:.3f} ms) were recorded whole: the GPU was busy, with what is "
    "unknown: compute, communication and copies of windows that they run in are n/a. Capture with "
    "--cuda-graph-trace=node to see what ran inside."
)
_DAMAGED = "The export's table {table} is damaged: what it holds is missing from the figures; export the report again."
_NO_CLOCK = "The export has no UTC start, so its times cannot be compared with those of other reports."
_NO_API = (
    "The export has no CUDA API calls: launches, steps and causes of idle time are not available; "
    "capture with --trace=cuda,nvtx."
)
_NO_PROCESS = (
    "The export does not say which process its GPU operations belong to (no globalPid): which call launched which is "
    "not known, so that there are no steps, sizes or causes of idle time; export the report again with a newer nsys."
)
_NO_PLACE = (
    "{count} GPU operations of the export do not say which GPU or process they are of, and are left out: ranks are "
    "busier than is shown; export the report again."
)
_NO_NVTX = (
    "The export has no NVTX ranges: steps, phases and NCCL's calls are not available; capture with --trace=cuda,nvtx."
)
_OPEN = (
    "{count} NVTX {have} no end, being open when the capture ended or never closed: each ends where the next of its "
    "name, numbers apart, begins on its thread, else with the capture's last range."
)
_NO_OPERATORS = (
    "The export has no PyTorch operators: where the program is PyTorch's, run the steps inside "
    "torch.autograd.profiler.emit_nvtx() to have them."
)
_NO_KERNELS = "The export has no kernels: only copies and memsets are known."
_NO_PAYLOADS = (
    "NCCL's ranges carry no payload, so sizes and bandwidths are not available; "
    "nsys export --include-blobs=true brings it."
)
_SOME_PAYLOADS = (
    "The size of {missing} of {calls} NCCL calls is not known: the payload is absent, or states one rank's share "
    "and ncclCommInit, which states the number of ranks, lies outside the capture."
)
_INFERRED_SIZES = (
    "The sizes of {inferred} of {calls} NCCL calls are inferred: ncclCommInit, which states how many ranks a "
    "communicator has, lies outside the capture; each is taken to have the ranks of this report that call it."
)


def _absences(source: Source, session: Session, nvtx: Nvtx) -> list[str]:
    tables = source.tables
    absent = {
        _NO_CLOCK: not session.has_clock,
        _NO_API: RUNTIME not in tables,
        _NO_PROCESS: KERNEL in tables and not any("globalPid" in source.columns(table) for table in GPU_TABLES),
        _NO_NVTX: NVTX not in tables,
        _NO_OPERATORS: NVTX in tables and nvtx.operators.empty,
        _NO_KERNELS: not {KERNEL, GRAPH} & tables,
    }
    notes = [_DAMAGED.format(table=table) for table in sorted(source.damaged)]
    notes += [sentence for sentence, is_true in absent.items() if is_true]
    if nvtx.open_ranges:
        notes.append(_OPEN.format(count=nvtx.open_ranges, have="range has" if nvtx.open_ranges == 1 else "ranges have"))
    return notes


def _nccl_notes(nccl: Nccl) -> list[str]:
    if nccl.calls.empty:
        return []
    if not nccl.has_payloads:
        return [_NO_PAYLOADS]
    missing = int(nccl.calls["size_bytes"].isna().sum())
    calls = len(nccl.calls)
    notes = [_SOME_PAYLOADS.format(missing=missing, calls=calls)] if missing else []
    return [*notes, *([_INFERRED_SIZES.format(inferred=nccl.inferred, calls=calls)] if nccl.inferred else [])]


def _said(source: Source) -> list[str]:
    """Errors only: that "not all events might have been collected" stands in every report that an API call ended."""
    errors = int((int_values(source.read(DIAGNOSTICS, ints=("severity",)), "severity", 0) == _ERROR).sum())
    if not errors:
        return []
    return [f"The report holds {errors} diagnostics of level error: open it in Nsight Systems to read them."]
