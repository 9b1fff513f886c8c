"""One process as rocprofv3 recorded it, and the ranks that it makes: one for each of its GPUs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from traceanalyzer.kinds import MEMORIES, KindRules, collective
from traceanalyzer.meaning.names import runtime_activity
from traceanalyzer.model import RankMeta, RankTrace, make_trace
from traceanalyzer.model.schema import NONE, printable
from traceanalyzer.model.tables import nullable
from traceanalyzer.readers.base import DEVICE_ORDER, RankHint

RCCL_DOMAIN = "RCCL"

ROCTX_DOMAIN = "roctx"

NO_GPU_OPS = "no GPU operations; record with rocprofv3 --kernel-trace --memory-copy-trace --hip-trace --marker-trace"

_DIRECTIONS = {"HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD", "HOST_TO_HOST": "HtoH"}

_NO_CLOCK = "Times count from the start of the machine: ranks of different machines have no common clock."


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU's number on its host, and its model."""

    number: int
    name: str | None


@dataclass(frozen=True, slots=True)
class ProcessTables:
    """Tables of one process; times are the profiler's own ns.

    Attributes:
        process: its id.
        gpus: by the profiler's agent id.
        kernels: `start_ns`, `end_ns`, `name`, `agent`, `stream`, `correlation`, `grid`, `block`.
        copies: `start_ns`, `end_ns`, `operation` (`MEMORY_COPY_HOST_TO_DEVICE`), `source`, `target` (agents), `bytes`,
            `stream`, `correlation`.
        calls: HIP API calls: `start_ns`, `end_ns`, `name`, `thread`, `correlation`.
        ranges: roctx ranges and RCCL's calls: `start_ns`, `end_ns`, `name`, `thread`, `domain`.
        start_ns: when the process began; with `end_ns` the length of the recording.
        end_ns: when it ended.
    """

    process: int | None
    gpus: Mapping[int, Gpu]
    kernels: pd.DataFrame
    copies: pd.DataFrame
    calls: pd.DataFrame
    ranges: pd.DataFrame
    start_ns: int | None = None
    end_ns: int | None = None


def traces(captures: list[ProcessTables], path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """A rank for each process and GPU with operations, in that order; none when there are no operations."""
    parts = [(capture, ops, agent) for capture in captures for ops, agent in _by_gpu(capture)]
    for index, (capture, ops, agent) in enumerate(parts):
        gpu = capture.gpus.get(agent, Gpu(agent, None))
        meta = RankMeta(
            rank=hint.rank + index,
            rank_source=hint.source if len(parts) == 1 else DEVICE_ORDER,
            files=(printable(path.name),),
            format="rocprofv3",
            device=gpu.number,
            device_name=gpu.name,
            process=capture.process,
            capture_start_ns=capture.start_ns,
            capture_end_ns=capture.end_ns,
            notes=_notes(capture),
        )
        yield make_trace(
            meta,
            process_ops=pd.concat([capture.kernels["correlation"], capture.copies["correlation"]]),
            rules=rules,
            gpu_ops=ops,
            api_calls=capture.calls,
            ranges=capture.ranges,
            comm_args=_comm_args(capture.ranges),
        )


def _by_gpu(capture: ProcessTables) -> list[tuple[pd.DataFrame, int]]:
    ops = pd.concat([_kernels(capture.kernels), _copies(capture)], ignore_index=True)
    ops = ops[ops["agent"].isin(list(capture.gpus))]
    numbers = {agent: capture.gpus[agent].number for agent in ops["agent"].unique()}
    return [(ops[ops["agent"] == agent], int(agent)) for agent in sorted(numbers, key=numbers.__getitem__)]


def _kernels(kernels: pd.DataFrame) -> pd.DataFrame:
    names = kernels["name"].astype("object")
    activity = {name: runtime_activity(name) or "kernel" for name in names.unique()}
    return kernels.assign(name=names, activity=names.map(activity))


def _copies(capture: ProcessTables) -> pd.DataFrame:
    """Copies named as PyTorch names them, with the GPU that they belong to: a peer copy's is the one that it reads."""
    copies = capture.copies
    words = copies["operation"].astype("object").str.removeprefix("MEMORY_COPY_")
    is_peer = (words == "DEVICE_TO_DEVICE") & (copies["source"] != copies["target"])
    direction = words.map(_DIRECTIONS).mask(is_peer, "PtoP")
    spelled = {way: f"Memcpy {way} ({MEMORIES[way[0]]} -> {MEMORIES[way[-1]]})" for way in direction.dropna().unique()}
    sizes = copies["bytes"].to_numpy()
    peer = copies["target"].map({agent: gpu.number for agent, gpu in capture.gpus.items()}).astype("Int64")
    return copies.assign(
        name=direction.map(spelled).astype("object").fillna("Memcpy"),
        activity="memcpy",
        bytes=nullable(sizes, sizes == NONE),
        agent=copies["target"].where(words == "HOST_TO_DEVICE", copies["source"]),
        peer_device=peer.where(is_peer),
    )


def extents(sizes: np.ndarray) -> pd.Categorical:
    """Rows of three sizes as `24x1x1`."""
    distinct, codes = np.unique(sizes.reshape(-1, 3), axis=0, return_inverse=True)
    names = ["x".join(map(str, row)) for row in distinct.tolist()]
    return pd.Categorical.from_codes(codes.reshape(-1), categories=pd.Index(names, dtype="str"))


def _comm_args(ranges: pd.DataFrame) -> pd.DataFrame:
    """RCCL's calls say which collective a kernel is; their sizes and communicators are not recorded."""
    own = ranges[(ranges["domain"] == RCCL_DOMAIN).to_numpy(dtype=bool)]
    names = own["name"].astype("object")
    found = names.map({name: collective(name) for name in names.unique()})
    calls = own[found.notna()]
    return calls[["start_ns", "end_ns", "thread"]].assign(gpu_op=NONE, collective=found.dropna().astype("category"))


def _notes(capture: ProcessTables) -> tuple[str, ...]:
    notes = [_NO_CLOCK]
    if capture.calls.empty:
        notes.append("HIP's API calls were not recorded (--hip-trace): no operation has a launch, idle has no cause.")
    if not (capture.ranges["domain"] != RCCL_DOMAIN).any():
        notes.append("No roctx ranges were recorded (--marker-trace): steps are not known.")
    return tuple(notes)
