"""A large plain file that the program has its forks decode while it still loads what comes after reading.

Whoever reads the file meanwhile takes over what they have decoded; nothing but time depends on who decodes what. Forks
leave what they made in files, in a folder of their own; what is not there when they end is decoded here.
"""

import gc
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from traceanalyzer.decoding.batches import CHUNKS_A_BATCH, WORTH_BYTES, Chunk, Decoded, decoded
from traceanalyzer.decoding.decoder import EventDecoder
from traceanalyzer.decoding.packed import PackedFile
from traceanalyzer.decoding.stream import EventText, text_of
from traceanalyzer.decoding.tables import TableBuilder
from traceanalyzer.errors import NotATraceError
from traceanalyzer.forks import Shared, aside, can_fork


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
