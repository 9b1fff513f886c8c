"""Standard output and standard error that outlive their readers (`| head`) and their encodings."""

import io
import sys
from typing import Any, TextIO


def lenient(stream: TextIO) -> TextIO:
    """The stream, but what nobody reads any more is dropped, and characters that it cannot encode become `?`.

    So a report is written whole and the exit code is that of the work, whoever listens. A terminal stays as it is but
    for the characters. What cannot be written otherwise, as on a full disk, is said once; `is_lost` tells it.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.reconfigure(errors="replace")
    if stream.isatty():
        return stream
    pipe = io.BufferedWriter(_PipeThatMayClose(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(pipe, encoding=stream.encoding, errors="replace")


def unfailing(stream: TextIO) -> TextIO:
    """Standard error, but what cannot be written is dropped: nobody is left to be told, and the exit code stays."""
    if not isinstance(stream, io.TextIOWrapper) or stream.isatty():
        return stream
    pipe = io.BufferedWriter(_Dropping(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(pipe, encoding=stream.encoding, errors="backslashreplace", line_buffering=True)


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


class _Dropping(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes
