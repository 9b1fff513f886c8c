"""A large file decoded in several processes."""

import gc
import os
import pickle
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from queue import Full, Queue
from threading import Event, Thread

from traceanalyzer.decoding.decoder import EventDecoder
from traceanalyzer.decoding.stream import EventText, PackedFile, Stretch, text_of
from traceanalyzer.decoding.tables import TableBuilder
from traceanalyzer.errors import NotATraceError
from traceanalyzer.forks import Shared, aside, can_fork
from traceanalyzer.processes import Pool, Sent, quiet_pool

# A large file's chunks, decoded in several processes; the tables are those of one process, bit for bit.
#
# A packed file is read and unpacked ahead in a thread; of a plain one the thread looks where it can be cut, and whoever
# decodes a piece reads it. This process decodes too: it takes each batch that no worker has room for, among them those
# that come while the workers start. Batches are merged in the file's order.


Chunk = bytes | Stretch

CHUNKS_A_BATCH = 16

WORTH_BYTES = 160 << 20
"""Text from which on workers save more than their start takes."""

_AHEAD = 32
"""Chunks that are read before they are asked for."""

_QUEUED_A_WORKER = 2
"""Batches that wait for each worker, the one that it is at among them."""

Decoded = tuple[TableBuilder, EventDecoder]
"""The tables of a batch, and what decoded it."""


def decode_all(chunks: Iterable[Chunk], decoder: EventDecoder, builder: TableBuilder, processes: int) -> None:
    """Decode all chunks into `builder`; what could not be decoded is counted in `decoder`."""
    if processes == 1:
        for chunk in chunks:
            builder.add(decoder.decode(text_of(chunk)))
        return
    with quiet_pool(processes - 1) as pool, _read_ahead(chunks) as ahead:
        # The first chunk with events tells for the whole file how its times are written.
        for chunk in ahead:
            builder.add(decoder.decode(text_of(chunk)))
            if decoder.needs_exact is not None:
                break
        if decoder.needs_exact is not None:
            _Merger(pool, (processes - 1) * _QUEUED_A_WORKER, decoder, builder).run(ahead)


@dataclass(slots=True)
class _Merger:
    """Gives batches to workers or decodes them here, and merges them in their order."""

    pool: Pool
    room: int
    decoder: EventDecoder
    builder: TableBuilder

    def run(self, chunks: Iterable[Chunk]) -> None:
        waiting: deque[tuple[tuple[Chunk, ...], Future[Sent[Decoded]]]] = deque()
        rest = iter(chunks)
        while batch := tuple(islice(rest, CHUNKS_A_BATCH)):
            has_room = sum(not future.done() for _, future in waiting) < self.room
            waiting.append((batch, self._submitted(batch)) if has_room else ((), self._here(batch)))
            while waiting and waiting[0][1].done():
                self._merge(*waiting.popleft())
        # What no worker has begun is done here, last ones first, while they are at the first.
        for place in reversed(range(len(waiting))):
            batch, future = waiting[place]
            if future.cancel():
                waiting[place] = (batch, self._here(batch))
        while waiting:
            self._merge(*waiting.popleft())

    def _submitted(self, batch: tuple[Chunk, ...]) -> Future[Sent[Decoded]]:
        with suppress(BrokenExecutor):
            return self.pool.submit(Sent.by, decoded, batch, needs_exact=bool(self.decoder.needs_exact))
        return self._here(batch)

    def _here(self, batch: tuple[Chunk, ...]) -> Future[Sent[Decoded]]:
        done: Future[Sent[Decoded]] = Future()
        done.set_result(Sent(decoded(batch, needs_exact=bool(self.decoder.needs_exact)), None))
        return done

    def _merge(self, batch: tuple[Chunk, ...], future: Future[Sent[Decoded]]) -> None:
        try:
            tables, decoder = future.result().received()
        except BrokenExecutor:  # the system ended a worker: what it had is done here
            tables, decoder = self._here(batch).result().received()
        self.builder.merge(tables)
        self.decoder.merge(decoder)


def decoded(batch: tuple[Chunk, ...], *, needs_exact: bool) -> Decoded:
    """A batch's tables."""
    decoder, builder = EventDecoder(needs_exact=needs_exact), TableBuilder()
    for chunk in batch:
        builder.add(decoder.decode(text_of(chunk)))
    return builder, decoder


@contextmanager
def _read_ahead(chunks: Iterable[Chunk]) -> Iterator[Iterator[Chunk]]:
    """The chunks, read in a thread of its own, which ends with the context."""
    queue: Queue[Chunk | BaseException | None] = Queue(_AHEAD)
    is_over = Event()

    def put(what: Chunk | BaseException | None) -> bool:
        while not is_over.is_set():
            with suppress(Full):
                queue.put(what, timeout=0.1)
                return True
        return False

    def read() -> None:
        try:
            for chunk in chunks:
                if not put(chunk):
                    return
            put(None)
        except BaseException as error:  # noqa: BLE001 - raised again where the chunks are used
            put(error)

    thread = Thread(target=read, name="kineto-reader", daemon=True)
    thread.start()
    try:
        yield _taken(queue)
    finally:
        is_over.set()
        if issubclass(sys.exc_info()[0] or Exception, Exception):  # else a signal: a chunk may take its thread minutes
            thread.join()


