"""AMD's rocprofv3, JSON output: `<process>_results.json`, plain or gzip."""

import re
from collections.abc import Iterator
from pathlib import Path

from traceanalyzer.decoding.stream import PackedFile
from traceanalyzer.errors import NotATraceError
from traceanalyzer.files.archives import is_json
from traceanalyzer.files.bounds import BEGIN_BYTES
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.readers.base import Format, Header, RankHint

FORMAT = Format("rocprofv3 --output-format json", "_results.json", vendor="AMD")

_BEGIN = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"')


def recognises(path: Path) -> bool:
    """By name and by the key that the file begins with."""
    if not path.is_file() or not is_json(path.name):
        return False
    try:
        file = PackedFile.open(path)
    except NotATraceError:
        return False
    head = file.read(BEGIN_BYTES)
    file.close()
    return _BEGIN.match(head) is not None


def peek(path: Path) -> Header:  # noqa: ARG001 - every reader is asked for a file
    """Nothing: the file names no rank, and its times are no times of day; see `Reader.peek`."""
    return Header()


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """A rank for each GPU of the file's processes; see `Reader.read`."""
    from traceanalyzer.readers.rocprof import records

    return records.read(path, hint, rules)
