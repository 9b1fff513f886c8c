"""One file reduced to its ranks' small tables, in the process that reads it."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses import reduce_rank
from traceanalyzer.discovery.clustering import TraceFile
from traceanalyzer.errors import TraceAnalyzerError
from traceanalyzer.failures import Failure
from traceanalyzer.files.unnamed import give_back_memory, laid_in
from traceanalyzer.forks import later
from traceanalyzer.free_memory import fitting_beside
from traceanalyzer.loading import LoadOptions, kept_ranks
from traceanalyzer.loading.capture import read_capture
from traceanalyzer.model import RankMeta, RankTrace, Skipped
from traceanalyzer.model.schema import TABLES, printable
from traceanalyzer.processes import CORES_A_FILE, ROOM_BYTES
from traceanalyzer.scale.work import NO_MEMORY

ESSENTIAL = frozenset({"ranks", "breakdown", "steps"})
"""A rank of which one of these cannot be computed is left out whole."""


class Done(Struct, frozen=True):
    """What a worker sends back for one file."""

    capture: TraceFile
    ranks: tuple[tuple[RankMeta, dict[str, pd.DataFrame]], ...]
    skipped: tuple[Skipped, ...]
    failures: tuple[Failure, ...]


def reduce_capture(
    capture: TraceFile,
    options: LoadOptions,
    names: tuple[str, ...],
    thresholds: Mapping[str, Any],
    *,
    is_guarded: bool,
) -> Done:
    """Read the file and make the small tables of its ranks; when guarded, what fails is noted and the rest is made."""
    skipped: list[Skipped] = []
    failures: list[Failure] = []
    place = kept_ranks.place_of(capture, options, names, thresholds)
    ranks = kept_ranks.kept(place, options.rules)
    if ranks:
        return Done(capture, tuple(ranks), (), ())
    name = printable(str(capture.place))
    any_large = False
    try:
        with laid_in(options.cache):
            for trace in read_capture(capture, options, skipped):
                is_large = trace.is_large
                if is_large:
                    give_back_memory()
                processes = fitting_beside(CORES_A_FILE.get(), _bytes_of(trace), ROOM_BYTES.get()) if is_large else 1
                tables = reduce_rank(trace, names, failures if is_guarded else None, processes=processes, **thresholds)
                ranks += [(trace.meta, tables)]
                del trace
                any_large |= is_large
        if any_large:  # only now has the reader let go of the last one
            give_back_memory()
        if place and not skipped and not failures:
            again = kept_ranks.place_of(capture, options, names, thresholds)
            later(partial(kept_ranks.keep, place, again, ranks), processes=CORES_A_FILE.get())
    except MemoryError:
        skipped.append(Skipped(name, NO_MEMORY))
    except TraceAnalyzerError:
        raise
    except Exception as error:  # the other files may be good
        if not is_guarded:
            raise
        failures.append(Failure.of("reader", f"File {name}", error))
        skipped.append(Skipped(name, failures[-1].sentence))
    lost = {failure.rank: failure for failure in failures if failure.name in ESSENTIAL}
    skipped += [Skipped(f"rank {rank}", failure.sentence) for rank, failure in lost.items()]
    return Done(capture, tuple(own for own in ranks if own[0].rank not in lost), tuple(skipped), tuple(failures))


def _bytes_of(trace: RankTrace) -> float:
    """What a process takes that makes a share of its analyses: half of its tables, whose large columns lie in files."""
    return _LEAST_BYTES + _TIMES_TABLES * sum(int(trace.table(name).memory_usage().sum()) for name in TABLES)


_LEAST_BYTES, _TIMES_TABLES = 64 << 20, 0.55
"""Of a trace of 3.2 GB whose tables have 386 MB it took 275 MB, of 10 GB and 1.2 GB 600 MB."""


def is_kept(capture: TraceFile, options: LoadOptions, names: tuple[str, ...], thresholds: Mapping[str, Any]) -> bool:
    """Whether what the analyses made of the file's ranks lies in the cache: there is nothing to read or analyse."""
    place = kept_ranks.place_of(capture, options, names, thresholds)
    return place is not None and place.is_dir()


def without_ranks(capture: TraceFile, why: str) -> Done:
    """The file left out, and why."""
    return Done(capture, (), (Skipped(printable(str(capture.place)), why),), ())