def _taken(queue: "Queue[Chunk | BaseException | None]") -> Iterator[Chunk]:
    while (what := queue.get()) is not None:
        if isinstance(what, BaseException):
            raise what
        yield what


# A large plain file that the program has its forks decode while it still loads what comes after reading.
#
# Whoever reads the file meanwhile takes over what they have decoded; nothing but time depends on who
# decodes what. Forks
# leave what they made in files, in a folder of their own; what is not there when they end is decoded here.


@contextmanager
def decoded_ahead(path: Path, processes: int) -> Iterator[bool]:
    """Begin to decode the file in forks, so that it has so many processes in all; gives whether it was begun.

    Nothing is begun of a file that is small or packed or no trace, or where this process cannot be forked.
    """
    text = _worth_it(path) if processes > 1 and can_fork() else None
    if text is None:
        yield False
        return
    with tempfile.TemporaryDirectory(prefix="traceanalyzer-", ignore_cleanup_errors=True) as folder:
        begun = _Begun(path, text, Path(folder))
        begun.begin(processes)
        token = _BEGUN.set(begun)
        try:
            yield True
        finally:
            _BEGUN.reset(token)
            begun.end()


def taken_over(path: Path) -> tuple[EventText, EventDecoder, TableBuilder] | None:
    """All of the file, where it was begun; it is handed over once."""
    begun = _BEGUN.get()
    if begun is None or begun.path != path:
        return None
    _BEGUN.set(None)
    begun.finish()
    return begun.text, begun.decoder, begun.builder


def _worth_it(path: Path) -> EventText | None:
    with suppress(NotATraceError, OSError):
        if path.stat().st_size > WORTH_BYTES:
            text = EventText.open(path)
            if isinstance(text.file, PackedFile) and text.file.is_plain:
                return text
            text.file.close()
    return None


@dataclass(slots=True)
class _Begun:
    """A file that forks decode, batch by batch, in whatever order they come to them."""

    path: Path
    text: EventText
    folder: Path
    decoder: EventDecoder = field(default_factory=EventDecoder)
    builder: TableBuilder = field(default_factory=TableBuilder)
    batches: list[tuple[Chunk, ...]] = field(default_factory=list)
    left: Shared[int] = field(default_factory=lambda: Shared(()))
    forks: list[Callable[[], None]] = field(default_factory=list)

    def begin(self, processes: int) -> None:
        chunks = self.text.stretches()
        # The first chunk with events tells for the whole file how its times are written.
        for chunk in chunks:
            self.builder.add(self.decoder.decode(text_of(chunk)))
            if self.decoder.needs_exact is not None:
                break
        while batch := tuple(islice(chunks, CHUNKS_A_BATCH)):
            self.batches.append(batch)
        self.left = Shared(range(len(self.batches)))
        share = partial(self._share, os.getpid())
        self.forks = [aside(share, processes=processes) for _ in range(processes - 1)]

    def finish(self) -> None:
        """Decode here what no fork has come to, and put all batches together in their order."""
        own: dict[int, Decoded | None] = {}
        merged = 0
        for place in self.left.rest():
            own[place] = self._decoded(place)
            while made := own.pop(merged, None) or self._made(merged):
                self._merge(made)
                merged += 1
        self.end()
        for place in range(merged, len(self.batches)):
            self._merge(own.pop(place, None) or self._made(place) or self._decoded(place))

    def end(self) -> None:
        """Have the forks end after the batch that each is at."""
        if self.forks:
            for _ in self.left.rest():
                pass
            self.left.close()
        while self.forks:
            self.forks.pop()()

    def _share(self, parent: int) -> None:
        """In a fork: batch after batch, until none is left or nobody waits for them."""
        gc.disable()  # events are millions and short-lived: nothing for the collector
        with suppress(OSError, NotATraceError):  # the disk is full, or the file is gone: said where it is decoded again
            for place in self.left.rest():
                if os.getppid() != parent:
                    return
                draft = self.folder / f"{place}.draft"
                with draft.open("wb") as file:
                    pickle.dump(self._decoded(place), file, pickle.HIGHEST_PROTOCOL)
                draft.rename(self.folder / str(place))

    def _made(self, place: int) -> Decoded | None:
        """What a fork made of the batch; `None` where there is nothing yet."""
        path = self.folder / str(place)
        try:
            made: Decoded = pickle.loads(path.read_bytes())  # noqa: S301 - from a fork of this process
        except OSError:
            return None
        path.unlink()
        return made

    def _decoded(self, place: int) -> Decoded:
        return decoded(self.batches[place], needs_exact=bool(self.decoder.needs_exact))

    def _merge(self, made: Decoded) -> None:
        tables, decoder = made
        self.builder.merge(tables)
        self.decoder.merge(decoder)


_BEGUN: ContextVar[_Begun | None] = ContextVar("a file that is decoded", default=None)
