"""Tracks as Chrome trace events: a process for each rank, a thread for each track. Times are µs, exact to the ns."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from traceanalyzer.export.flows import is_of_instance
from traceanalyzer.export.tracks import Track

_Event = dict[str, Any]


def of_rank(rank: int, name: str, said: Mapping[str, object], tracks: Iterable[Track], zero_ns: int) -> Iterator[bytes]:
    """A rank's events, each with a comma before it.

    Args:
        rank: its number.
        name: what it is called.
        said: what a reader must know of it.
        tracks: from top to bottom.
        zero_ns: what is taken from its times.
    """
    for event in _rank_events(rank, name, said, tracks, zero_ns):
        yield b",\n" + json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def head(said: Mapping[str, object]) -> bytes:
    """What stands before the ranks' events."""
    first = json.dumps({"ph": "M", "name": "trace_label", "pid": 0, "args": {"name": said["label"]}})
    return f'{{"displayTimeUnit":"ns","otherData":{json.dumps(said)},"traceEvents":[\n{first}'.encode()


TAIL = b"\n]}\n"
"""What stands behind them."""


def _rank_events(
    rank: int, name: str, said: Mapping[str, object], tracks: Iterable[Track], zero_ns: int
) -> Iterator[_Event]:
    yield _named("process_name", rank, 0, {"name": name})
    yield _named("process_labels", rank, 0, {"labels": ", ".join(f"{key} {value}" for key, value in said.items())})
    yield _named("process_sort_index", rank, 0, {"sort_index": rank})
    for thread, track in enumerate(tracks):
        if track.samples is not None:
            for time, value in track.samples[["time_ns", "value"]].itertuples(index=False):
                yield {"ph": "C", "name": track.name, "pid": rank, "ts": (time - zero_ns) / 1000,
                       "args": {track.unit or "value": value}}  # fmt: skip
            continue
        yield _named("thread_name", rank, thread, {"name": track.name})
        yield _named("thread_sort_index", rank, thread, {"sort_index": thread})
        yield from _slices(track, rank, thread, zero_ns)


def _named(what: str, rank: int, thread: int, content: _Event) -> _Event:
    return {"ph": "M", "name": what, "pid": rank, "tid": thread, "args": content}


def _slices(track: Track, rank: int, thread: int, zero_ns: int) -> Iterator[_Event]:
    assert track.slices is not None
    for row in track.slices.itertuples(index=False):
        place = {"pid": rank, "tid": thread, "ts": (row.start_ns - zero_ns) / 1000}
        event = {"ph": "X", "name": row.name, "cat": row.category, **place, "dur": (row.end_ns - row.start_ns) / 1000}
        if isinstance(row.colour, str):
            event["cname"] = row.colour
        if row.args:
            event["args"] = row.args
        yield event
        leave = row.flows_out if isinstance(row.flows_out, tuple) else ()
        arrive = row.flows_in if isinstance(row.flows_in, tuple) else ()
        for number in dict.fromkeys((*arrive, *leave)):
            what = "collective" if is_of_instance(number) else "launch"
            phase = "s" if number not in arrive else "t" if number in leave else "f"
            yield {"ph": phase, "id": number, "name": what, "cat": what, **place, "bp": "e"}
