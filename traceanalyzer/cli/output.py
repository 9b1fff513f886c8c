"""Standard output and standard error that outlive their readers (`| head`) and their encodings."""

import codecs
import io
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TextIO


def lenient(stream: TextIO) -> TextIO:
    """The stream, but what nobody reads any more is dropped, and what it cannot encode is written in ASCII, or `?`.

    So a report is written whole and the exit code is that of the work, whoever listens. A terminal stays as it is but
    for the characters. What cannot be written otherwise, as on a full disk, is reported once; `is_lost` is then set.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    codecs.register_error(_SPELT, _spelt)
    stream.reconfigure(errors=_SPELT)
    if stream.isatty():
        return stream
    pipe = io.BufferedWriter(_PipeThatMayClose(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(pipe, encoding=stream.encoding, errors=_SPELT)


_SPELT = "traceanalyzer.spelt"

_IN_ASCII: Mapping[str, str] = MappingProxyType(
    {"•": "*", "–": "-", "−": "-", "→": "->", "±": "+/-", "µ": "u", "×": "x", "·": "-", "…": "...", "\u202f": " "}
)
"""What this program's own sentences have beside ASCII."""


def _spelt(error: UnicodeError) -> tuple[str, int]:
    """What an encoding such as that of LANG=C does not have, in characters that it has."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_IN_ASCII.get(one, "?") for one in error.object[error.start : error.end]), error.end


def unfailing(stream: TextIO) -> TextIO:
    """Standard error, but what cannot be written is dropped: nobody reads it, and the exit code stays."""
    if not isinstance(stream, io.TextIOWrapper) or stream.isatty():
        return stream
    pipe = _PipeThatMayClose(stream.fileno(), "w", closefd=False)
    pipe.is_said = True
    return io.TextIOWrapper(
        io.BufferedWriter(pipe), encoding=stream.encoding, errors="backslashreplace", line_buffering=True
    )


def is_lost(stream: TextIO | None) -> bool:
    """Whether something that was printed to a `lenient` stream could not be written, though somebody listened."""
    pipe = getattr(getattr(stream, "buffer", None), "raw", None)
    if stream is None or not isinstance(pipe, _PipeThatMayClose):
        return False
    stream.flush()
    return pipe.is_said


class _PipeThatMayClose(io.FileIO):
    is_said = False

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes
        except OSError as error:  # a full disk under a log: the report itself may be elsewhere
            if not self.is_said and sys.stderr is not None:
                sys.stderr.write(f"Standard output cannot be written ({error.strerror}); the work goes on.\n")
            self.is_said = True
            return memoryview(data).nbytes
