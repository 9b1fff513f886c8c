"""A large file's chunks, decoded in several processes; the tables are those of one process, bit for bit.

A packed file is read and unpacked ahead in a thread; of a plain one the thread looks where it can be cut, and whoever
decodes a piece reads it. This process decodes too: it takes each batch that no worker has room for, among them those
that come while the workers start. Batches are merged in the file's order.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from queue import Full, Queue
from threading import Event, Thread

from traceanalyzer.decoding.decoder import EventDecoder
from traceanalyzer.decoding.stream import Stretch, text_of
from traceanalyzer.decoding.tables import TableBuilder
from traceanalyzer.processes import Pool, Sent, quiet_pool

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
