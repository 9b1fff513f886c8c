"""One file of a run: its ranks with their steps found."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from traceanalyzer.cuda_graphs.captures import captures_beside, has_replays, with_captured_operators, with_notes_beside
from traceanalyzer.discovery.clustering import TraceFile
from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.files.remote import named
from traceanalyzer.kinds import KindRules
from traceanalyzer.loading.kept_traces import through
from traceanalyzer.loading.options import LoadOptions
from traceanalyzer.model import RankTrace, Skipped
from traceanalyzer.model.schema import printable
from traceanalyzer.readers import FILE_ORDER, RankHint, Reader, reader_of
from traceanalyzer.selection import Selection, select


def read_capture(capture: TraceFile, options: LoadOptions, skipped: list[Skipped]) -> Iterator[RankTrace]:
    """The wanted ranks of one file, steps found; what cannot be used is appended to `skipped`."""
    if options.ranks is not None and capture.header.ranks and not options.ranks & set(capture.header.ranks):
        return
    try:
        hint = capture.hint or RankHint(0, FILE_ORDER)
        # Members of archives and remote files lie in a folder of this process, and no other run finds them there.
        kept_in = options.cache if capture.place == capture.path else None
        ways = (hint, *((kind, rule.pattern, rule.flags) for kind, rule in options.rules.extra))
        with capture.whole() as path:
            for trace in through(kept_in, path, ways, _reader(path).read(path, hint, options.rules)):
                if options.ranks is None or trace.rank in options.ranks:
                    whole = _with_captured_graphs(_with_rules(trace, options.rules), path, options.rules)
                    yield from _selected(whole, options.selection, skipped)
    except InputError as error:
        why = re.sub(r"^\S*" + re.escape(capture.path.name) + ": ", "", str(error))
        skipped.append(Skipped(printable(named(capture.place)), why))


def _reader(path: Path) -> Reader:
    reader = reader_of(path)
    if reader is None:
        raise InputError(f"{path}: not there any more, not seen from here, or no trace")
    return reader


def _with_captured_graphs(trace: RankTrace, path: Path, rules: KindRules) -> RankTrace:
    """With the operators of its replayed graphs, where a trace of their capture or their nodes' names lie beside it."""
    if not has_replays(trace):
        return trace
    trace = with_notes_beside(trace, path)
    for file in captures_beside(path):
        reader = reader_of(file)
        try:
            ranks = reader.read(file, RankHint(trace.rank, FILE_ORDER), rules) if reader else ()
            same = next((other for other in ranks if other.rank == trace.rank), None)
        except InputError:
            continue
        trace = trace if same is None else with_captured_operators(trace, same)
    return trace


def _with_rules(trace: RankTrace, rules: KindRules) -> RankTrace:
    return replace(trace, meta=replace(trace.meta, kind_rules=rules)) if rules.extra else trace


def _selected(trace: RankTrace, selection: Selection, skipped: list[Skipped]) -> Iterator[RankTrace]:
    """The rank with its steps; a rank without those that were asked for is left out, the others go on."""
    try:
        yield select(trace, selection)
    except UsageError as error:
        skipped.append(Skipped(f"rank {trace.rank}", str(error)))
