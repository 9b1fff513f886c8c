"""One rank of a run, loaded ahead: it begins when it can read a byte from its standard input, and ends without one.

Loading PyTorch takes longer than many a run, so that `run.py` does it while the run before is still going. No GPU
is touched before the byte, and ranks whose starter is gone find the input closed.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from traceanalyzer.runners.command import main

if __name__ == "__main__":
    if not os.read(sys.stdin.fileno(), 1):
        sys.exit(1)
    sys.exit(main(sys.argv[1:]))
