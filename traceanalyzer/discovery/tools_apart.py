"""Files of several tools in one folder: recordings of the same ranks are runs of their own."""

from collections import defaultdict
from collections.abc import Sequence

from traceanalyzer.discovery.clustering import TraceFile
from traceanalyzer.readers import reader_of


def by_tool(captures: Sequence[TraceFile]) -> list[list[TraceFile]]:
    """The captures of each format, where two of them claim one rank, or some claim none; else all together.

    A rank's two recordings are of one time or of two, but never parts of one: half of the ranks from one tool and half
    from the other would not answer each other's calls. A number that only follows the order of files makes no rank of
    another tool's job.
    """
    is_unclear = 0 < sum(capture.is_numbered_by_order for capture in captures) < len(captures)
    if len({capture.path.suffix for capture in captures}) < 2 and not is_unclear:
        return [list(captures)]
    by_format: dict[str, list[TraceFile]] = defaultdict(list)
    for capture in captures:
        reader = reader_of(capture.path)
        name = str(getattr(reader, "__name__", "")).rpartition(".")[2]
        by_format[name.partition("_")[0]].append(capture)  # all of Nsight Systems' are of one tool
    claimed = [{rank for capture in own for rank in capture.ranks} for own in by_format.values()]
    is_twice = len(set().union(*claimed)) < sum(map(len, claimed))
    return list(by_format.values()) if is_twice or is_unclear else [list(captures)]
