"""Which of the ranks that files hold are the run's, and under which number."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import TypeVar

from traceanalyzer.discovery import BY_NAME, BY_REGEX, Found
from traceanalyzer.discovery.clustering import TraceFile
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.files.remote import named
from traceanalyzer.meaning.listed import numbered
from traceanalyzer.model import RankMeta, Skipped
from traceanalyzer.model.schema import printable
from traceanalyzer.readers import GUESSED

T = TypeVar("T")


def with_gpu_work(ranks: Sequence[T], meta_of: Callable[[T], RankMeta], skipped: list[Skipped]) -> list[T]:
    """The ranks with GPU work; all of them where none has any, for a report of the host.

    What has none beside others that do is named in `skipped`: a process that drives no GPU, or one whose GPU was not
    recorded.
    """
    held = [rank for rank in ranks if not meta_of(rank).is_host_only]
    if not held:
        return list(ranks)
    left_out = [meta_of(rank) for rank in ranks if meta_of(rank).is_host_only]
    skipped += [Skipped(", ".join(meta.files), _why_left_out(meta)) for meta in left_out]
    return held


def _why_left_out(meta: RankMeta) -> str:
    if meta.has_api_calls:
        return f"rank {meta.rank} has API calls but no kernels: its profiler did not record its GPU"
    return "has no GPU work, unlike other files of the run"


def claimed_rank(
    meta: RankMeta, taken: Mapping[int, RankMeta], capture: TraceFile, skipped: list[Skipped]
) -> int | None:
    """The number under which a rank is kept.

    A guessed number moves on to the next free one. A stated number that is taken already is refused: `None`,
    and the file is named in `skipped`, with the one that is read.
    """
    rank = meta.rank
    if rank not in taken:
        return rank
    if meta.rank_source in GUESSED:
        return next(number for number in count(rank) if number not in taken)
    read = printable(", ".join(taken[rank].files))
    why = f"claims rank {rank}, which another file of this run has already ({read}); pick one with --trace-file"
    if meta.rank_source in (BY_NAME, BY_REGEX):
        why += ", or let names tell each file's rank in the whole job (rank0, rank1, …, or --rank-regex on its path)"
    skipped.append(Skipped(printable(named(capture.place)), why))
    return None


def require_ranks(ranks: Collection[int], found: Found, skipped: list[Skipped]) -> None:
    """Raise `InputError` with the reasons when nothing is left."""
    if ranks:
        return
    known = sorted({rank for run in found.runs for capture in run.captures for rank in capture.ranks})
    # What is no trace at all was set aside before; a trace that could not be read comes after it.
    told = [one for one in skipped if one not in found.skipped] or ([] if known else skipped)
    if told:
        raise InputError(f"{told[-1].what}: {told[-1].why}")
    raise UsageError(f"none of the ranks that were asked for is here; this run has {numbered('rank', known)}")
