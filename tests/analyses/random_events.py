"""Random small ranks as Kineto events, for tests that hold tables against slow implementations of their own.

Times are integers of ns; many fall together, so that events touch, nest, overlap and have no length.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.builders import NAMES, document, write
from traceanalyzer.kinds import KindRules
from traceanalyzer.readers import RankHint, kineto

Event = dict[str, Any]

COPIES = {
    "Memcpy HtoD (Pinned -> Device)": ("HtoD", "pinned", "device"),
    "Memcpy HtoD (Pageable -> Device)": ("HtoD", "pageable", "device"),
    "Memcpy DtoH (Device -> Pinned)": ("DtoH", "device", "pinned"),
    "Memcpy DtoD (Device -> Device)": ("DtoD", "device", "device"),
    "Memset (Device)": ("memset", None, None),
}
KERNELS = ("gemm", "add", NAMES["comm"])
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

MOMENT = st.one_of(st.integers(0, 30).map(lambda number: 5_000 * number), st.integers(0, 150_000), st.integers(0, 9))
LENGTH = st.one_of(st.sampled_from((0, 1, 4_999, 5_000, 20_000, 60_000)), st.integers(0, 40_000))
THREAD = st.sampled_from((1, 2))


class Host(NamedTuple):
    """An event of the host."""

    start: int
    end: int
    name: str
    thread: int
    cat: str


class Gpu(NamedTuple):
    """An operation; `launch` is the call that launched it."""

    start: int
    end: int
    name: str
    stream: int
    size: int | None
    launch: Host | None


@dataclass(frozen=True)
class Events:
    """A rank; `memory` has (time, allocated, reserved)."""

    gpu: tuple[Gpu, ...]
    host: tuple[Host, ...]
    memory: tuple[tuple[int, int, int], ...]

    def shifted(self, by: int) -> "Events":
        """All of it later by so many ns."""

        def moved(one: Any) -> Any:
            return one and one._replace(start=one.start + by, end=one.end + by)

        return replace(
            self,
            gpu=tuple(moved(op)._replace(launch=moved(op.launch)) for op in self.gpu),
            host=tuple(moved(event) for event in self.host),
            memory=tuple((time + by, *levels) for time, *levels in self.memory),
        )


@st.composite
def host_events(draw: st.DrawFn, names: tuple[str, ...], cat: str, most: int) -> list[Host]:
    """Events of two threads that nest, overlap or repeat, no two of a thread over the same stretch."""
    drawn = draw(st.lists(st.tuples(MOMENT, LENGTH, st.sampled_from(names), THREAD), max_size=most))
    found = {(thread, start, length): name for start, length, name, thread in drawn}
    return [Host(start, start + length, name, thread, cat) for (thread, start, length), name in found.items()]


@st.composite
def gpu_ops(draw: st.DrawFn) -> list[Gpu]:
    """Operations of any kind on any stream; no two begin together, so that what ends a gap is told."""
    drawn = draw(st.lists(
        st.tuples(MOMENT, LENGTH, st.sampled_from((*KERNELS, *COPIES)), st.integers(7, 9), LENGTH,
                  st.one_of(st.none(), st.tuples(LENGTH, LENGTH, THREAD))),
        min_size=1, max_size=10, unique_by=lambda one: one[0],
    ))  # fmt: skip
    ops = []
    for start, length, name, stream, size, launch in drawn:
        call = None
        if launch is not None:
            before, lasts, thread = launch
            what = (
                "cudaMemsetAsync" if "Memset" in name else "cudaMemcpyAsync" if name in COPIES else "cudaLaunchKernel"
            )
            call = Host(start - before, start - before + lasts, what, thread, "cuda_runtime")
        ops.append(Gpu(start, start + length, name, stream, size if name in COPIES else None, call))
    return ops


RANKS = st.builds(
    lambda gpu, operators, syncs, loading, memory: Events(
        tuple(gpu), (*operators, *syncs, *loading), tuple((time, now, now + more) for time, now, more in memory)
    ),
    gpu_ops(),
    host_events(("aten::a", "aten::b", "aten::c"), "cpu_op", 9),
    host_events(("cudaDeviceSynchronize", "cudaMalloc"), "cuda_runtime", 3),
    host_events((LOADER, "mine"), "user_annotation", 3),
    st.lists(st.tuples(MOMENT, st.integers(0, 999), st.integers(0, 99)), max_size=12),
)


def kineto_events(rank: Events) -> list[Event]:
    """As the profiler writes them."""
    found: list[Event] = [_host(event) for event in rank.host]
    for number, op in enumerate(rank.gpu, 1):
        cat = "gpu_memset" if "Memset" in op.name else "gpu_memcpy" if op.name in COPIES else "kernel"
        told = {} if op.size is None else {"bytes": op.size}
        args = {"device": 0, "stream": op.stream, "correlation": number, **told}
        found.append({**_spent(op), "cat": cat, "name": op.name, "pid": 0, "tid": op.stream, "args": args})
        if op.launch:
            found.append(_host(op.launch, correlation=number))
    for time, allocated, reserved in rank.memory:
        args = {"Addr": 64, "Total Allocated": allocated, "Total Reserved": reserved, "Device Id": 0, "Device Type": 1}
        found.append({"ph": "i", "name": "[memory]", "ts": time / 1000, "pid": 100, "tid": 1, "args": args})
    return found


def _host(event: Host, **args: int) -> Event:
    return {**_spent(event), "cat": event.cat, "name": event.name, "pid": 100, "tid": event.thread, "args": args}


def _spent(event: Host | Gpu) -> Event:
    return {"ph": "X", "ts": event.start / 1000, "dur": (event.end - event.start) / 1000}


def read(folder, events: Iterable[Event], rank: int = 0, base_ns: int = 0):
    """The trace of one rank, from a file."""
    path = write(folder / "a.json", document(list(events), base_ns=base_ns))
    (trace,) = kineto.read(path, RankHint(rank, "path"), KindRules())
    return trace


def pieces(moments: Iterable[int]) -> Iterable[tuple[int, int]]:
    """The stretches between moments: inside one nothing begins or ends."""
    return pairwise(sorted(set(moments)))


def runs(event: Any, piece: tuple[int, int]) -> bool:
    """Whether the event fills the piece."""
    return event.start <= piece[0] and piece[1] <= event.end
