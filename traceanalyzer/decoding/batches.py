"""A large file's chunks, decoded in several processes; the tables are those of one process, bit for bit.

This process reads, unpacks and cuts the chunks. Batches are merged in the file's order.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from itertools import islice

from traceanalyzer.decoding.decoder import EventDecoder
from traceanalyzer.decoding.tables import TableBuilder
from traceanalyzer.execution import Pool, quiet_pool

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
