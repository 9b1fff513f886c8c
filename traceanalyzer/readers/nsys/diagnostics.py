"""What the capture lacks, in sentences of our own: its diagnostics name files and processes, and are never copied."""

import re

import pandas as pd

from traceanalyzer.readers.nsys.api import RUNTIME
from traceanalyzer.readers.nsys.gpu_ops import GRAPH, KERNEL
from traceanalyzer.readers.nsys.nccl import Nccl
from traceanalyzer.readers.nsys.nvtx import NVTX, Nvtx
from traceanalyzer.readers.nsys.session import Session
from traceanalyzer.readers.nsys.source import Source, int_values, text_values

_EVENTS = "DIAGNOSTIC_EVENT"
_ERROR = 3

_INCOMPLETE = re.compile(r"Not all (\w+) events might have been collected", re.IGNORECASE)
_DROPPED = re.compile(r"(\d+)[^.\d]*\b(?:dropped|lost)\b|\b(?:dropped|lost)\b[^.\d]*(\d+)", re.IGNORECASE)


def notes_of_export(source: Source, session: Session, nvtx: Nvtx, nccl: Nccl) -> tuple[str, ...]:
    """Sentences that hold for every rank of the export."""
    return tuple(_absences(source, session, nvtx)) + tuple(_nccl_notes(nccl)) + tuple(_said(source))


def notes_of_rank(gpu_ops: pd.DataFrame) -> tuple[str, ...]:
    """Sentences on one rank's operations."""
    graphs = int((gpu_ops["activity"] == "graph").sum())
    if not graphs:
        return ()
    busy = int((gpu_ops["end_ns"] - gpu_ops["start_ns"])[(gpu_ops["activity"] == "graph").to_numpy()].sum())
    return (
        f"{graphs} CUDA graph launches ({busy / 1e6:.3f} ms) were recorded whole: the GPU was busy, with what is "
        "unknown. They count as compute here although they may hold communication and copies, so compute may be too "
        "high and communication and overlap too low; capture with --cuda-graph-trace=node for what ran inside.",
    )


def _absences(source: Source, session: Session, nvtx: Nvtx) -> list[str]:
    notes = []
    if not session.has_clock:
        notes.append(
            "The export has no UTC start (TARGET_INFO_SESSION_START_TIME): its times cannot be compared with other reports'."
        )
    if RUNTIME not in source.tables:
        notes.append(
            "No CUDA API calls in the export: launches, steps and causes of idle time are not available; "
            "capture with --trace=cuda,nvtx."
        )
    if NVTX not in source.tables:
        notes.append("No NVTX ranges in the export: steps, phases and NCCL's calls are not available; "
                     "capture with --trace=cuda,nvtx.")  # fmt: skip
    elif not len(nvtx.operators):
        notes.append(
            "No PyTorch operators in the export: run the steps inside torch.autograd.profiler.emit_nvtx() to have them."
        )
    if nvtx.open_ranges:
        notes.append(
            f"{nvtx.open_ranges} NVTX ranges were still open when the capture ended; their end is the last range's."
        )
    if KERNEL not in source.tables and GRAPH not in source.tables:
        notes.append("No kernels in the export: only copies and memsets are known.")
    return notes


def _nccl_notes(nccl: Nccl) -> list[str]:
    if len(nccl.calls) and not nccl.has_payloads:
        return [
            "NCCL's ranges carry no payload, so sizes and bandwidths are not available; export again with "
            "nsys export --include-blobs=true to have them."
        ]
    missing = int((nccl.calls["size_bytes"].isna()).sum()) if len(nccl.calls) else 0
    if missing:
        return [
            f"The size of {missing} of {len(nccl.calls)} NCCL calls is not known: the payload is absent, or states one "
            "rank's share of a communicator whose ncclCommInit lies outside the capture."
        ]
    return []


def _said(source: Source) -> list[str]:
    rows = source.read(_EVENTS, ints=("severity",), texts=("text",))
    texts = text_values(rows, "text")
    notes = []
    kinds = sorted({match[1] for text in texts if (match := _INCOMPLETE.search(text))})
    if kinds:
        notes.append(f"Nsight Systems warns that not all {' and '.join(kinds)} events may have been collected.")
    dropped = [int(match[1] or match[2]) for text in texts if (match := _DROPPED.search(text))]
    if sum(dropped):
        notes.append(f"Nsight Systems dropped {sum(dropped)} events: times and counts are too low.")
    errors = int((int_values(rows, "severity", 0) == _ERROR).sum())
    if errors:
        notes.append(f"The report holds {errors} diagnostics of level error: open it in Nsight Systems to read them.")
    return notes
