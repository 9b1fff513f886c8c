"""JAX and XLA: the profiler's XSpace files, `<host>.xplane.pb`."""

from collections.abc import Iterator
from pathlib import Path

from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.readers.base import Format, Header, RankHint

_SUFFIX = ".xplane.pb"

FORMAT = Format("JAX", _SUFFIX, suffixes=(_SUFFIX,), framework="jax", has_one_process=True)


def recognises(path: Path) -> bool:
    """By name."""
    return path.is_file() and path.name.endswith(_SUFFIX)


def peek(path: Path) -> Header:
    """When the capture began and ended, where the file says so; see `Reader.peek`."""
    from traceanalyzer.readers.xplane import planes

    return planes.peek(path)


def read(path: Path, hint: RankHint, rules: KindRules) -> Iterator[RankTrace]:
    """A rank for each GPU of the file, in order; see `Reader.read`."""
    from traceanalyzer.readers.xplane import planes

    return planes.read(path, hint, rules)
