"""NCCL Inspector's files: bandwidth of every collective on every rank, over hours."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from traceanalyzer.discovery.candidates import all_below
from traceanalyzer.errors import InputError
from traceanalyzer.files import bounded
from traceanalyzer.model.schema import printable

_COLUMNS = ("communicator", "rank", "ranks", "nodes", "host", "collective", "number", "size_bytes", "duration_ns",
            "algbw_gb_per_s", "busbw_gb_per_s", "dumped_ns")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Inspector:
    """What the Inspector recorded.

    Attributes:
        calls: one row for each call of a rank: `communicator`, `rank`, `ranks`, `nodes`, `host`, `collective`,
            `number` (of the collective in its communicator), `size_bytes`, `duration_ns`, `algbw_gb_per_s`,
            `busbw_gb_per_s`, `dumped_ns`.
        files: how many were read.
        notes: what could not be.
    """

    calls: pd.DataFrame
    files: int
    notes: tuple[str, ...] = ()


def read_inspector(folder: Path, *, follows_links: bool = False) -> Inspector:
    """Read the Inspector's JSON: one object after the other, or one a line, in all files below a folder.

    Raises:
        InputError: no file holds a record of a collective.
    """
    files = all_below(folder, follows_links=follows_links) if folder.is_dir() else [folder]
    rows, notes, used = [], [], 0
    for path in files:
        try:
            found = [row for record in _objects(path) if (row := _row(record)) is not None]
        except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
            notes.append(f"{path}: not the Inspector's JSON ({error})")
            continue
        used += bool(found)
        rows += found
    if not rows:
        raise InputError(f"{folder}: no record of NCCL Inspector in it{': ' + notes[0] if notes else ''}")
    return Inspector(pd.DataFrame(rows, columns=list(_COLUMNS)), used, tuple(notes))


_MOST_BYTES = 4 << 30


def _objects(path: Path) -> Iterator[Any]:
    """The objects of a file: a line each, else laid out over several lines; a cut last one is left out."""
    text = bounded.content(path, _MOST_BYTES).decode("utf-8")
    lines = text.splitlines()
    start = 0
    decoder = msgspec.json.Decoder()
    for number, line in enumerate(lines):
        if line.rstrip() in {"}", "},"} or (line.startswith("{") and line.rstrip().endswith("}")):
            block = "\n".join(lines[start : number + 1]).strip().rstrip(",")
            try:
                yield decoder.decode(block)
            except (msgspec.DecodeError, RecursionError):
                continue  # a closing brace inside an object: it goes on
            start = number + 1


def _row(record: Any) -> tuple[Any, ...] | None:
    if not isinstance(record, Mapping):
        return None
    head, about, told = (record.get(name) for name in ("header", "metadata", "coll_perf"))
    if not isinstance(head, Mapping) or not isinstance(told, Mapping):
        return None
    about = about if isinstance(about, Mapping) else {}
    duration, dumped = _number(told.get("coll_exec_time_us")), _number(about.get("dump_timestamp_us"))
    rank = _number(head.get("rank"), whole=True)
    if rank is None:
        return None
    host = about.get("hostname")
    return (
        _text(head.get("id")), rank, _number(head.get("n_ranks"), whole=True), _number(head.get("nnodes"), whole=True),
        None if host is None else _text(host), _text(told.get("coll")), _number(told.get("coll_sn"), whole=True),
        _number(told.get("coll_msg_size_bytes"), whole=True), None if duration is None else round(duration * 1000),
        _number(told.get("coll_algobw_gbs")), _number(told.get("coll_busbw_gbs")),
        None if dumped is None else round(dumped * 1000),
    )  # fmt: skip


def _text(value: Any) -> str:
    return printable(str(value))


def _number(value: Any, *, whole: bool = False) -> Any:
    """A number that can be meant: not negative, and small enough for a table; `None` for all else."""
    is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < 1 << 52 else None


def late_ranks(inspector: Inspector) -> pd.DataFrame:
    """How often each rank came last to a collective, and how long the others waited for it.

    A collective's kernel spins until its last rank arrives, so the rank with the shortest duration came last; the
    others waited their duration less that one. Of collectives that at least two ranks recorded.

    Returns:
        One row for each communicator and rank: `calls` compared, `last` of them in which it came last, `last_pct`,
        `caused_wait_ns` (mean over the others, summed over collectives), `wait_ns` that it waited itself.
    """
    calls = inspector.calls.dropna(subset=["number", "duration_ns"])
    keys = ["communicator", "collective", "number"]
    calls = calls.drop_duplicates([*keys, "rank"])
    grouped = calls.groupby(keys)["duration_ns"]
    calls = calls.assign(
        recorded=grouped.transform("size"), shortest_ns=grouped.transform("min"), total_ns=grouped.transform("sum")
    )
    calls = calls[calls["recorded"] > 1]
    wait = (calls["duration_ns"] - calls["shortest_ns"]).astype("int64")
    is_last = wait == 0
    caused = (calls["total_ns"] - calls["recorded"] * calls["shortest_ns"]) / (calls["recorded"] - 1)
    table = calls.assign(wait_ns=wait, last=is_last, caused_wait_ns=caused.where(is_last, 0))
    made = table.groupby(["communicator", "rank"], as_index=False).agg(
        calls=("number", "size"), last=("last", "sum"), caused_wait_ns=("caused_wait_ns", "sum"),
        wait_ns=("wait_ns", "sum"),
    )  # fmt: skip
    made["caused_wait_ns"] = made["caused_wait_ns"].round().astype("int64")
    made["last_pct"] = 100 * made["last"] / made["calls"]
    return made.sort_values("caused_wait_ns", ascending=False, ignore_index=True)


def bandwidth(inspector: Inspector) -> pd.DataFrame:
    """Bus bandwidth by communicator, collective and size: calls, median, lowest tenth; of the slowest rank's figures.

    The lowest figure of a collective's ranks counts the wait for the last; the highest is the transfer's.
    """
    calls = inspector.calls.dropna(subset=["busbw_gb_per_s", "size_bytes"])
    best = calls.groupby(["communicator", "ranks", "collective", "size_bytes", "number"], dropna=False, as_index=False)[
        "busbw_gb_per_s"
    ].max()
    grouped = best.groupby(["communicator", "ranks", "collective", "size_bytes"], dropna=False)["busbw_gb_per_s"]
    made = grouped.agg(calls="size", median_gb_per_s="median", low_gb_per_s=lambda rate: rate.quantile(0.1))
    return made.reset_index().sort_values(["size_bytes", "calls"], ascending=False, ignore_index=True)
