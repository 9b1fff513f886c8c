"""Fuzzing that is guided by coverage (atheris): `python -m tests.fuzz.guided topology CORPUS -max_total_time=60`.

The folder holds seeds, and takes what reaches new code. Needs `pip install atheris`; nothing else here does.
"""

import io
import sys

import atheris

with atheris.instrument_imports(include=["traceanalyzer.files", "traceanalyzer.doctor"]):
    from traceanalyzer.doctor.nccl_log import read_logs
    from traceanalyzer.doctor.topology import parse_topology
    from traceanalyzer.errors import TraceAnalyzerError
    from traceanalyzer.files import safe_pickle


def _text(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")


TARGETS = {
    "topology": lambda content: parse_topology(_text(content), "x"),
    "nccl_log": lambda content: read_logs([("x", _text(content))]),
    "unpickler": lambda content: safe_pickle.load(io.BytesIO(content), "x"),
}


def main() -> None:
    """Fuzz one target; whatever it raises but a `TraceAnalyzerError` is a bug, and kept as a file."""
    target = TARGETS[sys.argv.pop(1)]

    def once(content: bytes) -> None:
        try:
            target(content)
        except TraceAnalyzerError:
            return

    atheris.Setup(sys.argv, once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
