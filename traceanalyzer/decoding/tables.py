"""Which Kineto event goes into which table, what of it becomes which column, and large files in several processes."""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from traceanalyzer import kinds
from traceanalyzer.decoding.columns import (
    MEMORY,
    SEPARATOR,
    Args,
    Columns,
    Complete,
    ExactComplete,
    Instant,
    Sample,
    add_memory,
    add_samples,
    as_list,
    extent,
    first_of,
    launch_fact,
    number_in,
)
from traceanalyzer.decoding.stream import (
    API_CALLS,
    FOREIGN,
    OUT_OF_TREE,
    EventDecoder,
    Origin,
    origins_of_calls,
    origins_of_operations,
)
from traceanalyzer.execution import Pool, quiet_pool
from traceanalyzer.meaning.names import runtime_activity

_NO_ARGS = Args()

_COMPLETE = (Complete, ExactComplete)

_ACTIVITY = {"kernel": "kernel", "gpu_memcpy": "memcpy", "memcpy": "memcpy", "gpu_memset": "memset", "memset": "memset"}

_API_CALLS = ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime")
"""Calls of the GPU's runtime and driver; ROCm writes CUDA's category."""

_COMM_HOST_OP = "record_param_comms"

_STEP = "ProfilerStep"

_COLLECT = "<built-in function collect>"

GARBAGE = "gc.collect"
"""Frame of Python's garbage collection; its own name tells nobody of what."""

_STREAM_WAIT = "Stream Wait Event"

_PLAIN_COPY = "Memcpy"

_NEEDS_ARGUMENTS = re.compile(r"attention|attn|conv", re.IGNORECASE)


@dataclass(slots=True)
class TableBuilder:
    """Collects the events of one file.

    Attributes:
        base_ns: added to every time of a frame; a file may say it after its events.
        foreign: how many events there are of each category of `FOREIGN` or `OUT_OF_TREE`, and of none, "".
        called: how many calls of other devices' runtimes there are, by category.
        origins: the processes that the events are of.
    """

    base_ns: int = 0
    foreign: Counter[str] = field(default_factory=Counter)
    called: Counter[str] = field(default_factory=Counter)
    origins: set[Origin] = field(default_factory=set)
    _columns: dict[str, Columns] = field(default_factory=dict)

    def add(self, events: list[Any]) -> None:
        """Take the events of one chunk, in any order."""
        by_category: dict[str, list[Any]] = defaultdict(list)
        memory, samples = [], []
        for event in events:
            if type(event) in _COMPLETE:
                by_category[event.cat].append(event)
            elif type(event) is Sample:
                samples.append(event)
            elif type(event) is Instant and event.name == MEMORY:
                memory.append(event)
        for category, group in by_category.items():
            self._take(category.lower(), group)
        if memory:
            add_memory(self.table("counters"), memory, _threads(memory))
        if samples:
            add_samples(self.table("counters"), samples)

    def _take(self, category: str, events: list[Any]) -> None:
        is_of_others = bool(API_CALLS.match(category)) and category not in _ADD
        add = _add_api_calls if is_of_others else _ADD.get(category)
        if is_of_others:
            self.called[category] += len(events)
        self.origins |= origins_of_calls(category, events)
        if add:
            add(self, category, events)
        elif category in FOREIGN or not category or category.startswith(OUT_OF_TREE):
            self.foreign[category] += len(events)

    def merge(self, later: "TableBuilder") -> None:
        """Take what was collected from the events that follow."""
        rows_before = {"gpu_op": self.table("gpu_ops").rows}
        for name, columns in later._columns.items():  # noqa: SLF001 - of its own class
            self.table(name).merge(columns, rows_before)
        self.foreign.update(later.foreign)
        self.called.update(later.called)
        self.origins |= later.origins

    def table(self, name: str) -> Columns:
        """A table to add rows to."""
        return self._columns.setdefault(name, Columns())

    def holds(self, name: str) -> bool:
        """Whether anything has been collected for a table and is not handed over yet."""
        return bool(self.table(name).rows)

    def taken(self, name: str) -> Columns:
        """What has been collected for a table; it is handed over, so ask for it once."""
        return self._columns.pop(name, Columns())


