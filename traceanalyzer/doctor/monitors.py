"""What monitors of a running job wrote: NCCL Inspector, NCCL's example profiler plugin, RAS, xpu_timer."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from traceanalyzer.analyses.statistics import RATIO, SHARE, SIGMAS
from traceanalyzer.discovery import all_below
from traceanalyzer.doctor.knowledge import Facts, by_value
from traceanalyzer.errors import InputError
from traceanalyzer.files import whole
from traceanalyzer.meaning.vocabulary import numbered
from traceanalyzer.model.schema import printable

_COLUMNS = {
    "communicator": "str", "ranks": "Int64", "who": "str", "rank": "Int64", "operation": "str", "series": "str",
    "peer": "Int64", "number": "Int64", "size_bytes": "Int64", "duration_ns": "Int64", "busbw_gb_per_s": "Float64",
    "tflops": "Float64",
}  # fmt: skip

_MOST = 1 << 52
"""No number in a monitor's file is larger: a table holds it exactly."""


@dataclass(frozen=True, slots=True)
class Monitors:
    """Communication calls and matrix products as monitors timed them.

    Attributes:
        calls: one row for each call of a rank, or for each mean that a monitor keeps: `communicator`, `ranks` in it,
            `who` (a rank, or a GPU of a host), `rank`, `operation`, `series` (what else tells one mean from another),
            `peer` of a send or receive, `number` of the collective in its communicator (absent for means),
            `size_bytes`, `duration_ns`, `busbw_gb_per_s`, `tflops` (of products).
        hanging: ranks of which xpu_timer reports a hang.
        files: how many were read.
        notes: what could not be read.
    """

    calls: pd.DataFrame
    hanging: tuple[int, ...]
    files: int
    notes: tuple[str, ...] = ()


def read_monitors(places: Sequence[Path], *, follows_links: bool = False) -> Monitors:
    """Read files of NCCL Inspector (JSON or .prom), the profiler plugin and xpu_timer, or all such files of folders.

    Raises:
        InputError: nothing in them is a record of a monitor.
    """
    rows: list[dict[str, Any]] = []
    notes, files = [], 0
    for path in (path for place in places for path in (all_below(place, follows_links=follows_links)
                                                       if place.is_dir() else [place])):  # fmt: skip
        try:
            content = whole.content(path, 4 << 30)
            own = [row for mark, read in _READERS.items() if mark in content for row in read(content.decode("utf-8"))]
        except (OSError, UnicodeDecodeError) as error:
            notes.append(f"{path}: not a monitor's file ({error})")
            continue
        files += bool(own)
        rows += own
    if not rows:
        where = " and ".join(map(str, places))
        raise InputError(
            f"{where}: no record of NCCL Inspector, NCCL's profiler plugin or xpu_timer in it"
            f"{': ' + notes[0] if notes else ''}; docs/hangs.md says how to get them"
        )
    hanging = tuple(sorted({row["rank"] for row in rows if row.get("hang")}))
    calls = pd.DataFrame([row for row in rows if "hang" not in row], columns=list(_COLUMNS)).astype(_COLUMNS)
    return Monitors(calls, hanging, files, tuple(notes))


