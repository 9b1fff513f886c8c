"""`python -m traceanalyzer.runners`: help without torch, and one line that says so where a run needs it."""

import sys

from traceanalyzer.runners import NEEDS_TORCH
from traceanalyzer.runners.options import parser

if __name__ == "__main__":
    parser().parse_args()
    try:
        from traceanalyzer.runners import command
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        print(f"error: {NEEDS_TORCH}", file=sys.stderr)  # noqa: T201
        sys.exit(2)
    sys.exit(command.main(sys.argv[1:]))