def _add_gpu_ops(builder: TableBuilder, category: str, events: list[Any]) -> None:
    args = [event.args or _NO_ARGS for event in events]
    builder.origins |= origins_of_operations(events)
    table = builder.table("gpu_ops")
    first_row = table.rows
    table.times(events)
    names = [event.name if event.name != _PLAIN_COPY else _copied(arg) for event, arg in zip(events, args, strict=True)]
    table.texts("name", names)
    activity = {name: runtime_activity(name) or _ACTIVITY[category] for name in set(names)}
    table.texts("activity", [activity[name] for name in names])
    _add_places(table, events, args)
    table.fields(args, correlation="correlation", bytes="size_bytes")
    table.integers("peer_device", [_peer(arg) for arg in args])
    table.integers("graph_node", [arg.graph_node or None for arg in args])
    table.joined_texts(("grid", "block"), [SEPARATOR.join((arg.grid, arg.block)) for arg in args], extent)
    facts = [SEPARATOR.join((a.registers, a.occupancy_pct, a.occupancy, a.priority, a.channel)) for a in args]
    table.joined_texts(("registers", "occupancy_pct", "limiting_factors", "priority", "channel"), facts, launch_fact)
    _add_notes(builder, args)
    described = [row for row, arg in enumerate(args) if arg.collective is not None]
    if described:
        _add_comm_args(builder, [events[row] for row in described], [first_row + row for row in described])


def _copied(args: Args) -> str:
    """A copy's name as Kineto writes it; Cuspy, PyTorch's own collector, tells direction and memories in arguments."""
    ends = (str(one).capitalize().removesuffix("_static") for one in (args.source_memory, args.target_memory))
    return f"{_PLAIN_COPY} {args.copy} ({' -> '.join(ends)})" if args.copy else _PLAIN_COPY


def _add_notes(builder: TableBuilder, args: list[Args]) -> None:
    """Names that the program gave to the nodes of its graphs, as `torch.cuda`'s annotations write them."""
    held = [arg for arg in args if arg.graph_node and (arg.note or arg.module)]
    if held:
        table = builder.table("graph_notes")
        table.fields(held, graph_node="graph_node", correlation="correlation")
        table.texts("annotation", [arg.note or arg.module for arg in held])
        table.rows += len(held)


def _add_api_calls(builder: TableBuilder, _category: str, events: list[Any]) -> None:
    table = _add_spans(builder, "api_calls", events)
    args = [event.args or _NO_ARGS for event in events]
    table.fields(args, correlation="correlation")
    table.texts("kernel", [arg.kernel for arg in args])


def _add_host_ops(builder: TableBuilder, category: str, events: list[Any]) -> None:
    names = [event.name for event in events]
    distinct = set(names)
    if any(name.startswith(_STEP) for name in distinct):  # old profilers wrote steps among the operators
        steps = [event for event in events if event.name.startswith(_STEP)]
        events = [event for event in events if not event.name.startswith(_STEP)]
        names = [event.name for event in events]
        _add_ranges(builder, category, steps)
    args = [event.args or _NO_ARGS for event in events]
    table = _add_spans(builder, "host_ops", events)
    table.fields(args, external_id="external_id", sequence="op_sequence", forward_thread="forward_thread")
    signatures = [SEPARATOR.join((arg.shapes or arg.old_shapes, arg.strides, arg.dtypes)) for arg in args]
    table.joined_texts(("shapes", "strides", "dtypes"), signatures)
    # Of operators whose work the shapes alone do not tell; of others arguments are many and unused.
    described = {*filter(_NEEDS_ARGUMENTS.search, distinct)}
    told = [bytes(arg.arguments) if name in described else None for name, arg in zip(names, args, strict=True)]
    table.texts("arguments", told)
    # "wait" and other bookkeeping are recorded under the same name, but move no data.
    comms = [
        event
        for event in events
        if event.name == _COMM_HOST_OP and event.args and kinds.collective(event.args.collective)
    ]
    if comms:
        _add_comm_args(builder, comms, [-1] * len(comms))