_FIELDS = {
    "communicator": ("id", "CommHash", "comm_name"),
    "ranks": ("n_ranks", "nranks"),
    "rank": ("rank", "Rank"),
    "operation": ("coll", "p2p", "name", "collective", "p2p_operation", "operation"),
    "peer": ("p2p_peer", "Peer"),
    "number": ("coll_sn", "p2p_sn", "SeqNum"),
    "size_bytes": ("coll_msg_size_bytes", "p2p_msg_size_bytes"),
    "duration_ns": ("coll_exec_time_us", "p2p_exec_time_us"),
    "busbw_gb_per_s": ("coll_busbw_gbs", "p2p_busbw_gbs"),
}
"""Column → what producers call it."""


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a record; what cannot be meant, such as a negative size, is absent."""
    row: dict[str, Any] = {"series": ""}
    for column, names in _FIELDS.items():
        value = next((record[name] for name in names if name in record), None)
        kind = _COLUMNS[column]
        row[column] = printable(str("" if value is None else value)) if kind == "str" else _number(value, kind)
    if row["duration_ns"] is not None:
        row["duration_ns"] *= 1000
    return row | {"who": f"rank {row['rank']}"}


def _number(value: object, kind: str) -> Any:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    is_number = isinstance(value, int | (float if kind == "Float64" else int)) and not isinstance(value, bool)
    return value if is_number and 0 <= value < _MOST else None  # type: ignore[operator]


# NCCL Inspector's JSON (plugins/profiler/inspector/inspector_json.cc): an object a call.


def _inspector(text: str) -> Iterator[dict[str, Any]]:
    for record in _objects(text):
        header = record.get("header")
        for call in (record.get("coll_perf"), record.get("p2p_perf")):
            if isinstance(header, dict) and isinstance(call, dict):
                row = _row({**call, **header})
                if row["rank"] is not None:
                    yield row


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The outermost objects of a file, in lines or laid out over several; one that is cut off is left out."""
    decode, at = json.JSONDecoder().raw_decode, 0
    while (at := text.find("{", at)) >= 0:
        try:
            found, at = decode(text, at)
            yield found
        except (ValueError, RecursionError):  # goes on behind the line
            at = text.find("\n", at)
            if at < 0:
                return


# The example profiler plugin (plugins/profiler/example/print_event.cc): Chrome events, a file a communicator and rank.


def _plugin(text: str) -> Iterator[dict[str, Any]]:
    """A call lasts from its first channel's kernel to its last one's end: their events stand between its own two."""
    row: dict[str, Any] = {"rank": None}
    times: list[float] = []
    for event in _objects(text.lstrip("[\r\n")):
        kind, args, time_us = event.get("cat"), event.get("args"), _number(event.get("ts"), "Float64")
        if kind in {"COLL", "P2P"} and isinstance(args, dict):
            row, times = _row({"name": event.get("name"), **args}), []
            count, bits = _number(args.get("Count"), "Int64"), re.search(r"\d{1,2}", str(args.get("Datatype")))
            row["size_bytes"] = count * int(bits[0]) // 8 if count is not None and bits else None
        elif kind == "GPU" and time_us is not None:
            times.append(time_us)
        elif kind in {"COLL", "P2P"} and row["rank"] is not None:
            yield row | {"duration_ns": round((max(times) - min(times)) * 1000) if times else None}
            row = {"rank": None}


# Metrics as Prometheus reads them: the Inspector's .prom files, and the page at xpu_timer's port.


