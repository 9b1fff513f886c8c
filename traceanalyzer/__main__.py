"""The command: `analyze-traces` and `python -m traceanalyzer`. Imports nothing before Ctrl-C is answered."""

import gc
import os
import sys


def main() -> None:
    """Load the command line and run it; Ctrl-C ends it with a word, also while it loads."""
    # Nothing here multiplies large matrices: threads for that would only spin, on many cores for seconds.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(300_000, 50, 50)  # loading makes many objects and no garbage: looking for some takes a tenth of it
    try:
        from traceanalyzer.cli import main as command  # noqa: PLC0415 - not before Ctrl-C is answered
        from traceanalyzer.forks import IS_PROGRAM  # noqa: PLC0415 - as above

        IS_PROGRAM.set(True)
        command()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)
    finally:
        gc.freeze()  # the process ends: looking through all that was loaded for garbage takes a tenth of a small run


if __name__ == "__main__":
    main()