def _add_ranges(builder: TableBuilder, _category: str, events: list[Any]) -> None:
    table = _add_spans(builder, "ranges", events)
    table.integers("size_bytes", [_cpu_collective_bytes(event) for event in events])


def _cpu_collective_bytes(event: Any) -> int | None:
    """Bytes of the inputs of the CPU's annotation of a collective; `None` of other ranges, and without shapes."""
    if event.args is None or not event.name.startswith(kinds.CPU_BACKENDS):
        return None
    shapes, dtypes = (bytes(text).decode(errors="replace") for text in (event.args.shapes, event.args.dtypes))
    return kinds.inputs_bytes(shapes, dtypes)


def _add_frames(builder: TableBuilder, _category: str, events: list[Any]) -> None:
    # Built-in functions are half of all frames and never a module or a source line; collecting garbage is a cause.
    kept = [event for event in events if not event.name.startswith("<built-in ") or event.name == _COLLECT]
    table = builder.table("frames")
    table.times(kept)
    table.texts("name", [GARBAGE if event.name == _COLLECT else event.name for event in kept])
    table.integers("thread", _threads(kept))


def _add_stream_waits(builder: TableBuilder, _category: str, events: list[Any]) -> None:
    events = [event for event in events if event.name == _STREAM_WAIT]
    args = [event.args or _NO_ARGS for event in events]
    table = builder.table("stream_waits")
    table.times(events)
    _add_places(table, events, args)
    # -1 is Kineto's own word for a source that it could not find.
    sources = [arg.source_stream for arg in args]
    table.integers("source_stream", [None if source is None or source < 0 else source for source in sources])
    table.fields(args, record_correlation="record_correlation")


def _add_spans(builder: TableBuilder, name: str, events: list[Any]) -> Columns:
    """The table with the events' times, names and threads."""
    table = builder.table(name)
    table.times(events)
    table.texts("name", [event.name for event in events])
    table.integers("thread", _threads(events))
    return table


_ADD: dict[str, Callable[[TableBuilder, str, list[Any]], None]] = {
    **dict.fromkeys(_ACTIVITY, _add_gpu_ops),
    **dict.fromkeys(_API_CALLS, _add_api_calls),
    "cpu_op": _add_host_ops,
    "operator": _add_host_ops,
    "user_annotation": _add_ranges,
    "python_function": _add_frames,
    "cuda_sync": _add_stream_waits,
    "trace": lambda builder, _, events: builder.table("spans").times(events),
}
"""By category in lower case; old profilers wrote `Kernel`, `Memcpy`, `Runtime`, `Operator`."""


def _add_comm_args(builder: TableBuilder, events: list[Any], gpu_ops: list[int]) -> None:
    args: list[Args] = [event.args for event in events]
    collectives = [kinds.collective(arg.collective) for arg in args]
    table = builder.table("comm_args")
    table.times(events)
    table.integers("gpu_op", gpu_ops)
    table.integers("thread", _threads(events))
    table.texts("collective", collectives)
    for name in ("external_id", "group_size", "in_elements", "out_elements"):
        table.integers(name, [getattr(arg, name) for arg in args])
    table.integers("sequence", [_call_number(arg) for arg in args])
    for name in ("group", "group_description", "dtype"):
        table.texts(name, [getattr(arg, name) for arg in args])
    for name in ("group_ranks", "in_split", "out_split"):
        table.texts(name, [as_list(getattr(arg, name)) for arg in args])
    # The host argument `Rank` of a rooted collective is its root, not the caller; elsewhere it says nothing.
    table.integers(
        "root", [arg.rank if name in kinds.ROOTED else None for arg, name in zip(args, collectives, strict=True)]
    )
    table.integers("peer", [_place_of_peer(arg) for arg in args])


