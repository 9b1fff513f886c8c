"""The command: `analyze-traces` and `python -m traceanalyzer`. Imports nothing before Ctrl-C is answered."""

import atexit
import gc
import os
import sys
from contextlib import suppress


def main() -> None:
    """Load the command line and run it; Ctrl-C ends it with a word, also while it loads."""
    # Nothing here multiplies large matrices: threads for that would only spin, on many cores for seconds.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Arrow's own memory is apart from all else, and what is freed of it, 100 MB of a large trace, is not given back.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    gc.set_threshold(300_000, 50, 50)  # loading makes many objects and no garbage: looking for some takes a tenth of it
    try:
        from traceanalyzer.cli import main as command  # noqa: PLC0415 - not before Ctrl-C is answered
        from traceanalyzer.execution import IS_PROGRAM  # noqa: PLC0415 - as above

        IS_PROGRAM.set(True)
        command()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)
    finally:
        gc.freeze()  # the process ends: looking through all that was loaded for garbage takes a tenth of a small run


def program() -> None:
    """`main`, and the end of the process there and then: Python would free piece by piece what the system frees."""
    try:
        main()
    except SystemExit as ended:
        is_watched = sys.getprofile() or sys.gettrace()  # by who says at the end what was done
        if isinstance(ended.code, int) and not is_watched:
            _end(ended.code)
        raise


def _end(code: int) -> None:
    atexit._run_exitfuncs()  # noqa: SLF001 - what Python does itself before it frees everything
    for stream in filter(None, (sys.stdout, sys.stderr)):  # `>&-` leaves none
        with suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    program()