_SAMPLE = re.compile(
    r"^(\w+)\{([^}]*)\}\s+([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])", re.MULTILINE | re.ASCII
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_RANGE = re.compile(r"(\d{1,4})(?:-\d{1,4})?([KMGT]?)B")
_METRICS = {
    "nccl_bus_bandwidth_gbs": ("busbw_gb_per_s", 1),
    "nccl_collective_exec_time_microseconds": ("duration_ns", 1000),
    "nccl_p2p_bus_bandwidth_gbs": ("busbw_gb_per_s", 1),
    "nccl_p2p_exec_time_microseconds": ("duration_ns", 1000),
    "XPU_TIMER_COLL_KERNEL_AVG_LATENCY": ("duration_ns", 1000),
    "XPU_TIMER_COLL_KERNEL_BANDWIDTH": ("busbw_gb_per_s", 1 / 8),
    "XPU_TIMER_MM_KERNEL_FLOPS": ("tflops", 1),
    "XPU_TIMER_COMMON_HANG": ("hang", 1),
}
"""Metric → column, and what makes ns or GB/s of its unit."""
_SERIES = ("message_size", "algo_proto", "dtype", "algorithm", "transport", "level", "small")


def _prometheus(text: str) -> list[dict[str, Any]]:
    rows: dict[tuple[str, bool], dict[str, Any]] = {}
    for name, label_text, value in _SAMPLE.findall(text):
        labels = dict(_LABEL.findall(label_text))
        row = _row(labels)
        if name not in _METRICS or not isfinite(float(value)) or (row["rank"] is None and "gpu" not in labels):
            continue
        column, factor = _METRICS[name]
        if row["rank"] is None:
            row["who"] = printable(f"{labels['gpu']} of {labels.get('node')}")
        row["series"] = printable(" ".join(labels[key] for key in _SERIES if key in labels))
        if size := _RANGE.match(labels.get("message_size", "")):
            row["size_bytes"] = int(size[1]) << 10 * " KMGT".index(size[2] or " ")
        figure = float(value) * factor
        kept = rows.setdefault((label_text, column == "hang"), row)
        kept[column] = min(round(abs(figure)), _MOST) if column == "duration_ns" else figure
    return list(rows.values())


_READERS: dict[bytes, Callable[[str], Any]] = {
    b'_perf"': _inspector, b'"CommHash"': _plugin, b"_bus_bandwidth_gbs{": _prometheus, b"XPU_TIMER_": _prometheus,
}  # fmt: skip


def is_monitors_file(content: bytes) -> bool:
    """Whether a file's beginning or end holds a record of a monitor."""
    return any(mark in content for mark in _READERS)


# Who arrives last, and what bandwidth is reached.


_CALL = ["communicator", "operation", "series", "size_bytes", "number"]


def arrivals(monitors: Monitors) -> pd.DataFrame:
    """How often each rank came last to a collective, and how long the others waited for it.

    A collective's kernel spins until its last rank arrives, so the rank with the shortest duration came last; the
    others waited their duration less that one. Of collectives that at least two ranks recorded. A mean counts as one.

    Returns:
        One row for each communicator and rank: `who`, `rank`, `calls` compared, `last` of them in which it came last,
        `last_pct`, `caused_wait_ns` (mean over the others, summed over collectives), `wait_ns` that it waited itself,
        `of_peers` (median over collectives of its duration over the other ranks' median), `members` compared.
    """
    calls = monitors.calls
    calls = calls[calls["peer"].isna() & calls["tflops"].isna() & calls["duration_ns"].notna()]
    calls = _against_peers(calls, "duration_ns")
    calls = calls[calls["recorded"] > 1]
    shortest = calls["duration_ns"] == calls["least"]
    wait = calls["duration_ns"] - calls["least"]
    caused = (calls["total"] - calls["recorded"] * calls["least"]) / (calls["recorded"] - 1)
    made = calls.assign(wait_ns=wait, last=shortest, caused_wait_ns=caused.where(shortest, 0))
    made = made.groupby(["communicator", "who"], as_index=False).agg(
        rank=("rank", "first"), calls=("duration_ns", "size"), last=("last", "sum"), wait_ns=("wait_ns", "sum"),
        caused_wait_ns=("caused_wait_ns", "sum"), of_peers=("of_peers", "median"), members=("recorded", "max"),
        numbers=("number", "count"),
    )  # fmt: skip
    made["caused_wait_ns"] = made["caused_wait_ns"].round().astype("int64")
    made["last_pct"] = 100 * made["last"] / made["calls"]
    return made.sort_values("caused_wait_ns", ascending=False, ignore_index=True)


def _against_peers(calls: pd.DataFrame, figure: str) -> pd.DataFrame:
    """One row for each call and rank, with `recorded`, `least`, `total` of the call's ranks, and `of_peers`."""
    calls = calls.groupby([*_CALL, "who"], dropna=False, as_index=False).agg({"rank": "first", figure: "median"})
    calls[figure] = calls[figure].astype("float64")
    grouped = calls.groupby(_CALL, dropna=False)[figure]
    made = calls.assign(recorded=grouped.transform("size"), least=grouped.transform("min"),
                        total=grouped.transform("sum"), middle=grouped.transform("median"))  # fmt: skip
    # The median of the others: of an odd number of ranks the middle one's neighbours decide; the group's is near it.
    return made.assign(of_peers=(made[figure] / made["middle"]).fillna(1))


def bandwidth(monitors: Monitors) -> pd.DataFrame:
    """Bus bandwidth by communicator, operation and size: calls, median, lowest tenth; of the fastest rank's figures.

    The lowest figure of a collective's ranks counts the wait for the last; the highest is the transfer's.
    """
    calls = monitors.calls.dropna(subset=["busbw_gb_per_s", "size_bytes"])
    keys = ["communicator", "ranks", "operation", "size_bytes"]
    best = calls.groupby([*keys, "number", "peer"], dropna=False, as_index=False)["busbw_gb_per_s"].max()
    grouped = best.groupby(keys, dropna=False)["busbw_gb_per_s"]
    made = grouped.agg(calls="size", median_gb_per_s="median", low_gb_per_s=lambda rate: rate.quantile(0.1))
    return made.reset_index().sort_values(["size_bytes", "calls"], ascending=False, ignore_index=True)


def products(monitors: Monitors) -> pd.DataFrame:
    """Speed of each rank's matrix products: `rank`, `operation`, `series`, `tflops`, `of_peers`."""
    table = _against_peers(monitors.calls[monitors.calls["tflops"].notna()], "tflops")
    return table[["who", "rank", "operation", "series", "tflops", "of_peers", "recorded"]]


def often_last(monitors: Monitors) -> Iterator[Facts]:
    """A rank of more than two that arrives last at the collectives by more than chance, so that the others wait."""
    for row in arrivals(monitors).itertuples(index=False):
        usual = row.calls / row.members
        by_chance = usual + SIGMAS * (usual * (1 - 1 / row.members)) ** 0.5
        is_late = row.of_peers * RATIO < 1 and (not row.numbers or row.last > by_chance)
        if row.members > 2 and is_late and row.last_pct >= 100 * SHARE:
            yield {"row": row, "ranks": _ranks(row.rank)}


def _ranks(rank: object) -> tuple[int, ...]:
    return () if pd.isna(rank) else (int(rank),)  # type: ignore[call-overload]


def slow_products(monitors: Monitors) -> Iterator[Facts]:
    """A rank of more than two whose matrix products run slower than the other ranks' of the same series."""
    table = products(monitors)
    table = table[table["recorded"] > 2]
    for (who, rank), share in table.groupby(["who", "rank"])["of_peers"].median().items():
        if share * RATIO < 1:
            yield {"who": who, "share": share, "ranks": _ranks(rank)}


def bandwidth_drops(monitors: Monitors) -> Iterator[Facts]:
    """Collectives of one size of which a tenth reaches less than half of the median bandwidth."""
    table = bandwidth(monitors)
    big = table[(table["calls"] >= 50) & (table["size_bytes"] >= 1 << 20)]
    for row in big[big["low_gb_per_s"] < SHARE * big["median_gb_per_s"]].head(5).itertuples(index=False):
        yield {"row": row}


def slow_pairs(monitors: Monitors) -> Iterator[Facts]:
    """Two ranks between which sends of one size are slower than between most others."""
    calls = monitors.calls[monitors.calls["peer"].notna() & monitors.calls["busbw_gb_per_s"].notna()]
    calls = calls.assign(ends=[tuple(sorted(ends)) for ends in zip(calls["rank"], calls["peer"], strict=True)])
    for (operation, size), own in calls.groupby(["operation", "size_bytes"]):
        rates = own.groupby("ends")["busbw_gb_per_s"].median()
        for ends, rate in rates[rates * RATIO < rates.median()].items() if len(rates) > 2 else ():
            yield {"operation": operation, "size": size, "rates": rates, "rate": rate, "calls": len(own), "ranks": ends}


def reported_hang(monitors: Monitors) -> list[Facts]:
    """Ranks whose kernels did not end within xpu_timer's limit."""
    return [{"ranks": monitors.hanging}] if monitors.hanging else []


# RAS: what `ncclras` prints (src/ras/client_support.cc), as text or, with `-f json`, as JSON.


_TROUBLE = re.compile(r"^(?:#\d{1,9}-\d{1,9} \((\w+)\) )?(INCOMPLETE|DEAD|ERROR|MISMATCH)\s*$")
_RAS_RANK = re.compile(r"^\s+(?:The missing rank: |Rank )(\d{1,9})\b")
_RAS_GROUP = re.compile(r"^ +\d+ +\d+ +\S+ +\S+ +(?:\d+-)?(\d{1,9}) +\d+ +([A-Z]+) +(\S+)", re.MULTILINE)
_COUNTS = re.compile(
    r"^\s+(?:(?P<ranks>\d{1,9}) ranks? ha(?:ve|s)|Rank \d{1,9} has) "
    r"(?:launched up to operation (?P<launched>\d{1,9})|not launched any operations)"
)
_OPERATION = re.compile(r"have different (\w+) operation counts")


@dataclass(slots=True)
class RasTrouble:
    """One communicator, or the job, that RAS reports as not in order.

    Attributes:
        communicator: its id; `None` for the job's processes.
        status: `INCOMPLETE`, `MISMATCH`, `ERROR`, …
        details: what it says of it.
        ranks: that it lists.
        counts: number of the last launched operation, and how many ranks have launched it.
        operation: whose numbers differ; empty for all together.
    """

    communicator: str | None
    status: str
    details: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    counts: list[tuple[int, int]] = field(default_factory=list)
    operation: str = ""


@dataclass(frozen=True, slots=True)
class RasReport:
    """What queries of RAS printed: `states` of its groups of communicators (`RUNNING`), `ranks` of the largest."""

    troubles: tuple[RasTrouble, ...] = ()
    states: tuple[str, ...] = ()
    ranks: int = 0


def is_ras(text: str) -> bool:
    """Whether a text is the output of `ncclras`, or holds it."""
    return ("Job summary" in text and "Communicators..." in text) or '"communicators_count"' in text


def parse_ras(texts: Sequence[str]) -> RasReport | None:
    """The outputs of `ncclras` among texts, as one report; `None` when there is none."""
    found = [_of_json(text) or _of_text(text) for text in texts if is_ras(text)]
    if not found:
        return None
    troubles = tuple(one for report in found for one in report.troubles)
    states = tuple(state for report in found for state in report.states)
    return RasReport(troubles, states, max(report.ranks for report in found))


def _of_text(text: str) -> RasReport:
    troubles: list[RasTrouble] = []
    for line in text.splitlines():
        if head := _TROUBLE.match(line):
            troubles.append(RasTrouble(head[1], head[2]))
        elif troubles and line.startswith("  "):
            own = troubles[-1]
            own.details.append(line.strip())
            own.ranks += [int(rank[1])] if (rank := _RAS_RANK.match(line)) else []
            if count := _COUNTS.match(line):
                own.counts.append((int(count["launched"] or 0), int(count["ranks"] or 1)))
            elif operation := _OPERATION.search(line):
                own.operation = operation[1]
    groups = _RAS_GROUP.findall(text)
    states = tuple(state if errors == "OK" else errors for _, state, errors in groups)
    return RasReport(tuple(troubles), states, max((int(ranks) for ranks, *_ in groups), default=0))


class _Rank(msgspec.Struct):
    rank: int
    collective_counts: dict[str, int] = {}


class _Communicator(msgspec.Struct):
    hash: str
    ranks: tuple[_Rank, ...]
    missing_ranks: tuple[_Rank, ...]


class _Answer(msgspec.Struct):
    communicators: tuple[_Communicator, ...]


def _of_json(text: str) -> RasReport | None:
    """What `ncclras -f json` tells; `None` for any other text."""
    try:
        answer = msgspec.json.decode(text, type=_Answer)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    troubles = []
    for one in answer.communicators:
        if missing := [rank.rank for rank in one.missing_ranks]:
            troubles.append(RasTrouble(one.hash, "INCOMPLETE", ranks=missing))
        for operation in one.ranks[0].collective_counts if one.ranks else ():
            by_count = by_value({rank.rank: rank.collective_counts.get(operation, 0) for rank in one.ranks})
            if len(by_count) > 1:
                details = [f"{operation} operation {count}: {numbered('rank', who)}" for count, who in by_count.items()]
                counts = [(count, len(who)) for count, who in by_count.items()]
                fewest = min(by_count.values(), key=len)
                troubles.append(RasTrouble(one.hash, "MISMATCH", details, fewest, counts, operation))
    return RasReport(tuple(troubles))


def ras_troubles(ras: RasReport) -> Iterator[Facts]:
    """What RAS reports as incomplete or mismatching."""
    for one in ras.troubles:
        where = f"communicator {one.communicator}" if one.communicator else "the job"
        yield {"one": one, "where": where, "counts": sorted(one.counts), "ranks": one.ranks}