def _call_number(args: Args) -> int | None:
    """PyTorch's id of a call, 64 bits that are the same on all its ranks; else its number within the group."""
    call_id = str(args.comms_id)
    return int(call_id) % 2**62 if call_id.isdecimal() else args.sequence


def _add_places(table: Columns, events: list[Any], args: list[Args]) -> None:
    """GPU and stream; a peer-to-peer copy names its own GPU as `inDevice`, old traces only in `pid`."""
    pairs = list(zip(events, args, strict=True))
    table.integers(
        "device",
        [
            first_of(arg.in_device, event.pid if isinstance(event.pid, int) else None)
            if arg.device is None
            else arg.device
            for event, arg in pairs
        ],
    )
    table.integers("stream", [number_in(event.tid) if arg.stream is None else arg.stream for event, arg in pairs])


def _peer(args: Args) -> int | None:
    if args.to_device is None or args.from_device is None:
        return None
    return args.to_device if args.from_device == args.in_device else args.from_device


def _threads(events: list[Any]) -> list[int]:
    threads = [event.tid for event in events]
    return threads if set(map(type, threads)) <= {int} else [number_in(thread) for thread in threads]


def _place_of_peer(args: Args) -> int | None:
    """The peer's position in its group, as other profilers write it; PyTorch writes its global rank."""
    peer = first_of(args.target_rank, args.source_rank)
    ranks = (as_list(args.group_ranks) or "").split(",")
    return ranks.index(str(peer)) if str(peer) in ranks else peer


# A large file's chunks, decoded in several processes; the tables are those of one process, bit for bit.


CHUNKS_A_BATCH = 16

WORTH_BYTES = 160 << 20
"""Text from which on workers save more than their start takes."""

_BATCHES_A_WORKER = 2
"""That are read before they are asked for, the one that it is at among them."""

Decoded = tuple[TableBuilder, EventDecoder]
"""The tables of a batch, and what decoded it."""


def decode_all(chunks: Iterable[bytes], decoder: EventDecoder, builder: TableBuilder, processes: int) -> None:
    """Decode all chunks into `builder`; what could not be decoded is counted in `decoder`."""
    rest = iter(chunks)
    for chunk in rest:
        builder.add(decoder.decode(chunk))
        # The first chunk with events tells for the whole file how its times are written.
        if processes > 1 and decoder.needs_exact is not None:
            break
    if decoder.needs_exact is None or processes == 1:
        return
    with quiet_pool(processes) as pool:
        for tables, own in _in_order(pool, rest, processes * _BATCHES_A_WORKER, bool(decoder.needs_exact)):
            builder.merge(tables)
            decoder.merge(own)


def _in_order(pool: Pool, chunks: Iterator[bytes], room: int, needs_exact: bool) -> Iterator[Decoded]:
    """Each batch's tables; no more batches than there is room for are read ahead."""
    waiting: deque[tuple[tuple[bytes, ...], Future[Decoded]]] = deque()
    while batch := tuple(islice(chunks, CHUNKS_A_BATCH)):
        waiting.append((batch, pool.submit(decoded, batch, needs_exact)))
        while waiting and (len(waiting) >= room or waiting[0][1].done()):
            yield _result(*waiting.popleft(), needs_exact)
    while waiting:
        yield _result(*waiting.popleft(), needs_exact)


def decoded(batch: tuple[bytes, ...], needs_exact: bool) -> Decoded:
    """A batch's tables."""
    decoder, builder = EventDecoder(needs_exact=needs_exact), TableBuilder()
    for chunk in batch:
        builder.add(decoder.decode(chunk))
    return builder, decoder


def _result(batch: tuple[bytes, ...], future: "Future[Decoded]", needs_exact: bool) -> Decoded:
    try:
        return future.result()
    except BrokenExecutor:  # the system ended a worker: what it had is done here
        return decoded(batch, needs_exact)
